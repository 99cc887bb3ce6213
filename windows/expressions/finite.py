"""Automata over a finite alphabet of letters: what guards become once their minterms are numbered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

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

    def product(self, other: Finite, both: Callable[[bool, bool], bool]) -> Finite:
        """Both run side by side; final where ``both`` says so of the two, and minimal."""

        def step(pair: tuple[int, int], letter: int) -> tuple[int, int]:
            return self.table[pair[0]][letter], other.table[pair[1]][letter]

        def final(pair: tuple[int, int]) -> bool:
            return both(pair[0] in self.final, pair[1] in other.final)

        return explored((self.initial, other.initial), step, final, self.letters).minimised()

    def minimised(self) -> Finite:
        """The smallest automaton of the language (by Moore's partitions), states in order of reach."""
        classes = [int(state in self.final) for state in range(len(self.table))]
        count = len(set(classes))
        while True:
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

        return explored(classes[self.initial], step, lambda c: representative[c] in self.final, self.letters)


State = TypeVar("State", bound=Hashable)


def explored(
    initial: State, step: Callable[[State, int], State], final: Callable[[State], bool], letters: int
) -> Finite:
    """The reachable part of an automaton that is given by its steps."""
    numbers = {initial: 0}
    order, rows = [initial], []
    for state in order:
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
    given: LookbackAutomaton, guards: Sequence[g.Guard], letters: Sequence[tuple[bool, ...]]
) -> Finite:
    """An automaton over letters, each the truth values of ``guards``; deterministic and minimal."""
    place = {guard: i for i, guard in enumerate(guards)}

    def step(subset: frozenset[int], letter: int) -> frozenset[int]:
        signs = letters[letter]
        arcs = (arc for p in subset for arc in given.outgoing.get(p, ()))
        return frozenset(q for guard, q in arcs if signs[place[guard]])

    start = frozenset([given.initial])
    return explored(start, step, lambda s: bool(s & given.final), len(letters)).minimised()
