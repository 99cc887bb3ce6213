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


_UNLIMITED: Final = 1 << 62


@dataclass(slots=True)
class _Limits:
    """``rows``: the most walks of the next length. ``tries``: joins that may still be tried for walks."""

    rows: int = _UNLIMITED
    tries: int = _UNLIMITED


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
        """As ``extend_within``, without limits."""
        longer = self.extend_within(_Limits(), walks, earlier=earlier, accepts=accepts)
        assert longer is not None  # noqa: S101 - there are no limits
        return longer

    def extend_within(
        self,
        limits: _Limits,
        walks: Walks,
        *,
        earlier: bool,
        accepts: Callable[[Ints, Ints], Flags] | None = None,
    ) -> Walks | None:
        """Extend the walks by one join; returns None beyond the limits.

        ``earlier``: only over tuples in lower slots than the first one, so that a path is found
        only from the last of its tuples. ``accepts`` flags the walks to keep, by their owners and ends.
        """
        joins, count = [(NOTHING, NOTHING, NOTHING)], 0
        for row, edge, slots in self._neighbours.in_parts(walks.ends):
            join = row, edge, slots
            if accepts is not None:
                indices = np.flatnonzero(accepts(walks.owner.take(row), slots))
                join = row.take(indices), edge.take(indices), slots.take(indices)
            joins.append(join)
            count += len(join[0])
            limits.tries -= len(row)
            if count > limits.rows or limits.tries < 0:
                return None
        return self._extend(walks, *map(np.concatenate, zip(*joins, strict=True)), earlier=earlier)

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


MOST_ROWS: Final = 1 << 19
"""The most walks that are made together."""
MOST_TRIES: Final = 1 << 25
"""The joins that are tried, in about a second, before walks that lead nowhere are looked for."""


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


class WordsInReach:
    """Signatures of the words, and of their partners, that are in reach of tuples by at most some joins.

    They cost as much as a walk over each pair of the tuples in reach, which may be far fewer than walks.
    ``slots``: the tuples at which walks begin; ``joins``: the most joins of a walk.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        words: CarriedWords,
        partners: Partners,
        slots: Ints,
        live: int,
        joins: int,
    ) -> None:
        is_near = np.zeros(live, dtype=bool)
        is_near[slots] = True
        for _ in range(joins):
            for _, _, found in neighbours.in_parts(np.flatnonzero(is_near)):
                is_near[found] = True
        near = np.flatnonzero(is_near)
        # By number of joins, then by slot.
        self._words, self._partners = np.zeros((2, joins + 1, live), dtype=np.int64)
        self._words[0, near], self._partners[0, near] = words.signatures(near), partners.signatures(near)
        for number in range(joins):
            for signatures in (self._words, self._partners):
                signatures[number + 1] = signatures[number]
            for position, _, found in neighbours.in_parts(near):
                slot = near.take(position)
                for signatures in (self._words, self._partners):
                    np.bitwise_or.at(signatures[number + 1], slot, signatures[number].take(found))

    def lead_to_leaves(self, owners: Ints, ends: Ints, joins: int) -> Flags:
        """True for each walk that may lead to a leaf of a result by at most ``joins`` more joins.

        ``owners``: the slots of the tuples at which the walks begin.
        """
        common = np.zeros(len(ends), dtype=np.int64)
        for number in range(joins + 1):
            common |= self._words[number].take(ends) & self._partners[joins - number].take(owners)
        flags: Flags = common != 0
        return flags


class AskedWalks:
    """Walks from some tuples at a time, by length: level n has the walks of n joins."""

    def __init__(self, live: LiveTuples, schema: Schema, words: CarriedWords, partners: Partners) -> None:
        self._live = live
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
        at_once, first, limits = 512, 0, _Limits(tries=MOST_TRIES)
        reach: WordsInReach | None = None
        while first < len(owners):
            chunk = owners[first : first + at_once]
            self.extend(int(chunk[-1]) + 1)
            levels = self._levels(chunk, width, limits, reach, earlier=earlier)
            if levels is None:
                if reach is None and (limits.tries < 0 or at_once == 1):
                    self.extend(int(owners[-1]) + 1)
                    reach = self._reach(owners[first:], width - 1)
                    limits.tries = _UNLIMITED
                at_once = max(1, at_once // 4)
                continue
            first += len(chunk)
            rows = sum(map(len, levels))
            at_once = min(4 * at_once, 4096, max(1, MOST_ROWS // 2 * len(chunk) // max(1, rows)))
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

    def _levels(
        self, owners: Ints, width: int, limits: _Limits, reach: WordsInReach | None, *, earlier: bool
    ) -> list[Walks] | None:
        """The levels, or None beyond the limits, or if there are too many walks to be made together.

        Most walks of the two greatest lengths are left out; they would be most of all walks. With ``reach``,
        so are shorter ones that lead nowhere.
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
            elif reach is not None:
                accepts = self._reach_filter(reach, owners, last - joins)
            limits.rows = MOST_ROWS - rows if len(owners) > 1 or reach is None else _UNLIMITED
            longer = self.walker.extend_within(limits, walks, earlier=earlier, accepts=accepts)
            if longer is None:
                return None
            levels.append(longer)
            rows += len(longer)
        return levels

    def _reach(self, owners: Ints, joins: int) -> WordsInReach:
        return WordsInReach(self.neighbours, self._words, self._partners, owners, len(self._live), joins)

    def _reach_filter(self, reach: WordsInReach, owners: Ints, joins: int) -> Callable[[Ints, Ints], Flags]:
        """A filter of walks by the words that ``joins`` more joins may reach."""
        return lambda owner, ends: reach.lead_to_leaves(owners.take(owner), ends, joins)

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
