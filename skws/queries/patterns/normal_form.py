"""Patterns and conjunctive queries as select-project-join queries, for verdicts on their memory.

A pattern is a union: a query for each choice among its alternatives. The
application time is the position in the stream: ``a ; b`` is
``b.position > a.position``, and two tuples of one relation have different
positions. Each match counts once: if two choices may share a match, or one
choice finds it in two ways, each order of its letters is a separate query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, permutations, product
from typing import Final

from skws.queries.keywords.memory_guard import described_whole, ends, whole_tuples
from skws.queries.patterns.text import is_formal, text_match
from skws_bounds.names import UnknownNameError, attribute_of, promises, resolve, stream_of
from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Kind, Place, Query, Stream, Union
from skws_bounds.verdict import Verdict, check
from skws_patterns.hcq import ConjunctiveQuery, Variable, parse_conjunctive_query
from skws_patterns.hcq import Constant as Value
from skws_patterns.language.expression import (
    Alternation,
    Conjunction,
    Expression,
    Letter,
    Read,
    Sequence,
    Star,
)
from skws_patterns.language.parse import Agreement, Condition, Filter, Pattern, Reference, parse_pattern
from skws_patterns.language.resolve import Reading
from skws_patterns.language.resolve import resolve as checked
from skws_patterns.pcea import typed
from skws_schema.errors import PatternError, UsageError
from skws_schema.model import Op, Schema
from skws_windows.window import Window

POSITION: Final = "position"
MOST_CHOICES: Final = 256
MOST_UNORDERED: Final = 7
"""The most letters whose orders are enumerated."""


def pattern_query(text: str, schema: Schema, shown: tuple[str, ...] | None = None) -> Union:
    """A pattern as a union of queries that output the attributes ``shown``.

    By default these are the head of a conjunctive query, and the whole tuples
    of a pattern. Duplicates are preserved: each match counts. Raises
    PatternError, and UsageError for unknown names in ``shown``.
    """
    if is_formal(text):
        parsed = parse_conjunctive_query(text, schema)
        return Union((_conjunctive(parsed, schema, shown),), distinct=False, text=text)
    return choices_of(text, schema, shown).union


@dataclass(frozen=True, slots=True)
class Choices:
    """A pattern as a union, and its own window if it has one.

    ``letters``: those that the streams of each query read; ``readings``: the conditions on them.
    """

    union: Union
    window: Window | None
    letters: tuple[tuple[Letter, ...], ...]
    readings: Mapping[Letter, Reading]


def choices_of(text: str, schema: Schema, shown: tuple[str, ...] | None) -> Choices:
    """As ``pattern_query``, for a text in the user's language."""
    pattern = parse_pattern(text, schema)
    readings = checked(pattern, schema, text_match(schema)).readings
    choices = _disjoint(_choices(pattern.expression))
    queries = tuple(_choice(pattern, schema, c, shown) for c in choices)
    return Choices(
        Union(queries, distinct=False, text=text), pattern.window, tuple(c.letters for c in choices), readings
    )


def pattern_verdict(text: str, schema: Schema) -> Verdict:
    """Whether a pattern's matches, with their whole tuples, can be given for ever in constant memory."""
    union = pattern_query(text, schema)
    whole = tuple(
        replace(q, output=(t := whole_tuples(q.streams)), names=tuple(map(str, t))) for q in union.queries
    )
    found = check(replace(union, queries=whole))
    return replace(found, failures=tuple(described_whole(found.failures)))


