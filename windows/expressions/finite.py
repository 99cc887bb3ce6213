"""Automata over a finite alphabet of letters: what guards become once their minterms are numbered.

Subsets may be exponentially many, so whoever makes an automaton deterministic
has a budget, in entries of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from schema.budget import Budget
from windows.expressions import guards as g
from windows.expressions.automaton import LookbackAutomaton


@dataclass(frozen=True, slots=True)
class Finite:
    """A complete deterministic automaton: ``table[state][letter]`` is the next state."""

    initial: int
    table: tuple[tuple[int, ...], ...]
    final: frozenset[int]

    @property
    def letters(self) -> int:
        return len(self.table[0])

    def accepts(self, word: Iterable[int]) -> bool:
        state = self.initial
        for letter in word:
            state = self.table[state][letter]
        return state in self.final

    def complement(self) -> Finite:
        return Finite(self.initial, self.table, frozenset(range(len(self.table))) - self.final)

    def product(self, other: Finite, both: Callable[[bool, bool], bool], budget: Budget) -> Finite:
        """Both run side by side; final where ``both`` says so of the two, and minimal."""

        def step(pair: tuple[int, int], letter: int) -> tuple[int, int]:
            return self.table[pair[0]][letter], other.table[pair[1]][letter]

        def final(pair: tuple[int, int]) -> bool:
            return both(pair[0] in self.final, pair[1] in other.final)

        return explored((self.initial, other.initial), step, final, self.letters, budget).minimised(budget)

    def minimised(self, budget: Budget) -> Finite:
        """The smallest automaton of the language (by Moore's partitions), states in order of reach.

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
    """An automaton that may go several ways, or none: ``table[state][letter]`` are the next states."""

    initial: int
    table: tuple[tuple[tuple[int, ...], ...], ...]
    final: frozenset[int]

    @classmethod
    def of(cls, given: Finite) -> Branching:
        """The same without a choice."""
        return cls(given.initial, tuple(tuple((q,) for q in row) for row in given.table), given.final)


State = TypeVar("State", bound=Hashable)


def explored(
    initial: State,
    step: Callable[[State, int], State],
    final: Callable[[State], bool],
    letters: int,
    budget: Budget,
) -> Finite:
    """The reachable part of an automaton that is given by its steps. Raises OverBudgetError."""
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
    budget: Budget,
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
    """An automaton over letters, as large as it is given."""
    place = {guard: i for i, guard in enumerate(guards)}
    arcs = [[(place[guard], q) for guard, q in given.outgoing.get(p, ())] for p in range(given.states)]
    table = (tuple(tuple(q for at, q in own if signs[at]) for signs in letters) for own in arcs)
    return Branching(given.initial, tuple(table), given.final)
