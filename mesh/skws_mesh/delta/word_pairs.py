"""The index of queries for one or two words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Hashes, Ints, mixed, ranges
from skws_mesh.columnar.hash_index import HashFilter

_WORD = (1 << 32) - 1
_FEW = 16


class WordPairs:
    """Queries, by number, in order of their words: each stands there once from either of its words.

    An *entry* is a place in this order. Queries for one word have entries of their own.
    """

    def __init__(self) -> None:
        self._codes: Ints = NOTHING  # a word, and the other one of a query, in one integer; sorted
        self._queries: Ints = NOTHING  # by entry: query, and whether the word is its second one
        self._single: tuple[Ints, Ints] = NOTHING, NOTHING  # the word, sorted, and the query
        self._filter = HashFilter()  # most pairs of words are looked up in vain

    def __len__(self) -> int:
        """The number of queries."""
        return len(self._codes) // 2 + len(self._single[0])

    def words(self, entries: Ints) -> tuple[Ints, Ints]:
        """The word of each entry, and the other word of its query."""
        codes = self._codes.take(entries)
        return codes >> 32, codes & _WORD

    def query(self, entries: Ints) -> Ints:
        """The query of each entry."""
        return self._queries.take(entries) >> 1

    def turned(self, entries: Ints) -> Flags:
        """Which entries stand at the second word of their query."""
        turned: Flags = (self._queries.take(entries) & 1).astype(bool)
        return turned

    def add(self, numbers: Ints, first: Ints, second: Ints) -> None:
        """Add queries; ``second`` is negative where a query has one word."""
        two = second >= 0
        a, b, query = first[two], second[two], numbers[two]
        codes = np.concatenate([a << 32 | b, b << 32 | a])
        queries = np.concatenate([query << 1, query << 1 | 1])
        self._codes, self._queries = _merged(self._codes, self._queries, codes, queries)
        if not self._filter.has_room(len(codes)):
            self._filter, codes = HashFilter(2 * len(self._codes)), self._codes
        self._filter.add(_hashes(codes))
        self._single = _merged(*self._single, first[~two], numbers[~two])

    def remove(self, query: int, first: int, second: int) -> None:
        """Remove a query, given its words."""
        if second < 0:
            word, queries = self._single
            kept = queries != query
            self._single = word[kept], queries[kept]
            return
        gone = sorted(
            begin + place
            for word, other in ((first, second), (second, first))
            for begin, end in [self._between(word << 32 | other)]
            for place in np.flatnonzero(self._queries[begin:end] >> 1 == query).tolist()
        )
        self._codes, self._queries = _deleted(self._codes, gone), _deleted(self._queries, gone)

    def singles(self, words: Ints) -> tuple[Ints, Ints]:
        """The queries for one of the words alone, as (position in ``words``, query)."""
        known, queries = self._single
        first = np.searchsorted(known, words)
        counts = np.searchsorted(known, words, side="right") - first
        position = np.repeat(np.arange(len(words), dtype=np.int64), counts)
        return position, queries.take(ranges(first, counts))

    def from_words(self, words: Ints) -> tuple[Ints, Ints]:
        """All entries of words, as (position in ``words``, entry)."""
        first = np.searchsorted(self._codes, words << 32)
        counts = np.searchsorted(self._codes, (words + 1) << 32) - first
        position = np.repeat(np.arange(len(words), dtype=np.int64), counts)
        return position, ranges(first, counts)

    def degrees(self, words: Ints) -> Ints:
        """The number of entries of each word."""
        return np.searchsorted(self._codes, (words + 1) << 32) - np.searchsorted(self._codes, words << 32)

    def between(self, words: Ints, others: Ints) -> tuple[Ints, Ints]:
        """All entries from words to others, as (position, entry)."""
        if not len(self._codes):  # the filter may still know removed queries
            return NOTHING, NOTHING
        codes = words << 32 | others
        position = self._filter.passing(_hashes(codes))
        codes = codes.take(position)
        first = np.searchsorted(self._codes, codes)
        there = np.flatnonzero(self._codes.take(first, mode="clip") == codes)
        first, codes = first.take(there), codes.take(there)
        counts = np.ones(len(first), dtype=np.int64)
        several = np.flatnonzero(self._codes.take(first + 1, mode="clip") == codes)  # few: queries with both
        counts[several] = np.searchsorted(self._codes, codes.take(several), side="right") - first.take(
            several
        )
        return np.repeat(position.take(there), counts), ranges(first, counts)

    def _between(self, code: int) -> tuple[int, int]:
        """Where the entries of a code begin and end."""
        return int(np.searchsorted(self._codes, code)), int(np.searchsorted(self._codes, code, side="right"))


def _hashes(codes: Ints) -> Hashes:
    return mixed(codes.view(np.uint64), codes)


def _merged(codes: Ints, values: Ints, new: Ints, its: Ints) -> tuple[Ints, Ints]:
    """Two sorted columns with new rows."""
    order = np.argsort(new, kind="stable")
    places = np.searchsorted(codes, new[order], side="right")
    return _inserted(codes, places, new[order]), _inserted(values, places, its[order])


def _inserted(column: Ints, places: Ints, new: Ints) -> Ints:
    """As ``np.insert``, which copies by a mask, at several times the cost where little is new."""
    if len(new) > _FEW:
        return np.insert(column, places, new)
    before, last = np.split(column, places)[:-1], column[places[-1] :] if len(new) else column
    pieces = [piece for number, each in enumerate(before) for piece in (each, new[number : number + 1])]
    return np.concatenate([*pieces, last])


def _deleted(column: Ints, places: Sequence[int]) -> Ints:
    """As ``np.delete``, for few places in order."""
    return np.concatenate([column[a + 1 : b] for a, b in pairwise([-1, *places, len(column)])])
