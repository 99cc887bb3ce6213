"""Parallelized complex event automata (PCEA paper, Section 3).

A transition reads one tuple, marks it with labels, and gathers one finished
run from each of its source states; until then these runs advance in parallel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from skws_patterns.automata.predicates import Equality, Unary

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
            raise ValueError("a transition occurs twice")
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
        """The relations that some transition reads."""
        return frozenset(transition.unary.relation for transition in self.transitions)

    @property
    def size(self) -> int:
        """States, and for each transition its sources and labels: |P| of the paper."""
        return len(self.states) + sum(len(t.sources) + len(t.labels) for t in self.transitions)

    def trimmed(self) -> PCEA:
        """The same without transitions and final states that are in no accepting run; takes linear time."""
        reached, fired = _reachable(self.transitions)
        final = self.final & reached
        kept = _useful([t for t, fires in zip(self.transitions, fired, strict=True) if fires], final)
        return PCEA(tuple(kept), final)


def _reachable(transitions: Sequence[Transition]) -> tuple[set[State], list[bool]]:
    """The states that some run reaches, and for each transition whether all of its sources are such."""
    missing = [len(transition.sources) for transition in transitions]
    waiting: defaultdict[State, list[int]] = defaultdict(list)
    for number, transition in enumerate(transitions):
        for source in transition.sources:
            waiting[source.state].append(number)
    reached: set[State] = set()
    ready = [number for number, count in enumerate(missing) if not count]
    for number in ready:
        target = transitions[number].target
        if target not in reached:
            reached.add(target)
            for later in waiting[target]:
                missing[later] -= 1
                if not missing[later]:
                    ready.append(later)
    return reached, [not count for count in missing]


def _useful(transitions: Sequence[Transition], final: Iterable[State]) -> list[Transition]:
    """The transitions to states whose runs are part of accepting ones."""
    into: defaultdict[State, list[Transition]] = defaultdict(list)
    for transition in transitions:
        into[transition.target].append(transition)
    needed = set(final)
    pending = list(needed)
    while pending:
        for transition in into[pending.pop()]:
            fresh = {source.state for source in transition.sources} - needed
            needed |= fresh
            pending += fresh
    return [transition for transition in transitions if transition.target in needed]
