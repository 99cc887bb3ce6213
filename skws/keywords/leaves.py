"""What the terms of a query mean: words, phrases and parts of words, as alternatives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from skws.keywords import syntax
from skws.keywords.alphabet import UNSPACED, fold
from skws.keywords.analysis import MEMORABLE, Token, tokens
from skws.keywords.likeness import WILD, literals
from skws.keywords.query import Alternative, Fuzzy, Phrase, Prefix, Scope, Term, Wildcard
from skws.keywords.syntax import fault

LEAST: Final = {1: 3, 2: 5}
"""The fewest letters of a word with so many typing errors: shorter ones are like too many others."""
_LEAST_LITERAL: Final = 2  # letters of a word with wildcards
_PARTS: Final = re.compile(r"([*?])")

Scopes = tuple[Scope | None, ...]


def alternatives_of(node: syntax.Node, text: str, scopes: Scopes) -> Iterator[Alternative]:
    """The alternatives of a word or phrase; none if analysis leaves nothing of it.

    Raises QueryError that shows ``text``, the query, for a part of a word that cannot be looked for.
    """
    match node:
        case syntax.Phrase():
            return _phrase(node.text, scopes)
        case syntax.Prefix():
            return _prefix(node, text, scopes)
        case syntax.Fuzzy():
            return _fuzzy(node, text, scopes)
        case syntax.Wildcard():
            return _wildcard(node, text, scopes)
        case _:
            return _word(node.text, scopes)


def _word(text: str, scopes: Scopes) -> Iterator[Alternative]:
    """A typed word: by itself; ``spider-man`` also as the phrase of its pieces; ``ac/dc`` only so."""
    found = list(tokens(text))
    pieces = [token for token in found if not token.whole]
    wholes = [token for token in found if token.whole]
    if len(wholes) == 1 and wholes[0].width == len(pieces):
        yield from (Term(wholes[0].stem, scope=scope) for scope in scopes)
        if wholes[0].word != "".join(piece.word for piece in pieces):
            return  # what joins the pieces counts: AT&T is not "at t"
    elif len(pieces) == 1 and pieces[0].searchable:
        yield from (Term(pieces[0].stem, scope=scope) for scope in scopes)
    if len(pieces) > 1 and any(piece.searchable for piece in pieces):
        yield from _consecutive(pieces, scopes)


def _phrase(text: str, scopes: Scopes) -> Iterator[Alternative]:
    """A quoted phrase. Quotes make stop words count, so that films called "It" can be found."""
    pieces = [token for token in tokens(text) if not token.whole]
    if len(pieces) == 1 and pieces[0].searchable:
        return (Term(pieces[0].stem, scope=scope) for scope in scopes)
    return _consecutive(pieces, scopes)


def _consecutive(pieces: list[Token], scopes: Scopes) -> Iterator[Alternative]:
    stems = tuple(piece.stem for piece in pieces)
    return (Phrase(stems, scope=scope) for scope in scopes if stems)


def _prefix(node: syntax.Prefix, text: str, scopes: Scopes) -> Iterator[Alternative]:
    found = list(tokens(node.text))
    pieces = [token for token in found if not token.whole]
    if not pieces:
        raise fault("'*' needs at least one letter or digit before it", text, node.startchar)
    if found[-1].width == len(pieces):
        return (Prefix(found[-1].word, scope=scope) for scope in scopes)
    if pieces[-1].end - pieces[0].start == sum(piece.end - piece.start for piece in pieces):
        return _phrase(node.text, scopes)  # unspaced script: whatever follows, the phrase is there
    raise fault("a prefix is one word; put quotes around several", text, node.startchar)


def _fuzzy(node: syntax.Fuzzy, text: str, scopes: Scopes) -> Iterator[Alternative]:
    """What the word alone finds, and words with typing errors."""
    distance = int(node.distance or "1")
    if distance not in LEAST:
        message = f"'~{node.distance}': expected '~' or '~1' for one typing error, '~2' for two"
        raise fault(message, text, node.startchar)
    found = list(tokens(node.text))
    pieces = sum(not token.whole for token in found)
    if not found or found[-1].width != pieces:
        raise fault("'~' goes with one word", text, node.startchar)
    word = found[-1].word
    if UNSPACED.search(word):
        message = "'~' needs a script with blanks between words, whose words have letters to mistype"
        raise fault(message, text, node.startchar)
    if not LEAST[distance] <= len(word) <= MEMORABLE:
        message = (
            f"{word!r} has {len(word)} letters: '~{node.distance}' needs {LEAST[distance]} to {MEMORABLE}, "
            "as shorter words are like too many others"
        )
        raise fault(message, text, node.startchar)
    alone = (each for each in _word(node.text, scopes) if isinstance(each, Term))
    return iter([*alone, *(Fuzzy(word, distance, scope=scope) for scope in scopes)])


def _wildcard(node: syntax.Wildcard, text: str, scopes: Scopes) -> Iterator[Alternative]:
    spelled = _PARTS.split(node.text)
    form = "".join(part if part in WILD else fold(part) for part in spelled)
    form = re.sub(r"\*+", "*", form)
    letters = "".join(literals(form))
    for part in literals(form):
        found = [token.word for token in tokens(part)]
        if found[:1] != [part] or UNSPACED.search(part):
            message = (
                "wildcards stand for characters of one word: beside them are letters and digits only,"
                " of a script with blanks between words"
            )
            raise fault(message, text, node.startchar)
    if len(letters) < _LEAST_LITERAL:
        message = f"a word with wildcards needs at least {_LEAST_LITERAL} letters or digits"
        raise fault(message, text, node.startchar)
    return (Wildcard(form, scope=scope) for scope in scopes)