def memory_lines(text: str, schema: Schema) -> list[str]:
    """The memory of a pattern without a window, in lines for users."""
    try:
        verdict = pattern_verdict(text, schema)
    except PatternError as error:
        return [f"memory, as nothing expires: not known, {error}"]
    lines = [f"memory, as nothing expires: {'bounded' if verdict.bounded else 'not bounded'}"]
    return lines + [f"  {failure.condition}: {failure.message}" for failure in verdict.failures]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Letters, and pairs of them in order, as places in ``letters``."""

    letters: tuple[Letter, ...]
    before: tuple[tuple[int, int], ...] = ()

    def beside(self, other: _Choice, *, ordered: bool) -> _Choice:
        first = len(self.letters)
        moved = tuple((a + first, b + first) for a, b in other.before)
        across = product(range(first), range(first, first + len(other.letters))) if ordered else ()
        return _Choice(self.letters + other.letters, (*self.before, *moved, *across))

    def words(self) -> Iterator[tuple[Letter, ...]]:
        """The possible orders of the letters. Raises PatternError if there are too many."""
        if len(self.letters) > MOST_UNORDERED:
            raise PatternError(
                f"alternatives of more than {MOST_UNORDERED} tuples overlap; its memory is not checked"
            )
        for order in permutations(range(len(self.letters))):
            if all(order.index(a) < order.index(b) for a, b in self.before):
                yield tuple(self.letters[i] for i in order)


def _choices(expression: Expression) -> list[_Choice]:
    match expression:
        case Read(letter):
            found = [_Choice((letter,))]
        case Alternation(parts):
            found = [c for part in sorted(parts, key=str) for c in _choices(part)]
        case Sequence(parts) | Conjunction(parts):
            ordered = isinstance(expression, Sequence)
            found = [_Choice(())]
            for part in parts:
                more = _choices(part)
                found = [a.beside(b, ordered=ordered) for a, b in product(found, more)]
        case Star():
            raise PatternError("a repetition (+) is no select-project-join, and its memory is not decided")
    return _few(found)


def _disjoint(choices: list[_Choice]) -> list[_Choice]:
    """Choices with the same matches, each in one choice and in one way."""
    spelt = [tuple(sorted(c.letters)) for c in choices]
    words: dict[tuple[Letter, ...], None] = {}
    found: list[_Choice] = []
    for choice, letters in zip(choices, spelt, strict=True):
        if spelt.count(letters) == 1 and len(set(letters)) == len(letters):
            found.append(choice)
        else:
            words |= dict.fromkeys(choice.words())
    return _few(found + [_Choice(w, tuple(combinations(range(len(w)), 2))) for w in words])


def _few(choices: list[_Choice]) -> list[_Choice]:
    if len(choices) > MOST_CHOICES:
        raise PatternError(
            f"the pattern has more than {MOST_CHOICES} alternatives; its memory is not checked"
        )
    return choices


def _choice(pattern: Pattern, schema: Schema, choice: _Choice, shown: tuple[str, ...] | None) -> Query:
    streams: list[Stream] = []
    for letter in choice.letters:
        streams.append(_stream(schema, letter.relation, letter.variable, streams))
    order = [_order(streams[a], streams[b]) for a, b in choice.before]
    ordered = {frozenset(pair) for pair in choice.before}
    apart = (
        Atom(streams[a].clock, Op.DIFFERENT, streams[b].clock)
        for a, b in combinations(range(len(streams)), 2)
        if frozenset((a, b)) not in ordered and streams[a].relation == streams[b].relation
    )
    reading = _Reading(pattern.text, schema, choice, tuple(streams))
    conditions = (atom for c in pattern.conditions for atom in reading.atoms(c))
    atoms = (*order, *apart, *conditions, *promises(schema, streams))
    return _projected(streams, atoms, _named(schema, streams, shown))


def _order(earlier: Stream, later: Stream) -> Atom:
    return Atom(later.clock, Op.GREATER, earlier.clock, f"{earlier.alias} ; {later.alias}")


def _stream(schema: Schema, relation: int, name: str, others: list[Stream]) -> Stream:
    described = schema.relations[relation]
    alias = name if name not in {s.alias for s in others} else f"{name}_{len(others) + 1}"
    if described.table:
        return stream_of(schema, described.name, alias)
    kind = Kind.FINITE if ends(described) else Kind.INFINITE
    return Stream(alias, described.name, kind, Attr(alias, POSITION, Domain.TIME))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Conditions as atoms over the tuples of one choice; a variable has any number of tuples."""

    text: str
    schema: Schema
    choice: _Choice
    streams: tuple[Stream, ...]

    def atoms(self, condition: Condition) -> Iterator[Atom]:
        if isinstance(condition, Agreement):
            places = [(attr, ref) for ref in condition.references for attr in self._attrs(ref)]
            for (one, first), (other, last) in pairwise(places):
                yield self._atom(one, Op.EQUAL, other, first.span[0], last.span[1])
        elif isinstance(condition, Filter):
            for attr in self._attrs(condition.reference):
                if attr.domain not in (Domain.TEXT, Domain.BOOLEAN) or condition.operator is Op.EQUAL:
                    value = Constant(self._typed(condition, attr), attr.domain)
                    yield self._atom(attr, condition.operator, value, *condition.span)

    def _attrs(self, reference: Reference) -> Iterator[Attr]:
        for letter, stream in zip(self.choice.letters, self.streams, strict=True):
            if letter.variable == reference.variable:
                yield attribute_of(self.schema, stream, reference.attribute)

    def _typed(self, condition: Filter, attr: Attr) -> str | int | float | bool | None:
        relation = self.schema.relation(next(s for s in self.streams if s.alias == attr.stream).relation)
        return typed(condition.value, relation.attributes[relation.columns[attr.name]])

    def _atom(self, attr: Attr, op: Op, other: Attr | Constant, start: int, end: int) -> Atom:
        return Atom(attr, op, other, self.text[start:end], Place(start, end))


def _conjunctive(query: ConjunctiveQuery, schema: Schema, shown: tuple[str, ...] | None) -> Query:
    streams: list[Stream] = []
    for atom in query.atoms:
        streams.append(_stream(schema, atom.relation, schema.relations[atom.relation].name, streams))
    first: dict[str, Attr] = {}
    atoms: list[Atom] = []
    for atom, stream in zip(query.atoms, streams, strict=True):
        attributes = schema.relations[atom.relation].attributes
        for term, attribute in zip(atom.terms, attributes, strict=True):
            attr = attribute_of(schema, stream, attribute.name)
            if isinstance(term, Value):
                atoms.append(Atom(attr, Op.EQUAL, Constant(term.value, attr.domain)))
            elif isinstance(term, Variable) and first.setdefault(term.name, attr) != attr:
                atoms.append(
                    Atom(
                        first[term.name],
                        Op.EQUAL,
                        attr,
                        f"{term.name} of {first[term.name]} and {attr}",
                    )
                )
    output = tuple(first[name] for name in query.head) if shown is None else _named(schema, streams, shown)
    return _projected(streams, (*atoms, *promises(schema, streams)), output)


def _named(schema: Schema, streams: list[Stream], shown: tuple[str, ...] | None) -> tuple[Attr, ...]:
    if shown is None:
        return whole_tuples(streams)
    try:
        return tuple(resolve(schema, streams, *_split(name)) for name in shown)
    except UnknownNameError as error:
        raise UsageError(f"--select: {error}") from None


def _split(name: str) -> tuple[str, str]:
    qualifier, _, attribute = name.rpartition(".")
    return qualifier, attribute


def _projected(streams: list[Stream], atoms: tuple[Atom, ...], output: tuple[Attr, ...]) -> Query:
    return Query(tuple(streams), atoms, output, tuple(map(str, output)))
