"""The keyword bitmaps of live tuples for each query, as a sparse matrix.

Most tuples carry no keyword of most queries. A missing entry is 0, the bitmap
of free tuples. Entries are sorted by (slot, query).

A query sleeps while some of its keywords are in no live tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges
from skws_mesh.columnar.store import Table

QUERY_BITS = 20  # queries that a mesh can have over time: about a million
_QUERY = (1 << QUERY_BITS) - 1


@dataclass(frozen=True, slots=True)
class KeywordBitmaps:
    """Keyword bitmaps of tuples (by slot, or by position in a batch) for queries, sorted by both."""

    tuple: Ints
    query: Ints
    bitmap: Ints

    def __len__(self) -> int:
        return len(self.tuple)

    def take(self, rows: Flags | Ints) -> KeywordBitmaps:
        return KeywordBitmaps(self.tuple[rows], self.query[rows], self.bitmap[rows])

    def offset_by(self, first: int) -> KeywordBitmaps:
        """The bitmaps with ``first`` added to the tuples' numbers."""
        return KeywordBitmaps(self.tuple + first, self.query, self.bitmap)

    @classmethod
    def concat(cls, parts: Sequence[KeywordBitmaps]) -> KeywordBitmaps:
        """The bitmaps of one or more parts, in the order of the parts."""
        columns = ((part.tuple, part.query, part.bitmap) for part in parts)
        return cls(*map(np.concatenate, zip(*columns, strict=True)))

    @classmethod
    def none(cls) -> KeywordBitmaps:
        return cls(NOTHING, NOTHING, NOTHING)


class LiveBitmaps:
    """The bitmaps of live tuples by slot and query. Appending is linear in the number of new bitmaps."""

    def __init__(self) -> None:
        self._table = Table((NOTHING, NOTHING))  # slot and query in one integer, sorted; and the bitmap
        # By slot, with space for more: True if the tuple has a bitmap.
        self._has_bitmap: Flags = np.empty(0, dtype=bool)

    def __len__(self) -> int:
        return self._table.size

    @property
    def _codes(self) -> Ints:
        return self._table.columns()[0]

    @property
    def _bitmaps(self) -> Ints:
        return self._table.columns()[1]

    def append(self, new: KeywordBitmaps, slots: int) -> None:
        """Add bitmaps of new tuples; ``slots`` is the number of slots in use."""
        self._table.append((_code(new.tuple, new.query), new.bitmap))
        self._has_bitmap = flags_for(slots, self._has_bitmap)
        self._has_bitmap[new.tuple] = True

    def insert(self, new: KeywordBitmaps, slots: int) -> None:
        """Add bitmaps of any tuples for new queries."""
        codes = _code(new.tuple, new.query)
        positions = np.searchsorted(self._codes, codes)
        self._set(
            np.insert(self._codes, positions, codes), np.insert(self._bitmaps, positions, new.bitmap), slots
        )

    def of(self, query: Ints, slots: Ints) -> Ints:
        """The bitmap of each tuple for the query at its position; 0 if it has none."""
        bitmaps = np.zeros(len(slots), dtype=np.int64)
        # Free tuples that arrived later may have no flags yet.
        self._has_bitmap = flags_for(int(slots.max(initial=-1)) + 1, self._has_bitmap)
        indices = np.flatnonzero(self._has_bitmap.take(slots))
        if len(indices):
            codes = _code(slots[indices], query[indices])
            positions = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
            matches = self._codes[positions] == codes
            bitmaps[indices[matches]] = self._bitmaps[positions[matches]]
        return bitmaps

    def bitmaps_of(self, slots: Ints) -> tuple[Ints, KeywordBitmaps]:
        """All bitmaps of each tuple, with the tuple's position in ``slots``."""
        first = np.searchsorted(self._codes, _code(slots, 0))
        counts = np.searchsorted(self._codes, _code(slots + 1, 0)) - first
        indices = ranges(first, counts)
        position = np.repeat(np.arange(len(slots), dtype=np.int64), counts)
        return position, KeywordBitmaps(
            slots[position], self._codes[indices] & _QUERY, self._bitmaps[indices]
        )

    def all(self) -> KeywordBitmaps:
        return KeywordBitmaps(self._codes >> QUERY_BITS, self._codes & _QUERY, self._bitmaps)

    def forget(self, query: int) -> int:
        """Drop the bitmaps for a query; returns their number."""
        count, remaining = len(self), self._codes & _QUERY != query
        self._set(self._codes[remaining], self._bitmaps[remaining], len(self._has_bitmap))
        return count - len(self)

    def remap(self, slots: Ints) -> None:
        """Renumber tuples. The new slots keep their order; tuples with negative numbers are dropped."""
        new_slots = slots[self._codes >> QUERY_BITS]
        alive: Flags = new_slots >= 0
        query = self._codes[alive] & _QUERY
        slot_count = int(slots.max(initial=-1)) + 1
        self._set(new_slots[alive] << QUERY_BITS | query, self._bitmaps[alive], slot_count)

    def _set(self, codes: Ints, bitmaps: Ints, slots: int) -> None:
        self._table.open((codes, bitmaps), len(codes))
        self._has_bitmap = np.zeros(slots, dtype=bool)
        self._has_bitmap[codes >> QUERY_BITS] = True


