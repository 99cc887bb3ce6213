"""S-MSO formulas by brute force, and those of window expressions (window paper, Definition 4, Lemma 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain, combinations
from typing import TypeAlias

from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.automata.regular import Pair, WindowExpression
from skws_windows.automata.smso import (
    BEGIN,
    END,
    Conjunction,
    Formula,
    Member,
    Negation,
    Precedes,
    Satisfies,
    SomePosition,
    SomeSet,
    all_of,
    any_of,
    at_most,
    implies,
)
from skws_windows.guards.alphabet import Alphabet, StreamRecord, holds

Assignment: TypeAlias = Mapping[str, int | frozenset[int]]


def every_position(variable: str, formula: Formula) -> Formula:
    return Negation(SomePosition(variable, Negation(formula)))


def satisfied(
    formula: Formula, word: Sequence[StreamRecord], assignment: Assignment, k: int, alphabet: Alphabet
) -> bool:
    """True if a word satisfies a formula under an assignment of its free variables, by brute force."""
    match formula:
        case Satisfies(guard, position):
            index = position_of(assignment, position)
            return holds(guard, word[index - k : index + 1], alphabet)
        case Precedes(first, second):
            return position_of(assignment, first) < position_of(assignment, second)
        case Member(positions, position):
            return position_of(assignment, position) in positions_of(assignment, positions)
        case Negation(inner):
            return not satisfied(inner, word, assignment, k, alphabet)
        case Conjunction(left, right):
            return all(satisfied(part, word, assignment, k, alphabet) for part in (left, right))
    values: Iterable[int | frozenset[int]] = range(k, len(word))
    if isinstance(formula, SomeSet):
        values = _subsets(range(k, len(word)))
    inner, name = formula.formula, formula.variable
    return any(satisfied(inner, word, {**assignment, name: value}, k, alphabet) for value in values)


def position_of(assignment: Assignment, name: str) -> int:
    value = assignment[name]
    assert isinstance(value, int)
    return value


def positions_of(assignment: Assignment, name: str) -> frozenset[int]:
    value = assignment[name]
    assert isinstance(value, frozenset)
    return value


def _subsets(positions: Sequence[int]) -> Iterable[frozenset[int]]:
    sizes = range(len(positions) + 1)
    return map(frozenset, chain.from_iterable(combinations(positions, size) for size in sizes))


def formula_of(expression: WindowExpression) -> Formula:
    """A formula of the guarded fragment with the same windows, with ``b`` and ``e`` free (Lemma 6).

    Limits, selection and keys are omitted.
    """
    return Conjunction(at_most(BEGIN, END), any_of(_pair(pair) for pair in expression.pairs))


def _pair(pair: Pair) -> Formula:
    before = _run(pair.before, "D", Precedes("x", BEGIN), Precedes("y", BEGIN), Precedes("z", BEGIN))
    if pair.before.accepts_identity:
        # No position before b: the words of length k.
        nothing = Negation(SomePosition("x", Precedes("x", BEGIN)))
        before = any_of([nothing, before])
    inside = [Conjunction(at_most(BEGIN, name), at_most(name, END)) for name in ("x", "y", "z")]
    return Conjunction(before, _run(pair.window, "E", *inside))


def _run(automaton: LookbackAutomaton, name: str, x_in: Formula, y_in: Formula, z_in: Formula) -> Formula:
    """A formula that holds if the automaton has an accepting run over the positions of a nonempty range.

    ``x_in``, ``y_in`` and ``z_in`` say that a position is in the range. The
    sets hold the positions after which the run is in each state.
    """
    states = range(automaton.states)
    sets = [f"{name}{state}" for state in states]
    no_earlier = Negation(SomePosition("z", Conjunction(z_in, Precedes("z", "x"))))
    no_later = Negation(SomePosition("z", Conjunction(z_in, Precedes("x", "z"))))
    between = SomePosition("z", Conjunction(z_in, Conjunction(Precedes("x", "z"), Precedes("z", "y"))))
    next_to = Conjunction(Precedes("x", "y"), Negation(between))
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
        return Precedes(BEGIN, BEGIN)
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
    disjoint = [Negation(Conjunction(Member(a, "x"), Member(b, "x"))) for a, b in pairs]
    return all_of([one, *disjoint])
