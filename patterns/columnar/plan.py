"""Which automata can be evaluated by columns: those whose runs have a tuple at most for each label."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from patterns.automata.pcea import PCEA, State, Transition


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """An automaton with its states in order: each after those that it gathers runs of.

    ``labels``: in the order of the columns of a run; ``marked``: those that runs of a state may have.
    """

    pcea: PCEA
    labels: tuple[str, ...]
    marked: dict[State, tuple[int, ...]]
    into: tuple[tuple[State, tuple[Transition, ...]], ...]


def column_plan(pcea: PCEA) -> ColumnPlan | None:
    """None for an automaton that repeats a state, or that can mark several tuples of a run alike."""
    into: defaultdict[State, list[Transition]] = defaultdict(list)
    for transition in pcea.transitions:
        into[transition.target].append(transition)
    before = {state: {s.state for t in found for s in t.sources} for state, found in into.items()}
    try:
        states = [*TopologicalSorter(before).static_order()]
    except CycleError:
        return None
    marked: defaultdict[State, frozenset[str]] = defaultdict(frozenset)
    for state in states:
        for transition in into[state]:
            parts = [transition.labels, *(marked[source.state] for source in transition.sources)]
            together = frozenset[str]().union(*parts)
            if len(together) != sum(map(len, parts)):
                return None
            marked[state] |= together
    labels = tuple(sorted(pcea.labels))
    columns = {s: tuple(n for n, label in enumerate(labels) if label in marked[s]) for s in states}
    return ColumnPlan(pcea, labels, columns, tuple((s, tuple(into[s])) for s in states))
