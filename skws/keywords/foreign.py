"""What looks like an operator of another query language: nothing is searched that was meant otherwise.

Analysis leaves punctuation out, so ``timeout~`` would be searched as
``timeout``. Whatever another search engine, SQL or a shell would take for more
than punctuation is an error that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from skws.keywords.fault import visible

DASHES: Final = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_QUOTED: Final = {"'": "'", "\u2018": "\u2019", "`": "`", "\u00ab": "\u00bb", "\u2039": "\u203a"}
_WIDE: Final = {"\uff02": '"', "\uff08": "(", "\uff09": ")", "\uff0a": "*", "\uff1a": ":", "\uff1b": ";"}


class Fault(NamedTuple):
    """``place``: an offset in the word."""

    place: int
    message: str


_ANYWHERE: Final = (
    (r"&&", "AND is written AND, or left out"),
    (r"[|\uff5c]", "alternatives are joined by OR"),
    (r"[<>=]", "keywords are not compared; attribute:word looks in one attribute"),
    (r"[\[\]{}]", "there are no ranges and no classes of characters"),
)
_AT_WORDS: Final = (
    (r"[~\uff5e]", "words are not matched by likeness or nearness: there is no '~'"),
    (r"[?\uff1f]", "no character stands for others but '*' at the end of a word (trav*)"),
    (r"\^", "no word weighs more than others: there is no '^'"),
    (r"^[+\uff0b](?=[\w(])", "all keywords are looked for, without '+'"),
    (r"^[!\uff01](?=[\w(])", "an exclusion begins with '-', not with '!'"),
    (r"^-(?=[\w(])", "an exclusion needs a blank before its '-'"),
    (rf"^[{DASHES}](?=[\w(])", "an exclusion begins with '-'; this is another dash"),
    (r"^:", "there is nothing before this colon"),
    (r"\\", "'\\' changes no meaning of what follows it"),
    (r"(?<=[^\W\d])%|%(?=\w)", "no character stands for others but '*' at the end of a word (trav*)"),
    (r"^/(?=.*/$)", "there are no regular expressions"),
    (rf"[{''.join(_WIDE)}]", "this sign is full-width, which makes it no operator"),
)
_RULES: Final = tuple(
    (re.compile(pattern), message, lone)
    for rules, lone in ((_ANYWHERE, True), (_AT_WORDS, False))
    for pattern, message in rules
)
_BETWEEN: Final = re.compile(r"(?:NEAR|ADJ|WITHIN|ONEAR)(?:/?\d+)?|W/\d+|XOR|ANDNOT")


def in_word(word: str, *, follows: bool, leads: bool) -> Fault | None:
    """What is meant for an operator in a word.

    ``follows``, ``leads``: a phrase or a parenthesis is next to it, with no
    blank between. Else punctuation that stands by itself is none, as a rule.
    """
    stands_alone = not (follows or leads or any(map(str.isalnum, word)))
    seen = word + "(" * leads
    found = (
        Fault(match.start(), message)
        for rule, message, lone in _RULES
        if (lone or not stands_alone) and (match := rule.search(seen))
    )
    return min(found, default=None)


def is_connective(word: str) -> bool:
    """True for a word that joins terms in other languages; to be asked between two terms."""
    return _BETWEEN.fullmatch(word) is not None


def quoted(words: list[str]) -> Iterator[int]:
    """The words that begin with a quotation mark of another kind, whose partner ends a later one."""
    for number, word in enumerate(words):
        closing = _QUOTED.get(word[:1])
        if closing is not None and any(each.endswith(closing) for each in words[number + 1 :]):
            yield number


def literally(word: str) -> str:
    """How to search for a text with such signs in it."""
    if not any(map(str.isalnum, word)):
        return "put quotes around it to mean the sign itself"
    return f'to search for the text itself, write "{visible(word)}"'
