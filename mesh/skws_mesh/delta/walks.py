"""Walks over live tuples, outward from some of them: all paths of joins that begin at a tuple.

As in delta joins for view maintenance, new tuples are joined with indexes of
the existing ones, which queries share.

Every leaf of a result has a word that no other node has. So for any two leaves, a
query asks for a word of one together with a word of the other, and the walk
between them has no more joins than the largest network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges, write
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.delta.neighbours import CHUNK_TUPLES, Neighbours, Partners
from skws_mesh.delta.words import CarriedWords
from skws_schema.budgets import check
from skws_schema.model import Schema

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Walks:
    """Walks of one length, a row each, in order of the tuples at which they begin, then of their first joins.

    ``owner`` is the position of that tuple among the requested ones, ``branch`` the number of the first join.
    ``ends`` are the slots of the last tuples; all tuples are alive from ``start`` to ``end``. Each walk
    extends a ``row`` of the walks ``prefixes``, which have one join fewer, by an ``edge``.
    """

    owner: Ints
    branch: Ints
    ends: Ints
    start: Ints
    end: Ints
    row: Ints
    edge: Ints
    prefixes: Walks | None

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, rows: Ints) -> Walks:
        columns = (self.owner, self.branch, self.ends, self.start, self.end, self.row, self.edge)
        owner, branch, ends, start, end, row, edge = (column.take(rows) for column in columns)
        return Walks(owner, branch, ends, start, end, row, edge, self.prefixes)

    def paths(self, rows: Ints) -> tuple[list[Ints], list[Ints]]:
        """The slots of the tuples on some walks, from the first one, and the edges between, as columns."""
        members, edges, walks = [self.ends.take(rows)], list[Ints](), self
        while walks.prefixes is not None:
            edges.append(walks.edge.take(rows))
            rows, walks = walks.row.take(rows), walks.prefixes
            members.append(walks.ends.take(rows))
        return members[::-1], edges[::-1]


class Targets:
    """Tuples to which walks lead, at most ``most`` joins away; walks to no target are not extended.

    ``joins``: by slot, the fewest joins to a target; more than ``most`` if none is so near.
    """

    def __init__(self, neighbours: Neighbours, slots: Ints, live: int, most: int) -> None:
        self.joins = np.full(live, most + 1, dtype=np.int64)
        self.joins[slots] = 0
        parts = [(NOTHING, NOTHING, NOTHING), *neighbours.in_parts(slots)]
        position, edge, sources = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(sources, kind="stable")
        self._sources, self._edges = sources.take(order), edge.take(order) ^ 1
        self._targets = slots.take(position.take(order))
        frontier = distinct(self._sources)
        for joins in range(1, most + 1):
            frontier = frontier[self.joins.take(frontier) > joins]
            self.joins[frontier] = joins
            if joins < most:
                is_next = np.zeros(live, dtype=bool)
                for _, _, partners in neighbours.in_parts(frontier):
                    is_next[partners] = True
                frontier = np.flatnonzero(is_next)

    def last_joins(self, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """The joins from tuples to targets, in order of tuples, as (position in ``ends``, edge, target)."""
        first = np.searchsorted(self._sources, ends)
        counts = np.searchsorted(self._sources, ends, side="right") - first
        rows = ranges(first, counts)
        position = np.repeat(np.arange(len(ends), dtype=np.int64), counts)
        return position, self._edges.take(rows), self._targets.take(rows)


class Walker:
    """Makes walks over live tuples."""

    def __init__(self, live: LiveTuples, neighbours: Neighbours) -> None:
        self._live = live
        self._neighbours = neighbours

    def start(self, slots: Ints) -> Walks:
        """Start walks, without a join, from the tuples that are ever alive."""
        tuples = self._live.tuples
        start, end = tuples.start.take(slots), tuples.end.take(slots)
        alive = np.flatnonzero(start < end)
        blank = np.full(len(alive), _NONE, dtype=np.int64)
        return Walks(alive, blank, slots.take(alive), start.take(alive), end.take(alive), blank, blank, None)

    def extend(
        self, walks: Walks, *, earlier: bool, accepts: Callable[[Ints, Ints], Flags] | None = None
    ) -> Walks:
        """Extend the walks by one join.

        ``earlier``: only over tuples in lower slots than the first one, so that a path is found
        only from the last of its tuples. ``accepts`` flags the walks to keep, by their owners and ends.
        """
        if accepts is None:
            row, edge, slots = self._neighbours.of(walks.ends)
            check()
            return self._extend(walks, row, edge, slots, earlier=earlier)
        parts = [(NOTHING, NOTHING, NOTHING)]
        for row, edge, slots in self._neighbours.in_parts(walks.ends):
            indices = np.flatnonzero(accepts(walks.owner.take(row), slots))
            parts.append((row.take(indices), edge.take(indices), slots.take(indices)))
        return self._extend(walks, *map(np.concatenate, zip(*parts, strict=True)), earlier=earlier)

    def extend_to(self, targets: Targets, walks: Walks) -> Walks:
        """Extend the walks by a last join, to targets."""
        return self._extend(walks, *targets.last_joins(walks.ends), earlier=False)

    def _extend(self, walks: Walks, row: Ints, edge: Ints, slots: Ints, *, earlier: bool) -> Walks:
        """The walks at ``row``, extended by edges; without those that are never alive or repeat a tuple."""
        tuples = self._live.tuples
        start = np.maximum(walks.start.take(row), tuples.start.take(slots))
        end = np.minimum(walks.end.take(row), tuples.end.take(slots))
        alive = start < end
        rows, prefix = row, walks
        while prefix.prefixes is not None:
            alive &= prefix.ends.take(rows) != slots
            rows, prefix = prefix.row.take(rows), prefix.prefixes
        first = prefix.ends.take(rows)
        alive &= slots < first if earlier else slots != first
        indices = np.flatnonzero(alive)
        row = row.take(indices)
        return Walks(
            walks.owner.take(row),
            walks.branch.take(row) if walks.prefixes is not None else np.arange(len(row), dtype=np.int64),
            slots.take(indices),
            start.take(indices),
            end.take(indices),
            row,
            edge.take(indices),
            walks,
        )


_MOST_ROWS: Final = 1 << 19  # walks that are made together


class NeighbouringWords:
    """For each live tuple, a signature (``CarriedWords``) of at least the words of tuples one join away.

    They are a semi-join from the far end. The last join of a walk, which would make most of all walks, is
    tried only if it may lead to a word that a query asks for.
    """

    def __init__(self, words: CarriedWords, neighbours: Neighbours) -> None:
        self._words = words
        self._neighbours = neighbours
        self._size = 0
        self._signatures: Ints = NOTHING

    def extend(self, live: int) -> None:
        """Add new tuples, up to slot ``live``."""
        if live <= self._size:
            return
        self._signatures = write(self._signatures, self._size, np.zeros(live - self._size, dtype=np.int64))
        self._size = live
        for near, far in self._neighbours.extend(live):
            self._add_pairs(near, far)

    def renew(self, slots: Ints) -> None:
        """Update the neighbours of tuples that have new words."""
        for begin in range(0, len(slots), CHUNK_TUPLES):
            chunk = slots[begin : begin + CHUNK_TUPLES]
            position, _, far = self._neighbours.of(chunk)
            self._add_pairs(chunk.take(position), far)

    def _add_pairs(self, near: Ints, far: Ints) -> None:
        """Add the words of neighbours, given as pairs, to each other."""
        np.bitwise_or.at(self._signatures, far, self._words.signatures(near))
        np.bitwise_or.at(self._signatures, near, self._words.signatures(far))

    def of(self, slots: Ints) -> Ints:
        """The signature of each tuple."""
        return self._signatures.take(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones are dropped."""
        remaining = np.flatnonzero(slots[: self._size] >= 0)
        self._signatures[: len(remaining)] = self._signatures[remaining]
        self._size = len(remaining)
        self._neighbours.remap(slots)


