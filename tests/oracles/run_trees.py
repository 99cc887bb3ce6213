"""Run trees by their definition (PCEA paper, Section 3), the reference for evaluation and ambiguity.

Builds every tree, so it is suitable only for short streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from skws_patterns import tuple_evaluator as evaluator
from skws_patterns.pcea import PCEA, Equality, Key, State, Transition, key
from skws_schema.model import Row

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
        positions_by_label: dict[str, set[int]] = {}
        for node in self.nodes():
            for label in node.labels:
                positions_by_label.setdefault(label, set()).add(node.position)
        return {label: frozenset(positions) for label, positions in positions_by_label.items()}

    def is_simple(self) -> bool:
        """True if no position has the same label twice."""
        marks = [(node.position, label) for node in self.nodes() for label in node.labels]
        return len(set(marks)) == len(marks)


def runs_at(pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int) -> Iterator[RunTree]:
    """All run trees whose root reads the tuple at a position. ``stream``: (relation, row) by position."""
    for transition in pcea.transitions:
        yield from runs_of_transition(pcea, stream, position, transition)


def accepting_runs(pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int) -> list[RunTree]:
    """The run trees that accept at a position."""
    return [run for run in runs_at(pcea, stream, position) if run.state in pcea.final]


def runs_of_transition(
    pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int, transition: Transition
) -> Iterator[RunTree]:
    relation, row = stream[position]
    if not transition.unary.holds(relation, row):
        return
    subtrees = []
    for source in transition.sources:
        right_key = key(source.equality.right, row)
        subtrees.append(
            [
                run
                for earlier in range(position)
                if right_key is not None and left_key(source.equality, *stream[earlier]) == right_key
                for run in runs_at(pcea, stream, earlier)
                if run.state == source.state
            ]
        )
    for children in product(*subtrees):
        yield RunTree(transition.target, position, transition.labels, children)


def left_key(equality: Equality, relation: int, row: Row) -> Key | None:
    """The key of an earlier tuple; None if its relation has none, or a value is NULL."""
    columns = dict(equality.left).get(relation)
    return None if columns is None else key(columns, row)


def by_label(valuation: evaluator.Valuation) -> dict[str, frozenset[int]]:
    """The positions that each label marks."""
    positions_by_label: dict[str, frozenset[int]] = {}
    for position, labels in valuation:
        for label in labels:
            positions_by_label[label] = positions_by_label.get(label, frozenset()) | {position}
    return positions_by_label
