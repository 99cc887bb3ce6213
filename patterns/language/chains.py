"""Parts of a pattern read one tuple after the other, by a deterministic automaton over letters.

This works for every expression, conjunctions included, and never gives a
result twice, however ambiguous the expression is: states are what is left to
be read, and that depends on the word alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from patterns.language.expression import Expression, Letter, nullable
from patterns.language.progress import End, Layout, Progress, Sources, Step

# What a first letter may gather: the ways in which all that comes before can be complete.
Before: TypeAlias = Callable[[Letter], Iterable[Sources]]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part laid out: the states in which it is complete, and the last steps that lead there."""

    complete: tuple[Progress, ...]
    ends: tuple[End, ...]


def chain(layout: Layout, expression: Expression, part: Hashable, before: Before) -> Fragment:
    """Lay out an expression so that each tuple follows the one before. Raises NotExpressibleError."""
    complete: dict[Progress, None] = {}
    ends: dict[End, None] = {}
    waiting: list[Progress] = []
    seen: set[Progress] = set()
    steps: list[Step] = []

    def read(sources: Sources, letter: Letter, left: Expression) -> None:
        step = layout.step(sources, letter, part, left)
        steps.append(step)
        state = step.target
        if nullable(left):
            complete[state] = None
            ends[sources, letter] = None
        if state not in seen:
            seen.add(state)
            waiting.append(state)

    for letter, left in layout.derivatives.of(expression).items():
        for sources in before(letter):
            read(sources, letter, left)
    while waiting:
        state = waiting.pop()
        for letter, left in layout.derivatives.of(state.left).items():
            read((state,), letter, left)
    layout.settle(steps)
    return Fragment(tuple(complete), tuple(ends))
