"""Automata over a finite alphabet, whose letters are the numbered minterms of guards.

There may be exponentially many subsets, so every construction of a deterministic
automaton takes a budget, in table entries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from skws_schema.memory import StepBudget
from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.guards import guard as g


@dataclass(frozen=True, slots=True)
class Finite:
    """A complete deterministic automaton: ``table[state][letter]`` is the next state."""

    initial: int
    table: tuple[tuple[int, ...], ...]
    final: frozenset[int]

    @property
    def letters(self) -> int:
        return len(self.table[0])

    def complement(self) -> Finite:
        return Finite(self.initial, self.table, frozenset(range(len(self.table))) - self.final)

    def product(self, other: Finite, both: Callable[[bool, bool], bool], budget: StepBudget) -> Finite:
        """The minimal product; a pair is final where ``both`` is true of its two states."""

        def step(pair: tuple[int, int], letter: int) -> tuple[int, int]:
            return self.table[pair[0]][letter], other.table[pair[1]][letter]

        def final(pair: tuple[int, int]) -> bool:
            return both(pair[0] in self.final, pair[1] in other.final)

        return explored((self.initial, other.initial), step, final, self.letters, budget).minimised(budget)

    def minimised(self, budget: StepBudget) -> Finite:
        """The minimal automaton of the language (Moore), with states in breadth-first order.

        Raises OverBudgetError.
        """
        classes = [int(state in self.final) for state in range(len(self.table))]
        count = len(set(classes))
        while True:
            budget.spend(len(self.table) * self.letters)
            signatures: dict[tuple[int, ...], int] = {}
            finer = [
                signatures.setdefault((classes[state], *(classes[q] for q in row)), len(signatures))
                for state, row in enumerate(self.table)
            ]
            if len(signatures) == count:
                break
            classes, count = finer, len(signatures)
        representative = {cls: state for state, cls in reversed(list(enumerate(classes)))}

        def step(cls: int, letter: int) -> int:
            return classes[self.table[representative[cls]][letter]]

        initial = classes[self.initial]
        return explored(initial, step, lambda c: representative[c] in self.final, self.letters, budget)


@dataclass(frozen=True, slots=True)
class Branching:
    """A nondeterministic automaton: ``table[state][letter]`` are the next states."""

    initial: int
    table: tuple[tuple[tuple[int, ...], ...], ...]
    final: frozenset[int]

    @classmethod
    def of(cls, given: Finite) -> Branching:
        """A deterministic automaton as a nondeterministic one."""
        return cls(given.initial, tuple(tuple((q,) for q in row) for row in given.table), given.final)


State = TypeVar("State", bound=Hashable)


def explored(
    initial: State,
    step: Callable[[State, int], State],
    final: Callable[[State], bool],
    letters: int,
    budget: StepBudget,
) -> Finite:
    """The reachable part of the automaton that ``step`` defines. Raises OverBudgetError."""
    numbers = {initial: 0}
    order, rows = [initial], []
    for state in order:
        budget.spend(letters)
        row = []
        for letter in range(letters):
            target = step(state, letter)
            if target not in numbers:
                numbers[target] = len(numbers)
                order.append(target)
            row.append(numbers[target])
        rows.append(tuple(row))
    return Finite(0, tuple(rows), frozenset(numbers[s] for s in order if final(s)))


def finite(
    given: LookbackAutomaton,
    guards: Sequence[g.Guard],
    letters: Sequence[tuple[bool, ...]],
    budget: StepBudget,
) -> Finite:
    """An automaton over letters, each the truth values of ``guards``; deterministic and minimal.

    Raises OverBudgetError.
    """
    table = branching(given, guards, letters).table

    def step(subset: frozenset[int], letter: int) -> frozenset[int]:
        return frozenset(q for p in subset for q in table[p][letter])

    start = frozenset([given.initial])
    found = explored(start, step, lambda s: bool(s & given.final), len(letters), budget)
    return found.minimised(budget)


def branching(
    given: LookbackAutomaton, guards: Sequence[g.Guard], letters: Sequence[tuple[bool, ...]]
) -> Branching:
    """An automaton over letters, with the states it is given with."""
    place = {guard: i for i, guard in enumerate(guards)}
    arcs = [[(place[guard], q) for guard, q in given.outgoing.get(p, ())] for p in range(given.states)]
    table = (tuple(tuple(q for at, q in own if signs[at]) for signs in letters) for own in arcs)
    return Branching(given.initial, tuple(table), given.final)
