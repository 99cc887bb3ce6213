"""Reads keyword queries: ``syntax`` parses their text, this module gives the tree its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from skws.keywords import syntax
from skws.keywords.alphabet import APOSTROPHES
from skws.keywords.analysis import Token, tokens
from skws.keywords.query import Alternative, KeywordQuery, Phrase, Prefix, Scope, Slot, Term
from skws.keywords.scope import left_out, resolve
from skws.keywords.syntax import fault
from skws_mesh.sequence import KeywordSequence
from skws_schema.errors import QueryError
from skws_schema.model import Schema

MAX_SLOTS: Final = 8
"""The expanded schema doubles with every slot."""
MAX_CHARACTERS: Final = 10_000
"""Parsing takes a second or two for so many, and more with their square."""
_POSSESSIVE: Final = re.compile(f"^[{APOSTROPHES}]s(?!\\w)", re.IGNORECASE)


def parse_query(text: str, schema: Schema, *, match_names: bool = False) -> KeywordQuery:
    """The query that ``text`` means over ``schema``.

    Semicolons stand between groups of keywords that come one after the other.
    ``match_names``: tuples also carry the keywords that their relation's name
    matches. Raises ``QueryError`` with a caret below the place where the text
    is malformed, names what is not in the schema, or asks for nothing.
    """
    if len(text) > MAX_CHARACTERS:
        raise QueryError(
            f"a query may have {MAX_CHARACTERS:,} characters at most; this one has {len(text):,}"
        )
    reader = _Reader(text)
    groups = [_read_part(reader, schema, part) for part in parts(text)]
    _check(reader, text)
    without = frozenset(reader.without)
    _check_left_out(reader, schema)
    return KeywordQuery(
        text,
        tuple(slot.outside(without) for slot in reader.slots),
        tuple(slot.outside(without) for slot in reader.exclusions),
        tuple(dict.fromkeys(reader.dropped)),
        match_names,
        KeywordSequence(tuple(groups) if len(groups) > 1 else ()),
        tuple(dict.fromkeys(reader.ignored)),
        without,
    )


def _read_part(reader: _Reader, schema: Schema, part: Part) -> int:
    """Read the keywords before, between or after semicolons; gives their bits."""
    text, first, dropped = reader.text, len(reader.slots), len(reader.dropped)
    tree, places = syntax.parse(part.alone(text), text)
    reader.scopes = {name: _resolve(name, schema, text, at) for name, at in places.items()}
    for node in _conjuncts(tree):
        if isinstance(node, syntax.Without):
            reader.leave_out(node, schema)
        else:
            reader.read(node, first)
    if len(reader.slots) == first and part.semicolon >= 0:
        raise missing(part, text, _reason(reader.dropped[dropped:]))
    return (1 << len(reader.slots)) - (1 << first)


def _resolve(name: str, schema: Schema, text: str, position: int) -> tuple[Scope, ...]:
    try:
        return resolve(name, schema)
    except QueryError as error:
        raise fault(str(error), text, position) from None


def _conjuncts(node: syntax.Node) -> Iterator[syntax.Node]:
    if isinstance(node, syntax.All):
        for child in node:
            yield from _conjuncts(child)
    else:
        yield node


def _unwrap(node: syntax.Node) -> syntax.Node:
    """The node inside parentheses around one node."""
    while isinstance(node, syntax.All) and len(node) == 1:
        node = node[0]
    return node


class _Leaf(NamedTuple):
    text: str
    alternatives: tuple[Alternative, ...]


class _Reader:
    """Collects the slots and exclusions of a tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.scopes: dict[str, tuple[Scope, ...]] = {}
        self.slots: list[Slot] = []
        self.exclusions: list[Slot] = []
        self.dropped: list[str] = []
        self.ignored: list[str] = []
        self.without: dict[int, int] = {}  # relations, with the places where they are named

    def leave_out(self, node: syntax.Without, schema: Schema) -> None:
        """Leave out the relation that a node names."""
        try:
            self.without[left_out(node.text, schema)] = node.startchar
        except QueryError as error:
            raise fault(str(error), self.text, node.startchar) from None

    def read(self, node: syntax.Node, first: int = 0) -> None:
        """Add the predicates of one conjunct; none is repeated.

        Keywords before the slot ``first`` come before it in time.
        """
        negated = isinstance(node, syntax.Not)
        slot = self._slot(_unwrap(node[0] if negated else node), negated=negated)
        into = self.exclusions if negated else self.slots
        if slot is None:
            return
        if not negated and any(slot.same(other) for other in into[:first]):
            message = f"{slot.text!r} stands before ';' as well: no tuple comes before itself"
            raise fault(message, self.text, node.startchar)
        if not any(slot.same(other) for other in into):
            into.append(slot)

    def _slot(self, node: syntax.Node, *, negated: bool) -> Slot | None:
        leaves = [self._leaf(leaf) for leaf in self._leaves(node, negated=negated)]
        self.dropped += [leaf.text for leaf in leaves if not leaf.alternatives]
        kept = [leaf for leaf in leaves if leaf.alternatives]
        if not kept:
            return None
        alternatives = dict.fromkeys(alternative for leaf in kept for alternative in leaf.alternatives)
        return Slot("|".join(dict.fromkeys(leaf.text for leaf in kept)), tuple(alternatives))

    def _leaves(self, node: syntax.Node, *, negated: bool) -> Iterator[syntax.Node]:
        """The words, phrases and prefixes of a disjunction."""
        node = _unwrap(node)
        if isinstance(node, syntax.Either):
            for child in node:
                yield from self._leaves(child, negated=negated)
        elif isinstance(node, syntax.Without):
            message = (
                f"'-{node.text}:' leaves a relation out of the whole query; write it outside of OR, NOT and -"
            )
            raise fault(message, self.text, node.startchar)
        elif isinstance(node, syntax.Not):
            message = (
                "an exclusion cannot be an alternative or be excluded; write it outside of OR, NOT and -"
            )
            raise fault(message, self.text, node.startchar)
        elif isinstance(node, syntax.All):
            message = (
                "one of several terms is excluded by '-a -b' or '-(a OR b)'; all of them together cannot be"
            )
            if not negated:
                message = (
                    "OR joins single words, phrases and prefixes; put parentheses around the alternatives"
                )
            raise fault(message, self.text, node.startchar)
        else:
            yield node

    def _leaf(self, node: syntax.Node) -> _Leaf:
        scopes: tuple[Scope | None, ...] = self.scopes[node.fieldname] if node.fieldname else (None,)
        scoped = f"{node.fieldname.lower()}:" if node.fieldname else ""
        match node:
            case syntax.Phrase():
                text, alternatives = f'"{" ".join(node.text.lower().split())}"', _phrase(node.text, scopes)
            case syntax.Prefix():
                text, alternatives = f"{self._typed(node.text)}*", self._prefix(node, scopes)
            case _:
                text, alternatives = self._typed(node.text), _word(node.text, scopes)
        return _Leaf(scoped + text, tuple(alternatives))

    def _typed(self, text: str) -> str:
        """A word as typed, in lower case, without the punctuation around it, which is noted."""
        found = list(tokens(text))
        if not found:
            return text.lower()
        start, end = min(token.start for token in found), max(token.end for token in found)
        around = text[:start], _POSSESSIVE.sub("", text[end:])
        self.ignored += [part for part in around if part]
        return text[start:end].lower()

    def _prefix(self, node: syntax.Prefix, scopes: tuple[Scope | None, ...]) -> Iterator[Alternative]:
        found = list(tokens(node.text))
        pieces = [token for token in found if not token.whole]
        if not pieces:
            raise fault("'*' needs at least one letter or digit before it", self.text, node.startchar)
        if found[-1].width == len(pieces):
            return (Prefix(found[-1].word, scope=scope) for scope in scopes)
        if pieces[-1].end - pieces[0].start == sum(piece.end - piece.start for piece in pieces):
            return _phrase(node.text, scopes)  # unspaced script: whatever follows, the phrase is there
        raise fault("a prefix is one word; put quotes around several", self.text, node.startchar)


