"""Walks over live tuples, outward from some of them: all paths of joins that begin at a tuple.

As the delta joins of view maintenance: what is new is joined with indexes of
what is there, which no query keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.delta.neighbours import Neighbours
from skws_schema.memory import check

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Walks:
    """Walks of one length, a row each, in order of the tuples at which they begin, then of their first joins.

    ``owner`` is the position of that tuple among those asked for, ``branch`` the number of the first join.
    ``ends`` are the slots of the last tuples; ``start``, ``end``: when all tuples are alive. Each walk goes
    on from a ``row`` of the walks ``before``, which have one join less, by an ``edge``.
    """

    owner: Ints
    branch: Ints
    ends: Ints
    start: Ints
    end: Ints
    row: Ints
    edge: Ints
    before: Walks | None

    def __len__(self) -> int:
        return len(self.owner)

    def taken(self, chosen: Ints) -> Walks:
        columns = (self.owner, self.branch, self.ends, self.start, self.end, self.row, self.edge)
        owner, branch, ends, start, end, row, edge = (column.take(chosen) for column in columns)
        return Walks(owner, branch, ends, start, end, row, edge, self.before)

    def paths(self, chosen: Ints) -> tuple[list[Ints], list[Ints]]:
        """The slots of some walks' tuples, the beginning first, and the edges between them: columns."""
        members, edges, walks = [self.ends.take(chosen)], list[Ints](), self
        while walks.before is not None:
            edges.append(walks.edge.take(chosen))
            chosen, walks = walks.row.take(chosen), walks.before
            members.append(walks.ends.take(chosen))
        return members[::-1], edges[::-1]


class Walker:
    """Makes walks over live tuples."""

    def __init__(self, live: LiveTuples, neighbours: Neighbours) -> None:
        self._live = live
        self._neighbours = neighbours

    def begun(self, slots: Ints) -> Walks:
        """The walks without a join, of tuples that ever live."""
        tuples = self._live.tuples
        start, end = tuples.start.take(slots), tuples.end.take(slots)
        alive = np.flatnonzero(start < end)
        none = np.full(len(alive), _NONE, dtype=np.int64)
        return Walks(alive, none, slots.take(alive), start.take(alive), end.take(alive), none, none, None)

    def further(
        self, walks: Walks, *, earlier: bool, to: Callable[[Ints, Ints], Flags] | None = None
    ) -> Walks:
        """The walks with one join more.

        ``earlier``: over tuples in lower slots than the one they begin at, so that a path is found
        from the last of its tuples alone. ``to`` flags the walks to keep, by their owners and ends.
        """
        tuples = self._live.tuples
        row, edge, slots = self._neighbours.of(walks.ends)
        check()
        if to is not None:
            kept = np.flatnonzero(to(walks.owner.take(row), slots))
            row, edge, slots = row.take(kept), edge.take(kept), slots.take(kept)
        start = np.maximum(walks.start.take(row), tuples.start.take(slots))
        end = np.minimum(walks.end.take(row), tuples.end.take(slots))
        alive = start < end
        at, passed = row, walks
        while passed.before is not None:
            alive &= passed.ends.take(at) != slots
            at, passed = passed.row.take(at), passed.before
        first = passed.ends.take(at)
        alive &= slots < first if earlier else slots != first
        kept = np.flatnonzero(alive)
        row = row.take(kept)
        return Walks(
            walks.owner.take(row),
            walks.branch.take(row) if walks.before is not None else np.arange(len(row), dtype=np.int64),
            slots.take(kept),
            start.take(kept),
            end.take(kept),
            row,
            edge.take(kept),
            walks,
        )
