"""Matches of a pattern by definition: all ways to choose and label tuples of short streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from skws_patterns.language.expression import (
    AllOf,
    Alternation,
    Expression,
    OneTuple,
    Star,
    TupleLetter,
    alternation,
    conjunction,
    sequence,
    star,
)
from skws_patterns.language.pattern_parser import Agreement, Filter, Keyword, Pattern, Reference
from skws_schema.model import COMPARED, Attribute, AttributeType, Op, Relation, Row, Schema, Value

# A set of (position, variable): one match.
Match: TypeAlias = frozenset[tuple[int, str]]

ATTRIBUTES: Final = ("x", "y")
COLUMNS: Final = (*ATTRIBUTES, "memo")
"""The columns of the rows; only ``tests.fuzz`` has the last one, a text."""
SCHEMA: Final = Schema(
    "patterns",
    tuple(Relation(name, tuple(Attribute(a, AttributeType.INTEGER) for a in ATTRIBUTES)) for name in "ABC"),
    (),
)


def contains(text: str, relation: int, columns: tuple[int, ...]) -> Callable[[Row], bool]:
    """A simple definition of keyword search: the text is part of a searched value."""
    return lambda row: any(text in str(row[column]) for column in columns)


def matches(
    pattern: Pattern,
    stream: Sequence[tuple[int, Row]],
    first: int,
    column: Callable[[str], int] = COLUMNS.index,
) -> set[Match]:
    """The matches with the last tuple and no tuple before ``first``.

    ``column``: returns the column of an attribute.
    """
    window = range(max(first, 0), len(stream))
    candidates = _matches(pattern.expression, stream, window, pattern)
    return {
        match
        for match in candidates
        if any(position == len(stream) - 1 for position, _ in match)
        and _agrees(pattern, match, stream, column)
    }


def _matches(
    expression: Expression, stream: Sequence[tuple[int, Row]], window: range, pattern: Pattern
) -> set[Match]:
    match expression:
        case OneTuple(letter):
            return {
                frozenset({(i, letter.variable)})
                for i in window
                if stream[i][0] == letter.relation and _passes(pattern, letter, stream[i][1])
            }
        case Alternation(parts):
            return set().union(*(_matches(part, stream, window, pattern) for part in parts))
        case Star(body):
            iterations = _matches(body, stream, window, pattern)
            repetitions: set[Match] = {frozenset()}
            longer: set[Match] = repetitions
            while longer:
                longer = {a | b for a in longer for b in iterations if _precedes(a, b)} - repetitions
                repetitions = repetitions | longer
            return repetitions
        case AllOf(parts):
            combined: set[Match] = {frozenset()}
            for part in parts:
                part_matches = _matches(part, stream, window, pattern)
                combined = {
                    a | b for a in combined for b in part_matches if not _positions(a) & _positions(b)
                }
            return combined
        case _:
            sequences: set[Match] = {frozenset()}
            for part in expression.parts:
                part_matches = _matches(part, stream, window, pattern)
                sequences = {a | b for a in sequences for b in part_matches if _precedes(a, b)}
            return sequences


def _positions(match: Match) -> set[int]:
    return {position for position, _ in match}


def _precedes(first: Match, second: Match) -> bool:
    return not first or not second or max(_positions(first)) < min(_positions(second))


def _passes(pattern: Pattern, letter: TupleLetter, row: Row) -> bool:
    for condition in pattern.conditions:
        if isinstance(condition, Filter) and condition.reference.variable == letter.variable:
            value: Any = row[COLUMNS.index(condition.reference.attribute)]
            if value is None or not COMPARED[condition.operator](value, condition.value):
                return False
        if (
            isinstance(condition, Keyword)
            and condition.variable == letter.variable
            and not contains(condition.text, letter.relation, (COLUMNS.index("memo"),))(row)
        ):
            return False
    return True


def _agrees(
    pattern: Pattern, match: Match, stream: Sequence[tuple[int, Row]], column: Callable[[str], int]
) -> bool:
    classes: list[set[tuple[str, str]]] = []
    for condition in pattern.conditions:
        if isinstance(condition, Agreement):
            merged = {(r.variable, r.attribute) for r in condition.references}
            for overlapping in [c for c in classes if c & merged]:
                classes.remove(overlapping)
                merged |= overlapping
            classes.append(merged)
    for members in classes:
        values: list[Value] = [
            stream[position][1][column(attribute)]
            for position, variable in match
            for name, attribute in members
            if name == variable
        ]
        if len(values) > 1 and (None in values or len(set(values)) > 1):
            return False
    return True


@st.composite
def patterns(draw: st.DrawFn, max_letters: int = 4) -> Pattern:
    """Random patterns, sometimes with shared variables, and with conditions between any of them."""
    relations: dict[str, int] = {}

    def expression(letters: int) -> Expression:
        if letters == 1:
            # Mostly new variables with different relations: otherwise nothing is ever in parallel.
            is_reused = draw(st.integers(0, 4)) == 0 and relations
            variable = draw(st.sampled_from(sorted(relations))) if is_reused else "abcd"[len(relations)]
            default = draw(st.one_of(st.just(len(relations) % 3), st.integers(0, 2)))
            relation = relations.setdefault(variable, default)
            return OneTuple(TupleLetter(relation, variable))
        size = draw(st.integers(1, letters - 1))
        left, right = expression(size), expression(letters - size)
        combine = draw(st.sampled_from([sequence, sequence, conjunction, conjunction, alternation]))
        combined = combine(left, right)
        return sequence(combined, star(combined)) if draw(st.integers(0, 5)) == 0 else combined

    body = expression(draw(st.integers(1, max_letters)))
    variable, attribute = st.sampled_from(sorted(relations)), st.sampled_from(ATTRIBUTES)
    reference = st.builds(Reference, variable, attribute, st.just((0, 0)))
    agreement = st.builds(Agreement, st.lists(reference, min_size=2, max_size=4).map(tuple))
    same_x = Agreement(tuple(Reference(v, "x", (0, 0)) for v in sorted(relations)))
    filters = st.builds(
        Filter,
        reference,
        st.sampled_from([Op.EQUAL, Op.DIFFERENT]),
        st.just(0),
        st.just((0, 0)),
    )
    conditions = draw(st.lists(st.one_of(agreement, st.just(same_x), filters), max_size=3))
    return Pattern("random", body, tuple(conditions))


def streams(max_tuples: int = 6) -> st.SearchStrategy[list[tuple[int, Row]]]:
    value: st.SearchStrategy[Value] = st.sampled_from([0, 0, 0, 0, 1, None])
    return st.lists(st.tuples(st.integers(0, 2), st.tuples(value, value)), max_size=max_tuples)