def _word(text: str, scopes: tuple[Scope | None, ...]) -> Iterator[Alternative]:
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


def _phrase(text: str, scopes: tuple[Scope | None, ...]) -> Iterator[Alternative]:
    """A quoted phrase. Quotes make stop words count, so that films called "It" can be found."""
    pieces = [token for token in tokens(text) if not token.whole]
    if len(pieces) == 1 and pieces[0].searchable:
        return (Term(pieces[0].stem, scope=scope) for scope in scopes)
    return _consecutive(pieces, scopes)


def _consecutive(pieces: list[Token], scopes: tuple[Scope | None, ...]) -> Iterator[Alternative]:
    stems = tuple(piece.stem for piece in pieces)
    return (Phrase(stems, scope=scope) for scope in scopes if stems)


def _reason(dropped: list[str]) -> str:
    """Why the dropped terms do not count, and how to insist on one."""
    if not dropped:
        return ""
    return (
        f": not searched are {', '.join(dict.fromkeys(dropped))} (stop words, or no words at all); "
        "a stop word in quotes is searched all the same"
    )


def _check_left_out(reader: _Reader, schema: Schema) -> None:
    """Raises QueryError if nothing is left that a keyword could be in."""
    gone = schema.evolution.removed_relations
    for relation, place in reader.without.items():
        name = schema.relations[relation].name
        for slot in reader.slots:
            if all(
                each.scope is not None and each.scope.relation in reader.without for each in slot.alternatives
            ):
                message = f"nothing can match: {slot.text!r} is looked for in what is left out"
                raise fault(message, reader.text, place)
        if len(reader.without) + len(gone - reader.without.keys()) == len(schema.relations):
            raise fault(f"nothing can match: with {name!r} every relation is left out", reader.text, place)


