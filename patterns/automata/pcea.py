"""Parallelized complex event automata (PCEA paper, Section 3).

A transition reads one tuple, marks it with labels, and gathers one finished
run from each of its source states: runs go on in parallel until then.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from patterns.automata.predicates import Equality, Unary

State: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class Source:
    """A state from which a transition takes a run, and how its last tuple compares with the one read."""

    state: State
    equality: Equality


@dataclass(frozen=True, slots=True)
class Transition:
    """(P, U, B, L, q): reads a tuple that satisfies ``unary``, marks it with ``labels``, goes to ``target``.

    ``sources`` are P together with B; none for a transition that starts a run.
    """

    sources: tuple[Source, ...]
    unary: Unary
    labels: frozenset[str]
    target: State

    def __post_init__(self) -> None:
        if not self.labels:
            raise ValueError(f"the transition to {self.target} marks no label")
        if len({source.state for source in self.sources}) != len(self.sources):
            raise ValueError(f"the transition to {self.target} has a source twice")


@dataclass(frozen=True)
class PCEA:
    """(Q, U, B, Omega, Delta, F); states, predicates and labels are those that the transitions use."""

    transitions: tuple[Transition, ...]
    final: frozenset[State]

    def __post_init__(self) -> None:
        if len(set(self.transitions)) != len(self.transitions):
            raise ValueError("a transition stands there twice")
        unreachable = self.final - {transition.target for transition in self.transitions}
        if unreachable:
            raise ValueError(f"no transition reaches the final state {next(iter(unreachable))}")

    @cached_property
    def states(self) -> frozenset[State]:
        named = {transition.target for transition in self.transitions}
        return frozenset(named | {s.state for transition in self.transitions for s in transition.sources})

    @cached_property
    def labels(self) -> frozenset[str]:
        return frozenset().union(*(transition.labels for transition in self.transitions))

    @cached_property
    def relations(self) -> frozenset[int]:
        """Relations of which some transition reads tuples."""
        return frozenset(transition.unary.relation for transition in self.transitions)

    @property
    def size(self) -> int:
        """States, and for each transition its sources and labels: |P| of the paper."""
        return len(self.states) + sum(len(t.sources) + len(t.labels) for t in self.transitions)

    def trimmed(self) -> PCEA:
        """Without transitions that are in no accepting run."""
        kept = set(_reachable(self.transitions))
        needed, grown = set(self.final), True
        while grown:
            into = {s.state for t in kept if t.target in needed for s in t.sources}
            grown = not into <= needed
            needed |= into
        return PCEA(tuple(t for t in self.transitions if t in kept and t.target in needed), self.final)


def _reachable(transitions: tuple[Transition, ...]) -> list[Transition]:
    """Transitions all of whose sources can hold a run."""
    reached: set[State] = set()
    waiting, fired = list(transitions), list[Transition]()
    while True:
        ready = [t for t in waiting if all(source.state in reached for source in t.sources)]
        if not ready:
            return fired
        fired += ready
        reached.update(t.target for t in ready)
        waiting = [t for t in waiting if t not in ready]
