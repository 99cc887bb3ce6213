"""k-lookback symbolic automata, k-SLA (window paper, Definition 2).

A run on a word of length n >= k has n - k + 1 states, one before each position
from k on and one at the end; so the words of length k are accepted exactly if
the initial state is final.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from skws_windows.guards import guard as g

Transition: TypeAlias = tuple[int, g.Guard, int]


@dataclass(frozen=True)
class LookbackAutomaton:
    """States are 0 to ``states`` - 1; between two there is at most one transition, none with bottom."""

    k: int
    states: int
    initial: int
    final: frozenset[int]
    transitions: tuple[Transition, ...]

    def __post_init__(self) -> None:
        ends = {s for p, _, q in self.transitions for s in (p, q)} | self.final | {self.initial}
        if not ends <= set(range(self.states)):
            raise ValueError(f"states must be 0 to {self.states - 1}")
        if len({(p, q) for p, _, q in self.transitions}) < len(self.transitions):
            raise ValueError("two transitions between the same states")
        if any(g.lookback(guard) > self.k for guard in self.guards):
            raise ValueError(f"a guard looks back more than {self.k} records")

    @cached_property
    def guards(self) -> tuple[g.Guard, ...]:
        """The distinct guards, in order of first use."""
        return tuple(dict.fromkeys(guard for _, guard, _ in self.transitions))

    @cached_property
    def outgoing(self) -> dict[int, list[tuple[g.Guard, int]]]:
        """The transitions of each state that has any."""
        found: dict[int, list[tuple[g.Guard, int]]] = defaultdict(list)
        for p, guard, q in self.transitions:
            found[p].append((guard, q))
        return dict(found)

    @property
    def accepts_identity(self) -> bool:
        """Whether the words of length k are accepted."""
        return self.initial in self.final


def automaton(
    k: int, states: int, initial: int, final: Iterable[int], transitions: Iterable[Transition]
) -> LookbackAutomaton:
    """An automaton from transitions; parallel ones are merged and those with bottom are dropped."""
    together: dict[tuple[int, int], list[g.Guard]] = defaultdict(list)
    for p, guard, q in transitions:
        together[p, q].append(guard)
    joined = ((p, g.disjunction(guards), q) for (p, q), guards in together.items())
    kept = tuple(sorted((t for t in joined if t[1] != g.BOTTOM), key=lambda t: (t[0], t[2])))
    return LookbackAutomaton(k, states, initial, frozenset(final), kept)