def _check(reader: _Reader, text: str) -> None:
    slots, exclusions, dropped = reader.slots, reader.exclusions, reader.dropped
    if not slots:
        if exclusions or reader.without:
            raise QueryError(f"the query {text!r} only excludes; add a keyword to look for{_reason(dropped)}")
        if dropped:
            raise QueryError(f"the query {text!r} has nothing left to look for{_reason(dropped)}")
        raise QueryError("the query is empty; type at least one keyword")
    if len(slots) > MAX_SLOTS:
        raise QueryError(f"a query may have {MAX_SLOTS} keywords at most; this one has {len(slots)}")
    for slot in slots:
        if any(slot.same(exclusion) for exclusion in exclusions):
            raise QueryError(f"nothing can match: {slot.text!r} is both looked for and excluded")


class Part(NamedTuple):
    """One group of keywords in the text of a query, and the place of the semicolon next to it."""

    start: int
    end: int
    semicolon: int

    def alone(self, text: str) -> str:
        """The text with blanks in place of the other parts, so that offsets stay."""
        return " " * self.start + text[self.start : self.end] + " " * (len(text) - self.end)


def parts(text: str) -> list[Part]:
    """The parts between semicolons; one if there is none. Raises QueryError."""
    cuts = list(_semicolons(text))
    if not cuts:
        return [Part(0, len(text), -1)]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(text)]
    found = [Part(*place) for place in zip(starts, ends, [cuts[0], *cuts], strict=True)]
    for part in found:
        if not text[part.start : part.end].strip():
            raise missing(part, text)
    return found


def missing(part: Part, text: str, reason: str = "") -> QueryError:
    """The error for a part without keywords."""
    side = "after" if part.semicolon < part.start else "before"
    return fault(f"there is no keyword {side} this ';'{reason}", text, part.semicolon)


def _semicolons(text: str) -> Iterator[int]:
    quoted, opened = False, 0
    for place, character in enumerate(text):
        if character in syntax.QUOTES:
            quoted = not quoted
        elif quoted:
            continue
        elif character in "()":
            opened += 1 if character == "(" else -1
        elif character == ";":
            if opened > 0:
                message = "';' says that all keywords before it come first; it cannot stand in parentheses"
                raise fault(message, text, place)
            yield place
