"""A necessary condition, as a regular expression, for a text to satisfy any of some alternatives.

Most texts hold no keyword, and one pass of a regular expression over an Arrow
column rules them out at a tenth of the cost of analysis. It may let texts
pass in vain, never hold one back: a word can only match if it begins with
the same letters (or holds some of them, if it may have typing errors or is of a form
with wildcards), save for characters beyond ASCII, which may fold to anything.
The pattern is understood alike by Python and by RE2 (Arrow).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from os.path import commonprefix
from typing import Final

from whoosh.lang.porter2 import exceptional_forms

from skws.keywords.alphabet import JOINERS
from skws.keywords.likeness import literals, parts
from skws.keywords.query import Alternative, Condition, Fuzzy, Phrase, Prefix, Term, Wildcard
from skws_schema.model import Analyzer

_KNOWN: Final = (Analyzer.ENGLISH, Analyzer.SIMPLE)
_LONGEST: Final = 10  # letters compared; more rule out little and make the automaton larger
# Letters in all: RE2 becomes a thousand times slower once its automaton outgrows its memory.
_ALL_LETTERS: Final = 800

# Beyond ASCII, all but the letters (of the scripts most written) that never fold to an ASCII
# letter, nor to nothing, and punctuation, which is in no word.
_FOREIGN: Final = (
    "[^\x00-\x7f\u0391-\u03a1\u03a3-\u03ab\u03b1-\u03cb\u0400-\u0482\u048a-\u052f\u05d0-\u05ea\u0620-\u064a"
    "\u0904-\u0939\u0e01-\u0e30\u2010-\u2027\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
)
_ANY_FOREIGN: Final = "[^\x00-\x7f]"
_BEGIN: Final = "(?:^|[^0-9A-Za-z])"
ASCII_JOINERS: Final = tuple(filter(str.isascii, JOINERS))
_JOINED: Final = f"[{re.escape(''.join(ASCII_JOINERS))}]*"


class _Letters(dict[str, "_Letters"]):
    """A trie of starts: what is common to several is looked for once, which keeps the automaton small."""

    complete = False


def condition(alternatives: Iterable[Alternative]) -> str | None:
    """The pattern to be searched for in a text; ``None`` if there is none that rules anything out.

    A text that it is not found in satisfies none of the alternatives.
    """
    alternatives = list(alternatives)
    starts = {start for each in alternatives if (start := _start(each)) is not None}
    inside = {part for each in alternatives for part in _inside(each)}
    every = starts | inside
    if "" in every or not every:
        return None
    plain = {part for part in every if part[0].isascii()}
    # Without a beginning: an ideograph is a word even after a letter.
    patterns = [_ANY_FOREIGN] if plain < every else []
    longest = max(2, _ALL_LETTERS // max(1, len(plain)))
    if plain & starts:
        patterns.append(_BEGIN + _pattern(_trie(plain & starts, longest), _FOREIGN))
    if plain & inside:
        patterns.append(_pattern(_trie(plain & inside, longest), _FOREIGN))
    return "|".join(patterns)


def _trie(starts: Iterable[str], longest: int) -> _Letters:
    root = _Letters()
    for start in starts:
        node = root
        for char in start[:longest]:
            if not char.isascii():
                break  # any foreign character will do here, as it does everywhere
            node = node.setdefault(char, _Letters())
        else:
            node.complete = True
    return root


def _pattern(letters: _Letters, foreign: str) -> str:
    """A pattern for words that go on with some of the letters, or with a ``foreign`` character."""
    if letters.complete:
        return ""
    going_on = [
        _literal(char) + _JOINED + _pattern(after, _ANY_FOREIGN) for char, after in sorted(letters.items())
    ]
    return f"(?:{'|'.join([*going_on, foreign])})"


def hopeless(alternatives: Iterable[Alternative]) -> Callable[[str], bool]:
    """The same condition for single texts of ASCII, turned round: true only of texts that satisfy none.

    By finding plain substrings, which Python does faster than any regular expression. Joiners may
    stand anywhere in a word, so they are taken out of both sides.
    """
    plain = substrings(alternatives)
    if plain is None:
        return lambda _text: False

    def holds_none(text: str) -> bool:
        if not text.isascii():
            return False
        bare = _without_joiners(text.lower())
        return not any([start in bare for start in plain])  # noqa: C419 - half the time of a generator

    return holds_none


def substrings(alternatives: Iterable[Alternative]) -> tuple[str, ...] | None:
    """What ASCII texts, in lower case and without joiners, must contain any of; None if that is nothing."""
    alternatives = list(alternatives)
    needed = {_start(each) for each in alternatives} - {None}
    needed |= {part for each in alternatives for part in _inside(each)}
    bare = {_without_joiners(part) for part in needed if part is not None}
    if "" in bare or not bare:
        return None
    return tuple(sorted(part for part in bare if part.isascii()))


def _without_joiners(text: str) -> str:
    # One after the other: where there is none, as is usual, this is faster than translate.
    for joiner in ASCII_JOINERS:
        if joiner in text:
            text = text.replace(joiner, "")
    return text


def _inside(alternative: Alternative) -> Iterable[str]:
    """Parts of which some word holds one, folded, in every text that satisfies the alternative."""
    match alternative:
        case Fuzzy(word=word, distance=distance):
            return [part[:_LONGEST] for part in parts(word, distance)]
        case Wildcard(form=form):
            return [max(literals(form), key=len)[:_LONGEST]]
        case _:
            return ()


def _start(alternative: Alternative) -> str | None:
    """What some word begins with, folded, in every text that satisfies the alternative; None if nothing."""
    match alternative:
        case Condition():
            return None
        case _ if alternative.analyzer not in _KNOWN:
            return (
                ""  # other stemmers change more than endings, and texts as they are may begin with any sign
            )
        case Fuzzy() | Wildcard():
            return None
        case Term(stem=start) if alternative.analyzer is Analyzer.SIMPLE:
            pass
        case Term(stem=stem):
            start = _unstemmed(stem)
        case Prefix(start=start):
            pass
        case Phrase(stems=stems):
            begins = stems if alternative.analyzer is Analyzer.SIMPLE else map(_unstemmed, stems)
            start = max(begins, key=len)
    return start[:_LONGEST]


def _unstemmed(stem: str) -> str:
    """What all words with this stem begin with: stemming rewrites the last letter, but for a few words."""
    if not (stem.isascii() and stem.isalpha()):
        return stem
    exceptions = [word for word, its_stem in exceptional_forms.items() if its_stem == stem]
    return commonprefix([stem[:-1], *exceptions])  # noqa: RUF071 - letters, not path components


def _literal(char: str) -> str:
    return f"[{char}{char.upper()}]" if char.isalpha() else re.escape(char)
