"""Symbolic monadic second-order logic, S-MSO (window paper, Definitions 4 and 6).

Positions run over [k, |w| - 1]. In a formula that defines windows, the free
variables ``b`` and ``e`` are a window's first and last position, and every
quantifier ranges over positions up to e: the guarded fragment, in which the
records that have come so far decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations
from typing import Final, TypeAlias

from windows.expressions import guards as g
from windows.expressions.alphabet import Alphabet, StreamRecord
from windows.expressions.evaluate import holds

BEGIN: Final = "b"
END: Final = "e"
Assignment: TypeAlias = Mapping[str, int | frozenset[int]]


@dataclass(frozen=True, slots=True)
class Satisfies:
    """[guard](x): the records up to position x satisfy a guard."""

    guard: g.Guard
    position: str


@dataclass(frozen=True, slots=True)
class Before:
    """x < y."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Member:
    """X(x): a position is in a set."""

    set: str
    position: str


@dataclass(frozen=True, slots=True)
class Negation:
    """Not."""

    formula: Formula


@dataclass(frozen=True, slots=True)
class Conjunction:
    """And."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class SomePosition:
    """There is a position."""

    variable: str
    formula: Formula


@dataclass(frozen=True, slots=True)
class SomeSet:
    """There is a set of positions."""

    variable: str
    formula: Formula


Formula: TypeAlias = Satisfies | Before | Member | Negation | Conjunction | SomePosition | SomeSet


def either(left: Formula, right: Formula) -> Formula:
    return Negation(Conjunction(Negation(left), Negation(right)))


def implies(left: Formula, right: Formula) -> Formula:
    return Negation(Conjunction(left, Negation(right)))


def all_of(formulas: Iterable[Formula]) -> Formula:
    """The conjunction of one formula or more."""
    return reduce(Conjunction, formulas)


def any_of(formulas: Iterable[Formula]) -> Formula:
    """The disjunction of one formula or more."""
    return reduce(either, formulas)


def every_position(variable: str, formula: Formula) -> Formula:
    return Negation(SomePosition(variable, Negation(formula)))


def at_most(first: str, second: str) -> Formula:
    """X <= y."""
    return Negation(Before(second, first))


def satisfied(
    formula: Formula, word: Sequence[StreamRecord], assignment: Assignment, k: int, alphabet: Alphabet
) -> bool:
    """Whether a word satisfies a formula under an assignment of its free variables: by trying everything."""
    match formula:
        case Satisfies(guard, position):
            place = _place(assignment, position)
            return holds(guard, word[place - k : place + 1], alphabet)
        case Before(first, second):
            return _place(assignment, first) < _place(assignment, second)
        case Member(positions, position):
            return _place(assignment, position) in _places(assignment, positions)
        case Negation(inner):
            return not satisfied(inner, word, assignment, k, alphabet)
        case Conjunction(left, right):
            return all(satisfied(part, word, assignment, k, alphabet) for part in (left, right))
    values: Iterable[int | frozenset[int]] = range(k, len(word))
    if isinstance(formula, SomeSet):
        values = _subsets(range(k, len(word)))
    inner, name = formula.formula, formula.variable
    return any(satisfied(inner, word, {**assignment, name: value}, k, alphabet) for value in values)


def _place(assignment: Assignment, name: str) -> int:
    value = assignment[name]
    assert isinstance(value, int)  # noqa: S101 - small letters are positions
    return value


def _places(assignment: Assignment, name: str) -> frozenset[int]:
    value = assignment[name]
    assert isinstance(value, frozenset)  # noqa: S101 - capital letters are sets
    return value


def _subsets(places: Sequence[int]) -> Iterable[frozenset[int]]:
    sizes = range(len(places) + 1)
    return map(frozenset, chain.from_iterable(combinations(places, size) for size in sizes))


def guards_of(formula: Formula) -> list[g.Guard]:
    """The distinct guards of a formula, in the order written."""
    match formula:
        case Satisfies(guard, _):
            return [guard]
        case Conjunction(left, right):
            return list(dict.fromkeys(guards_of(left) + guards_of(right)))
        case Negation(inner) | SomePosition(_, inner) | SomeSet(_, inner):
            return guards_of(inner)
    return []
