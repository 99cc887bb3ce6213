"""Walks over live tuples, outward from some of them: all paths of joins that begin at a tuple.

As the delta joins of view maintenance: what is new is joined with indexes of
what is there, which no query keeps for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skws_mesh.columnar.columns import Flags, Ints, ranges
from skws_mesh.columnar.live import LiveTuples
from skws_schema.graph import edges_from
from skws_schema.memory import check
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class Walks:
    """Walks of one length, a row each, in order of the tuples at which they begin.

    ``owner`` is the position of that tuple among those asked for. ``members`` are the slots of
    its tuples, the beginning first; ``edges`` lead from each of them to the next. ``start``, ``end``:
    when all of them are alive.
    """

    owner: Ints
    members: Ints
    edges: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def ends(self) -> Ints:
        """The last tuple of each walk."""
        last: Ints = self.members[:, -1]
        return last

    @property
    def length(self) -> int:
        """The number of joins."""
        joins: int = self.edges.shape[1]
        return joins

    def taken(self, chosen: Ints) -> Walks:
        columns = (self.owner, self.members, self.edges, self.start, self.end)
        return Walks(*(column.take(chosen, axis=0) for column in columns))


class Walker:
    """Makes walks over live tuples, by the joins of a schema."""

    def __init__(self, live: LiveTuples, schema: Schema) -> None:
        leaving = edges_from(schema)
        self._live = live
        self._edges = np.array([edge.id for some in leaving for edge in some], dtype=np.int64)
        self._degree = np.array([len(some) for some in leaving], dtype=np.int64)
        self._first_edge = np.cumsum(self._degree) - self._degree

    def begun(self, slots: Ints) -> Walks:
        """The walks without a join, of tuples that ever live."""
        tuples = self._live.tuples
        start, end = tuples.start.take(slots), tuples.end.take(slots)
        alive = np.flatnonzero(start < end)
        return Walks(
            alive,
            slots.take(alive)[:, None],
            np.empty((len(alive), 0), dtype=np.int64),
            start.take(alive),
            end.take(alive),
        )

    def further(self, walks: Walks, *, earlier: bool, to: Flags | None = None) -> Walks:
        """The walks with one join more.

        ``earlier``: over tuples in lower slots than the one they begin at, so that a path is found
        from the last of its tuples alone. ``to``: the tuples, by slot, at which they may end.
        """
        tuples, ends = self._live.tuples, walks.ends
        relation = tuples.relation.take(ends)
        counts = self._degree.take(relation)
        row = np.repeat(np.arange(len(walks), dtype=np.int64), counts)
        edge = self._edges.take(ranges(self._first_edge.take(relation), counts))
        known, hashes = self._live.wanted(edge, ends.take(row))
        if not known.all():
            row, edge = row[known], edge[known]
        position, slots = self._live.probe(hashes)
        check()
        if to is not None:
            some = np.flatnonzero(to.take(slots))
            position, slots = position.take(some), slots.take(some)
        row, edge = row.take(position), edge.take(position)
        kept = slots < walks.members[:, 0].take(row) if earlier else np.ones(len(slots), dtype=bool)
        start = np.maximum(walks.start.take(row), tuples.start.take(slots))
        end = np.minimum(walks.end.take(row), tuples.end.take(slots))
        kept &= start < end
        members = walks.members.take(row, axis=0)
        for node in range(members.shape[1]):
            kept &= members[:, node] != slots
        order = np.flatnonzero(kept)
        order = order.take(np.argsort(row.take(order), kind="stable"))
        row, slots = row.take(order), slots.take(order)
        return Walks(
            walks.owner.take(row),
            np.column_stack([members.take(order, axis=0), slots]),
            np.column_stack([walks.edges.take(row, axis=0), edge.take(order)]),
            start.take(order),
            end.take(order),
        )
