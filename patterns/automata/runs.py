"""Run trees by their definition (PCEA paper, Section 3): what evaluation must agree with.

Every tree is built, so this is for small streams: for tests, and to show a
user how a result came about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from patterns.automata.pcea import PCEA, State, Transition
from schema.model import Row

Valuation: TypeAlias = dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class RunTree:
    """A node (q, i, L) of a run tree with the trees below it; positions grow towards the root."""

    state: State
    position: int
    labels: frozenset[str]
    children: tuple[RunTree, ...] = ()

    def nodes(self) -> Iterator[RunTree]:
        yield self
        for child in self.children:
            yield from child.nodes()

    def valuation(self) -> Valuation:
        """The positions that each label marks."""
        marked: dict[str, set[int]] = {}
        for node in self.nodes():
            for label in node.labels:
                marked.setdefault(label, set()).add(node.position)
        return {label: frozenset(positions) for label, positions in marked.items()}

    def is_simple(self) -> bool:
        """No position is marked twice with the same label."""
        marks = [(node.position, label) for node in self.nodes() for label in node.labels]
        return len(set(marks)) == len(marks)


def runs_at(pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int) -> Iterator[RunTree]:
    """All run trees whose root reads the tuple at a position. ``stream``: (relation, row) by position."""
    for transition in pcea.transitions:
        yield from _by(pcea, stream, position, transition)


def accepting_runs(pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int) -> list[RunTree]:
    """The run trees that accept at a position."""
    return [run for run in runs_at(pcea, stream, position) if run.state in pcea.final]


def _by(
    pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int, transition: Transition
) -> Iterator[RunTree]:
    relation, row = stream[position]
    if not transition.unary.holds(relation, row):
        return
    below = []
    for source in transition.sources:
        wanted = source.equality.right_key(row)
        below.append(
            [
                run
                for earlier in range(position)
                if wanted is not None and source.equality.left_key(*stream[earlier]) == wanted
                for run in runs_at(pcea, stream, earlier)
                if run.state == source.state
            ]
        )
    for children in product(*below):
        yield RunTree(transition.target, position, transition.labels, children)