class AskedWalks:
    """Walks from some tuples at a time, by length: level n has the walks of n joins."""

    def __init__(self, live: LiveTuples, schema: Schema, words: CarriedWords, partners: Partners) -> None:
        self.neighbours = Neighbours(live, schema)
        self.walker = Walker(live, self.neighbours)
        self._words = words
        self._partners = partners
        self._neighbour_words = NeighbouringWords(words, self.neighbours)

    def extend(self, live: int) -> None:
        """Add new tuples, up to slot ``live``."""
        self._neighbour_words.extend(live)

    def renew(self, slots: Ints) -> None:
        """Update the neighbours of tuples that have new words."""
        self._neighbour_words.renew(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones are dropped."""
        self._neighbour_words.remap(slots)

    def levels(self, owners: Ints, width: int, *, earlier: bool) -> Iterator[list[Walks]]:
        """The levels of walks from ``owners``, some of them at a time, for networks of up to ``width`` nodes.

        They include all walks to a tuple of a result. ``earlier``: as in ``Walker.extend``; if False, all
        tuples must have been added.
        """
        at_once, first = 512, 0
        while first < len(owners):
            chunk = owners[first : first + at_once]
            self.extend(int(chunk[-1]) + 1)
            levels = self._levels(chunk, width, earlier=earlier)
            if levels is None:
                at_once = max(1, at_once // 4)
                continue
            first += len(chunk)
            rows = sum(map(len, levels))
            at_once = min(4 * at_once, 4096, max(1, _MOST_ROWS // 2 * len(chunk) // max(1, rows)))
            yield levels

    def leaves(self, levels: list[Walks]) -> list[Walks]:
        """The walks that may lead to a leaf of a result."""
        partners = np.zeros(int(levels[0].owner.max(initial=-1)) + 1, dtype=np.int64)
        signatures = []  # by number of joins: the partners of all words within that distance, by owner
        for walks in levels:
            np.bitwise_or.at(partners, walks.owner, self._partners.signatures(walks.ends))
            signatures.append(partners.copy())
        leaves = levels[:1]
        for walks, targets in zip(levels[1:], reversed(signatures[:-1]), strict=True):
            valid = self._end_filter(targets)(walks.owner, walks.ends)
            leaves.append(walks if valid.all() else walks.take(np.flatnonzero(valid)))
        return leaves

    def _levels(self, owners: Ints, width: int, *, earlier: bool) -> list[Walks] | None:
        """The levels, or None if there are too many walks to be made together.

        Most walks of the two greatest lengths are left out; they would be most of all walks.
        """
        starts = self.walker.start(owners)
        levels, rows, last = [starts], len(owners), width - 1
        partners = np.zeros(len(owners), dtype=np.int64)
        partners[starts.owner] = self._partners.signatures(starts.ends)
        for joins in range(1, width):
            walks, accepts = levels[-1], None
            if joins == last:
                if joins > 1:
                    walks = walks.take(
                        np.flatnonzero(self._neighbour_words.of(walks.ends) & partners.take(walks.owner))
                    )
                accepts = self._end_filter(partners)
            elif joins == last - 1 and joins > 1:
                signatures = partners.copy()
                np.bitwise_or.at(signatures, levels[1].owner, self._partners.signatures(levels[1].ends))
                accepts = self._end_filter(signatures, partners)
                walks = walks.take(np.flatnonzero(signatures.take(walks.owner)))
            levels.append(self.walker.extend(walks, earlier=earlier, accepts=accepts))
            rows += len(levels[-1])
            if rows > _MOST_ROWS and len(owners) > 1:
                return None
        return levels

    def _end_filter(
        self, end_signatures: Ints, next_signatures: Ints | None = None
    ) -> Callable[[Ints, Ints], Flags]:
        """A filter of walks by the words of their ends, or of tuples next to them, as signatures by owner."""

        def is_kept(owner: Ints, ends: Ints) -> Flags:
            common = self._words.signatures(ends) & end_signatures.take(owner)
            if next_signatures is not None:
                common |= self._neighbour_words.of(ends) & next_signatures.take(owner)
            flags: Flags = common != 0
            return flags

        return is_kept
