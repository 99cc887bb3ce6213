"""A semi-join filter for free tuples: joins try only those next to a tuple that may complete a network.

The last node of a network carries keywords. If the node before it is free, the
free tuple needs a live neighbour with keywords, and in a window few tuples have
one. So partials do not join free tuples there. They wait for a *bridge*, a free
tuple with such a neighbour. This is a semi-join from the far end; a filter has
the join values by which a bridge can be reached. By far the most partials lack
one tuple; with bridges, they are made only if a network is about to be complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from skws_mesh.cngen import CNGen
from skws_mesh.columnar import operators
from skws_mesh.columnar.bitmaps import KeywordBitmaps, LiveBitmaps, distinct_pairs, flags_for
from skws_mesh.columnar.columns import NOTHING, Flags, Hashes, Ints, distinct, mix
from skws_mesh.columnar.hash_index import HashFilter, HashIndex, concat_pairs, in_fewer_parts
from skws_mesh.columnar.live import InsertedTuples, LeavingEdges, LiveTuples
from skws_mesh.columnar.store import Table


@dataclass(frozen=True, slots=True)
class BridgeEntries:
    """Bridges by slot, one entry for each of their join values and queries; ``hashes`` combine both."""

    slots: Ints
    hashes: Hashes


class SemiJoinFilter:
    """The bridges among the live tuples, for all queries of one shape.

    ``bitmaps`` are those of the mesh, which reports every change of the live tuples.
    """

    def __init__(self, live: LiveTuples, bitmaps: LiveBitmaps, generator: CNGen) -> None:
        self._live = live
        self._bitmaps = bitmaps
        # A leaf that has only the root's keyword is redundant.
        self._closing_keywords = generator.all & ~(1 << generator.order.root_keyword)
        self._enabled = generator.max_size >= operators.LEAST_BRIDGED and self._closing_keywords != 0
        self._leaving = LeavingEdges(generator.edges_from)
        self._closers = Table((NOTHING, NOTHING))  # slot, edge of tuples that may close a network
        self._index = HashIndex()  # join value -> row among the closers
        self._is_closer: Flags = np.zeros(0, dtype=bool)  # by slot
        self._is_bridge: Flags = np.zeros(0, dtype=bool)  # by slot: of any query
        self._filter = HashFilter()
        self._is_due = False  # the filter and the bridges must be renewed before the next tuples or queries

    def insert(self, new_tuples: InsertedTuples, bitmaps: KeywordBitmaps) -> BridgeEntries:
        """Insert new live tuples, after ``renew``; returns the new bridges, and old ones to new tuples."""
        if not self._enabled:
            return _NO_ENTRIES
        hashes = self._add_closers(bitmaps)
        pairs = self._with_queries(self._next_to_closers(new_tuples))
        if len(hashes):
            pairs = chain(pairs, self._neighbours(bitmaps))
        bridge_entries = self._add_bridges(list(pairs))
        self._index_closers(hashes)
        return bridge_entries

    def add(self, bitmaps: KeywordBitmaps) -> None:
        """Add live tuples with keywords of new queries."""
        if not self._enabled:
            return
        self.renew()
        self._index_closers(self._add_closers(bitmaps))
        self._add_bridges(list(self._neighbours(bitmaps)))

    def forget(self) -> None:
        """Drop the bridges of removed queries, before the next tuples or queries."""
        self._is_due = self._enabled

    def compact(self, slots: Ints) -> None:
        """Give tuples their new slots; those with negative ones are dropped."""
        if self._enabled:
            self._closers.renumber(slots)
            self._is_due = True

    def mark(self, flags: Flags) -> None:
        """Flag the tuples, by slot, that are next to one that may close a network."""
        for _, bridges in self._next_to(*self._closers.columns()):
            flags[bridges] = True

    def lookups(self) -> tuple[Ints, Ints]:
        """The look-ups of bridges, as (edges, tuples)."""
        source, edge = self._closers.columns()
        return edge, source

    def candidates(self, hashes: Hashes) -> Ints:
        """The positions of the hashes, of join value and query, by which a bridge may be reached."""
        return self._filter.candidates(hashes)

    def is_bridge(self, slots: Ints) -> Flags:
        """True for each tuple that is a bridge of any query."""
        self._is_bridge = flags_for(len(self._live), self._is_bridge)
        return self._is_bridge.take(slots)

    def _add_closers(self, bitmaps: KeywordBitmaps) -> Hashes:
        """Append the tuples that may close a network to the closers; returns their hashes."""
        is_closing = bitmaps.bitmap & self._closing_keywords != 0
        if not is_closing.any():
            return _NO_ENTRIES.hashes
        self._is_closer = flags_for(len(self._live), self._is_closer)
        slots = distinct(bitmaps.tuple[is_closing])
        slots = slots[~self._is_closer[slots]]
        if not len(slots):
            return _NO_ENTRIES.hashes
        self._is_closer[slots] = True
        position, edge = self._leaving.of(self._live.tuples.relation[slots])
        source = slots.take(position)
        present, hashes = self._live.probe_hashes(edge, source)
        self._closers.append((source[present], edge[present]))
        return hashes

    def _index_closers(self, hashes: Hashes) -> None:
        """Index the last closers by their hashes."""
        self._index.add(hashes, np.arange(self._closers.size - len(hashes), self._closers.size))

    def _next_to_closers(self, new_tuples: InsertedTuples) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of an older closer and a new tuple next to it, in parts."""
        for position, row in self._index.probe_in_parts(new_tuples.hashes):
            yield self._closers.columns()[0][row], new_tuples.slots[position]

    def _neighbours(self, bitmaps: KeywordBitmaps) -> Iterator[tuple[Ints, Ints]]:
        """The live tuples next to some closers, each with the query of the closer, in parts.

        Each join value is looked up once per query, however many closers have it.
        """
        indices = np.flatnonzero(bitmaps.bitmap & self._closing_keywords != 0)
        position, edge = self._leaving.of(self._live.tuples.relation.take(bitmaps.tuple.take(indices)))
        rows = indices.take(position)
        self._live.gather(edge, bitmaps.tuple.take(rows))
        present, hashes = self._live.probe_hashes(edge, bitmaps.tuple.take(rows))
        hashes, query = _distinct(hashes, bitmaps.query.take(rows[present]))
        for part_position, bridge in self._live.probe_in_parts(hashes):
            yield distinct_pairs(bridge, query.take(part_position))

    def _next_to(self, source: Ints, edge: Ints) -> Iterator[tuple[Ints, Ints]]:
        _, hashes = self._live.probe_hashes(edge, source)
        for position, bridge in self._live.probe_in_parts(hashes):
            yield source[position], bridge

    def _add_bridges(self, pairs: list[tuple[Ints, Ints]]) -> BridgeEntries:
        """Add tuples as bridges, each for a query with a closer next to the tuple."""
        if not pairs:
            return _NO_ENTRIES
        slots, query = pairs[0] if len(pairs) == 1 else distinct_pairs(*concat_pairs(pairs))
        is_free = self._bitmaps.of(query, slots) == 0
        slots, query = slots[is_free], query[is_free]
        self._is_bridge = flags_for(len(self._live), self._is_bridge)
        self._is_bridge[slots] = True
        position, hashes = self._live.entries(slots)
        hashes = mix(hashes, query[position])
        while not self._filter.has_room(len(hashes)):
            self._filter.grow()
        self._filter.add(hashes)
        return BridgeEntries(slots[position], hashes)

    def _with_queries(self, pairs: Iterable[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
        """The neighbours of closers, each with the queries of its closer; distinct within a part."""
        for closer, bridge in in_fewer_parts(pairs):
            position, bitmaps = self._bitmaps.bitmaps_of(closer)
            is_closing = bitmaps.bitmap & self._closing_keywords != 0
            yield distinct_pairs(bridge[position[is_closing]], bitmaps.query[is_closing])

    def renew(self) -> None:
        """Find the closers and the bridges among the live tuples again, if that is due.

        Call it before new tuples have bitmaps; otherwise their bridges would count as old ones.
        """
        if not self._is_due:
            return
        self._is_due = False
        self._closers, self._index, self._filter = Table((NOTHING, NOTHING)), HashIndex(), HashFilter()
        self._is_closer, self._is_bridge = np.zeros((2, len(self._live)), dtype=bool)
        bitmaps = self._bitmaps.all()
        self._index_closers(self._add_closers(bitmaps))
        self._add_bridges(list(self._neighbours(bitmaps)))


def _distinct(hashes: Hashes, query: Ints) -> tuple[Hashes, Ints]:
    """Each pair once."""
    order = np.lexsort((query, hashes))
    hashes, query = hashes.take(order), query.take(order)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (hashes[1:] != hashes[:-1]) | (query[1:] != query[:-1])
    return hashes[is_first], query[is_first]


_NO_ENTRIES = BridgeEntries(NOTHING, NOTHING.view(np.uint64))
