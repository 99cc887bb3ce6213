"""Symbolic monadic second-order logic, S-MSO (window paper, Definitions 4 and 6).

Positions run over [k, |w| - 1]. In a formula that defines windows, the free
variables ``b`` and ``e`` are a window's first and last position, and every
quantifier ranges over positions up to e. In this guarded fragment the records
up to e decide whether a window ends there. ``smso_automata`` turns formulas
into window expressions (Lemma 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from skws_windows.guards import guard as g

BEGIN: Final = "b"
END: Final = "e"


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
    formula: Formula


@dataclass(frozen=True, slots=True)
class Conjunction:
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class SomePosition:
    variable: str
    formula: Formula


@dataclass(frozen=True, slots=True)
class SomeSet:
    variable: str
    formula: Formula


Formula: TypeAlias = Satisfies | Before | Member | Negation | Conjunction | SomePosition | SomeSet


def either(left: Formula, right: Formula) -> Formula:
    return Negation(Conjunction(Negation(left), Negation(right)))


def implies(left: Formula, right: Formula) -> Formula:
    return Negation(Conjunction(left, Negation(right)))


def all_of(formulas: Iterable[Formula]) -> Formula:
    """The conjunction of one formula or more."""
    return _joined(list(formulas), Conjunction)


def any_of(formulas: Iterable[Formula]) -> Formula:
    """The disjunction of one formula or more."""
    return _joined(list(formulas), either)


def _joined(formulas: list[Formula], join: Callable[[Formula, Formula], Formula]) -> Formula:
    """All of them joined in halves, so that a long list is not deep."""
    if len(formulas) == 1:
        return formulas[0]
    middle = len(formulas) // 2
    return join(_joined(formulas[:middle], join), _joined(formulas[middle:], join))


def every_position(variable: str, formula: Formula) -> Formula:
    return Negation(SomePosition(variable, Negation(formula)))


def at_most(first: str, second: str) -> Formula:
    """X <= y."""
    return Negation(Before(second, first))


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
