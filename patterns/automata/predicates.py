"""Predicates of automata: unary ones on a tuple, and equality between two tuples (PCEA paper, Section 2).

An equality predicate is a pair of partial key functions: two tuples satisfy
it if both keys are defined and equal. A key with a NULL in it is undefined,
so a NULL joins nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from schema.model import Row, Value

Columns: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[Value, ...]


class Operator(StrEnum):
    """Comparisons of an attribute with a constant."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


_COMPARE: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.GREATER: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Compared:
    """The value of a column compared with a constant; false where it is NULL."""

    column: int
    operator: Operator
    value: Value

    def holds(self, row: Row) -> bool:
        found = row[self.column]
        return found is not None and _COMPARE[self.operator](found, self.value)

    def __str__(self) -> str:
        return f"[{self.column}] {self.operator} {self.value!r}"


@dataclass(frozen=True, slots=True)
class Same:
    """Several columns of one tuple hold the same value, not NULL."""

    columns: Columns

    def holds(self, row: Row) -> bool:
        first = row[self.columns[0]]
        return first is not None and all(row[column] == first for column in self.columns)

    def __str__(self) -> str:
        return " = ".join(f"[{column}]" for column in self.columns)


@dataclass(frozen=True, slots=True)
class Contains:
    """The row contains a text, as ``matches`` decides; told apart by its ``text`` and ``columns``."""

    text: str
    columns: Columns
    matches: Callable[[Row], bool]

    def holds(self, row: Row) -> bool:
        return self.matches(row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contains) and (self.text, self.columns) == (other.text, other.columns)

    def __hash__(self) -> int:
        return hash((self.text, self.columns))

    def __str__(self) -> str:
        return f"~ {self.text!r}"


Test: TypeAlias = Compared | Same | Contains


@dataclass(frozen=True, slots=True)
class Unary:
    """Tuples of one relation that pass all tests; decided in time linear in the tuple."""

    relation: int
    tests: tuple[Test, ...] = ()

    def holds(self, relation: int, row: Row) -> bool:
        return relation == self.relation and all(test.holds(row) for test in self.tests)

    def excludes(self, other: Unary) -> bool:
        """True only if no tuple can satisfy both: other relations, or an attribute equal to two constants."""
        if self.relation != other.relation:
            return True
        fixed = _fixed(self)
        return any(column in fixed and fixed[column] != value for column, value in _fixed(other).items())


def _fixed(unary: Unary) -> dict[int, Value]:
    return {
        test.column: test.value
        for test in unary.tests
        if isinstance(test, Compared) and test.operator is Operator.EQUAL
    }


@dataclass(frozen=True, slots=True)
class Equality:
    """An equality predicate between an earlier tuple and a later one.

    ``left``: for each relation of the earlier tuple the columns that make its
    key (of others no key is defined); ``right``: the columns of the later one.
    """

    left: tuple[tuple[int, Columns], ...]
    right: Columns

    def __post_init__(self) -> None:
        if len({relation for relation, _ in self.left}) != len(self.left):
            raise ValueError("an equality predicate has one key function for each relation")
        if any(len(columns) != len(self.right) for _, columns in self.left):
            raise ValueError("both keys of an equality predicate have as many columns")

    def left_key(self, relation: int, row: Row) -> Key | None:
        for known, columns in self.left:
            if known == relation:
                return key(columns, row)
        return None

    def right_key(self, row: Row) -> Key | None:
        return key(self.right, row)


def key(columns: Columns, row: Row) -> Key | None:
    """The values of some columns; None if one of them is NULL."""
    values = tuple(row[column] for column in columns)
    return None if None in values else values
