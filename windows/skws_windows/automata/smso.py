"""Symbolic monadic second-order logic, S-MSO (window paper, Definitions 4 and 6).

Positions run over [k, |w| - 1]. In a formula that defines windows, the free
variables ``b`` and ``e`` are a window's first and last position, and every
quantifier ranges over positions up to e. In this guarded fragment the records
up to e decide whether a window ends there. ``formula_of`` gives the formula of
a window expression (Lemma 6); ``smso_automata`` has the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.guards import guard as g
from skws_windows.language.expression import Pair, WindowExpression

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


def formula_of(expression: WindowExpression) -> Formula:
    """A formula of the guarded fragment with the same windows, with ``b`` and ``e`` free (Lemma 6).

    Limits, selection and keys are not part of it.
    """
    return Conjunction(at_most(BEGIN, END), any_of(_pair(pair) for pair in expression.pairs))


def _pair(pair: Pair) -> Formula:
    before = _run(pair.before, "D", Before("x", BEGIN), Before("y", BEGIN), Before("z", BEGIN))
    if pair.before.accepts_identity:
        # No position before b: the words of length k.
        nothing = Negation(SomePosition("x", Before("x", BEGIN)))
        before = any_of([nothing, before])
    inside = [Conjunction(at_most(BEGIN, name), at_most(name, END)) for name in ("x", "y", "z")]
    return Conjunction(before, _run(pair.window, "E", *inside))


def _run(automaton: LookbackAutomaton, name: str, x_in: Formula, y_in: Formula, z_in: Formula) -> Formula:
    """The formula that the automaton has an accepting run over the positions of a nonempty range.

    ``x_in``, ``y_in`` and ``z_in`` say that a position is in the range. The
    sets hold the positions after which the run is in each state.
    """
    states = range(automaton.states)
    sets = [f"{name}{state}" for state in states]
    no_earlier = Negation(SomePosition("z", Conjunction(z_in, Before("z", "x"))))
    no_later = Negation(SomePosition("z", Conjunction(z_in, Before("x", "z"))))
    between = SomePosition("z", Conjunction(z_in, Conjunction(Before("x", "z"), Before("z", "y"))))
    next_to = Conjunction(Before("x", "y"), Negation(between))
    first = [
        Conjunction(Member(sets[q], "x"), Satisfies(guard, "x"))
        for p, guard, q in automaton.transitions
        if p == automaton.initial
    ]
    step = [
        Conjunction(Member(sets[p], "x"), Conjunction(Member(sets[q], "y"), Satisfies(guard, "y")))
        for p, guard, q in automaton.transitions
    ]
    last: list[Formula] = [Member(sets[q], "x") for q in sorted(automaton.final)]
    if not (first and last):
        return Before(BEGIN, BEGIN)
    body = all_of(
        [
            SomePosition("x", x_in),
            every_position("x", implies(x_in, _exactly_one(sets))),
            every_position("x", implies(Conjunction(x_in, no_earlier), any_of(first))),
            every_position("x", implies(Conjunction(x_in, no_later), any_of(last))),
            every_position(
                "x",
                every_position("y", implies(Conjunction(Conjunction(x_in, y_in), next_to), any_of(step))),
            ),
        ]
    )
    return reduce(lambda inner, variable: SomeSet(variable, inner), sets, body)


def _exactly_one(sets: list[str]) -> Formula:
    one = any_of(Member(name, "x") for name in sets)
    pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    apart = [Negation(Conjunction(Member(a, "x"), Member(b, "x"))) for a, b in pairs]
    return all_of([one, *apart])
