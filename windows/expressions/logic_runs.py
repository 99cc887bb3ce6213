"""From window expressions to S-MSO formulas: runs as sets of positions (window paper, Lemma 6)."""

from __future__ import annotations

from functools import reduce

from windows.expressions.automaton import LookbackAutomaton
from windows.expressions.expression import Pair, WindowExpression
from windows.expressions.logic import (
    BEGIN,
    END,
    Before,
    Conjunction,
    Formula,
    Member,
    Negation,
    Satisfies,
    SomePosition,
    SomeSet,
    all_of,
    any_of,
    at_most,
    every_position,
    implies,
)


def formula_of(expression: WindowExpression) -> Formula:
    """A formula in the guarded fragment with the same windows; free in ``b`` and ``e``.

    Limits, selection and keys are no part of it.
    """
    return Conjunction(at_most(BEGIN, END), any_of(_pair(pair) for pair in expression.pairs))


def _pair(pair: Pair) -> Formula:
    before = _run(pair.before, "D", Before("x", BEGIN), Before("y", BEGIN), Before("z", BEGIN))
    if pair.before.accepts_identity:
        # Nothing comes before b: the words of length k.
        nothing = Negation(SomePosition("x", Before("x", BEGIN)))
        before = any_of([nothing, before])
    inside = [Conjunction(at_most(BEGIN, name), at_most(name, END)) for name in ("x", "y", "z")]
    return Conjunction(before, _run(pair.window, "E", *inside))


def _run(automaton: LookbackAutomaton, name: str, x_in: Formula, y_in: Formula, z_in: Formula) -> Formula:
    """That the automaton has an accepting run over the positions of a range, at least one.

    ``x_in``, ``y_in`` and ``z_in`` say that a position is in the range. The
    sets tell for each position the state after it.
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
