"""Predicates of automata: unary ones on a tuple, and equality between two tuples (PCEA paper, Section 2).

An equality predicate is a pair of partial key functions: two tuples satisfy
it if both keys are defined and equal. A key with a NULL in it is undefined,
so a NULL joins nothing. ``typed`` checks the types of constants before
predicates are built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from skws_schema.comparison import COMPARED, Op
from skws_schema.instants import instant
from skws_schema.model import Attribute, AttributeType, Row, Value

Columns: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """The value of a column compared with a constant; false where it is NULL."""

    column: int
    operator: Op
    value: Value

    def holds(self, row: Row) -> bool:
        found = row[self.column]
        return found is not None and COMPARED[self.operator](found, self.value)


@dataclass(frozen=True, slots=True)
class Same:
    """Several columns of one tuple hold the same value, not NULL."""

    columns: Columns

    def holds(self, row: Row) -> bool:
        first = row[self.columns[0]]
        return first is not None and all(row[column] == first for column in self.columns)


@dataclass(frozen=True, slots=True)
class Contains:
    """The row contains a text, as ``matches`` decides; equal if ``text`` and ``columns`` are."""

    text: str
    columns: Columns
    matches: Callable[[Row], bool]

    def holds(self, row: Row) -> bool:
        return self.matches(row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contains) and (self.text, self.columns) == (other.text, other.columns)

    def __hash__(self) -> int:
        return hash((self.text, self.columns))


Test: TypeAlias = Compared | Same | Contains


@dataclass(frozen=True, slots=True)
class Unary:
    """Tuples of one relation that pass all tests, in time linear in the tuple."""

    relation: int
    tests: tuple[Test, ...] = ()

    def holds(self, relation: int, row: Row) -> bool:
        return relation == self.relation and all(test.holds(row) for test in self.tests)

    def excludes(self, other: Unary) -> bool:
        """True only if no tuple can satisfy both: two relations, or an attribute equal to two constants."""
        if self.relation != other.relation:
            return True
        fixed = _fixed(self)
        return any(column in fixed and fixed[column] != value for column, value in _fixed(other).items())


def _fixed(unary: Unary) -> dict[int, Value]:
    return {
        test.column: test.value
        for test in unary.tests
        if isinstance(test, Compared) and test.operator is Op.EQUAL
    }


@dataclass(frozen=True, slots=True)
class Equality:
    """An equality predicate between an earlier tuple and a later one.

    ``left``: for each relation of the earlier tuple the columns that make its
    key (other relations have none); ``right``: the columns of the later one.
    """

    left: tuple[tuple[int, Columns], ...]
    right: Columns

    def __post_init__(self) -> None:
        if len({relation for relation, _ in self.left}) != len(self.left):
            raise ValueError("an equality predicate has one key function for each relation")
        if any(len(columns) != len(self.right) for _, columns in self.left):
            raise ValueError("both keys of an equality predicate have as many columns")


def key(columns: Columns, row: Row) -> Key | None:
    """The values of some columns; None if one of them is NULL."""
    values = tuple(row[column] for column in columns)
    return None if None in values else values


_WANTED: Final = {
    AttributeType.TEXT: "a quoted text",
    AttributeType.NUMBER: "a number",
    AttributeType.BOOLEAN: "true or false",
    AttributeType.TIMESTAMP: "one such as '2026-01-01T00:00:00Z'",
}


def typed(value: Value, attribute: Attribute) -> Value:
    """The value as rows hold it: time stamps in microseconds. Raises ValueError for another type."""
    family = attribute.type.family
    if family is AttributeType.TEXT and isinstance(value, str):
        return value
    if family is AttributeType.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if family is AttributeType.BOOLEAN and isinstance(value, bool):
        return value
    if family is AttributeType.TIMESTAMP and isinstance(value, str):
        return _microseconds(value, attribute)
    raise ValueError(
        f"{attribute.name} is of type {attribute.type}: expected {_WANTED[family]}, not {value!r}"
    )


def _microseconds(text: str, attribute: Attribute) -> int:
    try:
        return instant(text)
    except ValueError:
        raise ValueError(
            f"{attribute.name} is a time stamp: expected {_WANTED[attribute.type.family]}, not {text!r}"
        ) from None
