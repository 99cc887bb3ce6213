"""The index of queries for three words or more, each by its rarest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, ranges
from skws_mesh.delta.word_pairs import WordPairs

NO_WORD = -1


class WordSets:
    """Queries, by number, in order of the word of theirs that fewest live tuples contain.

    A *place* is one in this order. ``pairs``: each two words of one query.
    """

    def __init__(self) -> None:
        self.pairs = WordPairs()
        self._rarest: Ints = NOTHING  # sorted
        self._queries: Ints = NOTHING
        self._words: Ints = np.empty((0, 0), dtype=np.int64)  # a row each, filled up by NO_WORD

    def __len__(self) -> int:
        """The number of queries."""
        return len(self._queries)

    @property
    def most(self) -> int:
        """The most words of a query."""
        most: int = self._words.shape[1]
        return most

    def add(self, queries: Mapping[int, Sequence[int]], often: Ints) -> None:
        """Add the words of queries. ``often``: by word, how many live tuples contain it."""
        if not queries:
            return
        most = max(self.most, *map(len, queries.values()))
        new = np.full((len(queries), most), NO_WORD, dtype=np.int64)
        for row, words in enumerate(queries.values()):
            new[row, : len(words)] = words
        known = np.full((len(self), most), NO_WORD, dtype=np.int64)
        known[:, : self.most] = self._words
        self._words = np.concatenate([known, new])
        self._queries = np.concatenate([self._queries, np.array(list(queries), dtype=np.int64)])
        self.order(often)
        both = [(number, *two) for number, words in queries.items() for two in combinations(words, 2)]
        self.pairs.add(*np.array(both, dtype=np.int64).T)

    def remove(self, query: int, words: Sequence[int]) -> None:
        """Remove a query, given its words."""
        kept = self._queries != query
        self._rarest, self._queries, self._words = self._rarest[kept], self._queries[kept], self._words[kept]
        for one, other in combinations(words, 2):
            self.pairs.remove(query, one, other)

    def order(self, often: Ints) -> None:
        """Order queries anew, as words have become rarer or more frequent."""
        if not len(self):
            return
        counts = np.zeros_like(self._words)
        known = (self._words != NO_WORD) & (self._words < len(often))
        counts[known] = often.take(self._words[known])
        counts[self._words == NO_WORD] = int(often.max(initial=0)) + 1
        rarest = self._words[np.arange(len(self)), np.argmin(counts, axis=1)]
        order = np.argsort(rarest, kind="stable")
        self._rarest, self._queries, self._words = rarest[order], self._queries[order], self._words[order]

    def by_rarest(self, words: Ints) -> tuple[Ints, Ints]:
        """The queries whose rarest word is one of some, as (position in ``words``, place)."""
        first = np.searchsorted(self._rarest, words)
        counts = np.searchsorted(self._rarest, words, side="right") - first
        position = np.repeat(np.arange(len(words), dtype=np.int64), counts)
        return position, ranges(first, counts)

    def rarest(self, places: Ints) -> Ints:
        """The word by which each place is found."""
        return self._rarest.take(places)

    def query(self, places: Ints) -> Ints:
        """The query of each place."""
        return self._queries.take(places)

    def word(self, places: Ints, number: int) -> Ints:
        """One of the words at each place, counted in the query's order; NO_WORD where there are fewer."""
        return self._words[:, number].take(places)

    def among(self, queries: Flags) -> Ints:
        """The places of the flagged queries."""
        return np.flatnonzero(queries.take(self._queries))