def flags_for(slots: int, flags: Flags) -> Flags:
    """The flags by slot, extended to at least ``slots`` slots; new flags are False."""
    if len(flags) >= slots:
        return flags
    return np.concatenate([flags, np.zeros(2 * slots - len(flags), dtype=bool)])


def distinct_pairs(slots: Ints, query: Ints) -> tuple[Ints, Ints]:
    """Each (slot, query) pair once."""
    codes = distinct(_code(slots, query))
    return codes >> QUERY_BITS, codes & _QUERY


def _code(slots: Ints, query: Ints | int) -> Ints:
    return slots << QUERY_BITS | query


class WakeStates:
    """For each query, the keywords that live tuples carry and whether it is awake.

    A sleeping query has no partials, and catches up with the live tuples when it
    wakes (S-KWS paper, Section 4.1, for the whole mesh of a query instead of each
    operator). ``all_keywords``: the keywords that must be present to wake a query.
    Tuples with the bitmap ``excluded`` take no part.
    """

    def __init__(self, all_keywords: int, excluded: int) -> None:
        self._all_keywords = all_keywords
        self._excluded = excluded
        self._keywords: Ints = np.zeros(1, dtype=np.int64)
        self._awake: Flags = np.zeros(1, dtype=bool)

    def enrol(self, query: int) -> None:
        """Add a query, which is asleep."""
        if query >= len(self._awake):
            growth = query + 1
            self._awake = np.concatenate([self._awake, np.zeros(growth, dtype=bool)])
            self._keywords = np.concatenate([self._keywords, np.zeros(growth, dtype=np.int64)])

    def forget(self, query: int) -> None:
        """Put a removed query to sleep."""
        self._awake[query], self._keywords[query] = False, 0

    def keywords(self, query: int) -> int:
        """The keywords of a query that live tuples carry; dead tuples may count until they are purged."""
        return int(self._keywords[query])

    def is_awake(self, queries: Ints) -> Flags:
        """True for each query that is awake."""
        return self._awake[queries]

    def wake(self, bitmaps: KeywordBitmaps) -> Flags:
        """Wake the queries for which tuples with these bitmaps suffice; returns a flag by query."""
        self._add_keywords(bitmaps)
        newly_awake: Flags = (self._keywords == self._all_keywords) & ~self._awake
        self._awake |= newly_awake
        return newly_awake

    def reset(self, bitmaps: KeywordBitmaps) -> bool:
        """Set the bitmaps of all live tuples; True if a query falls asleep."""
        self._keywords[:] = 0
        self._add_keywords(bitmaps)
        sleepers = self._awake & (self._keywords != self._all_keywords)
        self._awake &= ~sleepers
        return bool(sleepers.any())

    def _add_keywords(self, bitmaps: KeywordBitmaps) -> None:
        included = bitmaps.bitmap != self._excluded
        np.bitwise_or.at(self._keywords, bitmaps.query[included], bitmaps.bitmap[included])
