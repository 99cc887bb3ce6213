"""Operators of the paper's meshes: sources, and left-deep joins above them (S-KWS paper, Section 3.3).

A join's left input is the output buffer of the operator below it, its right
input that of a source. Operators with equal prefixes share all below them,
except in a forest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mesh.composite import Key, Members, key_getter
from mesh.operator import Operator
from mesh.paper.buffer import Buffer
from mesh.paper.demand import Demand
from schema.graph import Edge


class Slot(NamedTuple):
    """What a join adds to the operator below: a node with ``keywords``, by an edge from member ``node``.

    ``branch`` tells the trees of a forest apart; it is 0 in a mesh.
    """

    node: int
    edge: int
    keywords: int
    branch: int = 0


class Producer:
    """What has an output: a source or a join. ``awake`` are the running joins above it, by their slot.

    ``complete``: its output are results, of the candidate network ``network``
    (set with the first); above it is only the output operator.
    """

    __slots__ = ("awake", "complete", "network", "out", "parents")

    def __init__(self, complete: bool) -> None:
        self.complete = complete
        self.out = Buffer()
        self.parents: dict[Slot, JoinOperator] = {}
        self.awake: dict[Slot, JoinOperator] = {}
        self.network: Operator | None = None

    def above(self) -> Iterator[JoinOperator]:
        """All joins that have this operator or one above it on their left, lower ones first."""
        for parent in tuple(self.parents.values()):
            yield parent
            yield from parent.above()


class Source(Producer):
    """The live tuples of one node of the expanded schema. ``fed`` are the joins whose right input it is.

    ``probing`` are those of them that run.
    """

    __slots__ = ("fed", "keywords", "probing", "relation")

    def __init__(self, relation: int, keywords: int, complete: bool) -> None:
        super().__init__(complete)
        self.relation = relation
        self.keywords = keywords
        self.fed: dict[JoinOperator, None] = {}
        self.probing: dict[JoinOperator, None] = {}


class JoinOperator(Producer):
    """Joins the output of ``left`` with tuples of ``right``. ``stopped``: the last arrival before sleep."""

    __slots__ = ("_left_key", "_right_key", "_sides", "demand", "edge", "left", "right", "slot", "stopped")

    def __init__(self, left: Producer, right: Source, slot: Slot, edge: Edge, complete: bool) -> None:
        super().__init__(complete)
        self.left = left
        self.right = right
        self.slot = slot
        self.edge = edge
        self.demand = Demand(wanted=complete)
        self.stopped = 0
        self._left_key = key_getter(edge.source_columns)
        self._right_key = key_getter(edge.target_columns)
        self._sides = (
            left.out.index(slot.node, edge.source_columns),
            right.out.index(0, edge.target_columns),
        )

    def matches_of_left(self, members: Members) -> dict[Members, int]:
        """The right tuples that a composite tuple of the left input joins, with their arrivals."""
        return self._bucket(1, self._left_key(members[self.slot.node].row))

    def matches_of_right(self, members: Members) -> dict[Members, int]:
        """The composite tuples of the left input that a right tuple joins, with their arrivals."""
        return self._bucket(0, self._right_key(members[0].row))

    def _bucket(self, side: int, key: Key) -> dict[Members, int]:
        return self._sides[side].get(key, {}) if key is not None else {}

    def link(self) -> None:
        """Make the operators below know of this one."""
        self.left.parents[self.slot] = self
        self.right.fed[self] = None

    def unlink(self) -> None:
        self.left.parents.pop(self.slot, None)
        self.right.fed.pop(self, None)
        self.rest()

    def run(self) -> None:
        """Take part in the processing of arrivals."""
        self.left.awake[self.slot] = self
        self.right.probing[self] = None

    def rest(self) -> None:
        self.left.awake.pop(self.slot, None)
        self.right.probing.pop(self, None)

    @property
    def running(self) -> bool:
        return self in self.right.probing

    @property
    def linked(self) -> bool:
        """False once the operator has been taken out of the mesh."""
        return self in self.right.fed
