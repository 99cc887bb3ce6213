"""Walks over live tuples, outward from some of them: all paths of joins that begin at a tuple.

As the delta joins of view maintenance: what is new is joined with indexes of
what is there, which no query keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skws_mesh.columnar.columns import Ints, ranges
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
        return Walks(
            self.owner.take(chosen),
            self.members.T.take(chosen, axis=1).T,
            self.edges.T.take(chosen, axis=1).T,
            self.start.take(chosen),
            self.end.take(chosen),
        )


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
            slots.take(alive)[None].T,
            np.empty((0, len(alive)), dtype=np.int64).T,
            start.take(alive),
            end.take(alive),
        )

    def further(
        self, walks: Walks, *, earlier: bool, to: Callable[[Ints, Ints], Ints] | None = None
    ) -> Walks:
        """The walks with one join more.

        ``earlier``: over tuples in lower slots than the one they begin at, so that a path is found
        from the last of its tuples alone. ``to`` gives the places of the walks to keep, by their
        owners and ends.
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
        first, *others = walks.members.T
        of = row.take(position)
        kept = np.flatnonzero(slots < first.take(of) if earlier else slots != first.take(of))
        position, slots = position.take(kept), slots.take(kept)
        if to is not None:
            kept = to(walks.owner.take(row.take(position)), slots)
            position, slots = position.take(kept), slots.take(kept)
        row, edge = row.take(position), edge.take(position)
        start = np.maximum(walks.start.take(row), tuples.start.take(slots))
        end = np.minimum(walks.end.take(row), tuples.end.take(slots))
        alive = start < end
        for member in others:
            alive &= member.take(row) != slots
        order = np.flatnonzero(alive)
        order = order.take(np.argsort(row.take(order), kind="stable"))
        row, slots = row.take(order), slots.take(order)
        return Walks(
            walks.owner.take(row),
            np.vstack([walks.members.T.take(row, axis=1), slots]).T,
            np.vstack([walks.edges.T.take(row, axis=1), edge.take(order)]).T,
            start.take(order),
            end.take(order),
        )
