"""The words of live tuples, and the index of queries: by pairs of words, or by the rarest of three or more.

A *word* is a number that stands for the condition of one keyword on a tuple.
Queries with equal keywords share words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import NOTHING, Flags, Hashes, Ints, distinct, mix, ranges
from skws_mesh.columnar.hash_index import HashIndex
from skws_mesh.columnar.store import Table

_WORD: Final = (1 << 32) - 1
_FEW_WORDS: Final = 8
_SIGNATURE_BITS: Final = 64  # in a signature
_SECOND_SHIFT: Final = 6  # binary digits of a word that choose its bit in a signature
WORDS_PER_FOUR: Final = 4


Digits: TypeAlias = npt.NDArray[np.uint16]


class CarriedWords:
    """The words of live tuples, by slot.

    The last digits of four words of a tuple are packed into one integer, a *four*, so that the words of many
    tuples are read in a quarter of the time. The last four of a tuple is padded with zeros.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._pairs = Table((NOTHING,))  # slot and word in one integer, sorted
        self._fours = Table((NOTHING,))
        # By slot: the ends of its words and of its fours, its signature, and another signature.
        self._tuples = Table((NOTHING,) * 4)

    def __len__(self) -> int:
        return self._pairs.size

    @property
    def _codes(self) -> Ints:
        return self._pairs.columns()[0]

    @property
    def slots(self) -> Ints:
        """The slot of each pair of a tuple and a word, sorted."""
        return self._codes >> 32

    @property
    def words(self) -> Ints:
        """The word of each pair of a tuple and a word."""
        return self._codes & _WORD

    @property
    def frequencies(self) -> Ints:
        """By word: the number of tuples that contain it; words beyond the end are in none."""
        return np.bincount(self.words)

    def append(self, slots: Ints, words: Ints, live: int) -> None:
        """Add the words of new tuples, in any order; ``live`` is the number of slots in use afterwards."""
        self._append(distinct(slots << 32 | words), live)

    def insert(self, slots: Ints, words: Ints, live: int) -> None:
        """Add new words of any tuples."""
        codes = distinct(slots << 32 | words)
        positions = np.searchsorted(self._codes, codes)
        if len(self):
            new = self._codes.take(positions, mode="clip") != codes
            codes, positions = codes[new], positions[new]
        if len(codes):
            self._set(np.insert(self._codes, positions, codes), live)
        elif live > self._tuples.size:
            self._append(codes, live)

    def forget(self, words: Ints) -> None:
        """Drop words that no query asks for any more."""
        self._set(self._codes[~np.isin(self.words, words)], self._tuples.size)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones are dropped."""
        remaining = slots >= 0
        ends, four_ends, bits, high_bits = self._tuples.columns()
        counts, four_counts = np.diff(ends, prepend=0), np.diff(four_ends, prepend=0)
        codes = self._codes[np.repeat(remaining, counts)] & _WORD
        fours = self._fours.columns()[0][np.repeat(remaining, four_counts)]
        counts, four_counts, bits, high_bits = (
            counts[remaining],
            four_counts[remaining],
            bits[remaining],
            high_bits[remaining],
        )
        codes |= np.repeat(np.arange(len(counts), dtype=np.int64) << 32, counts)
        self._clear()
        self._pairs.append((codes,))
        self._fours.append((fours,))
        self._tuples.append((np.cumsum(counts), np.cumsum(four_counts), bits, high_bits))

    @property
    def has_words(self) -> Flags:
        """By slot: True if the tuple has words."""
        carrying: Flags = self._tuples.columns()[2] != 0
        return carrying

    def signatures(self, slots: Ints) -> Ints:
        """A bit for each word of a tuple; several words share a bit."""
        return self._tuples.columns()[2].take(slots)

    def counts(self, slots: Ints) -> Ints:
        """The number of words of each tuple."""
        first, ends = self._span(slots, 0)
        return ends - first

    def of(self, slots: Ints) -> tuple[Ints, Ints]:
        """All words of the tuples, as (position in ``slots``, word)."""
        first, ends = self._span(slots, 0)
        counts = ends - first
        codes = self._codes.take(ranges(first, counts))
        codes &= _WORD
        return np.repeat(np.arange(len(slots), dtype=np.int64), counts), codes

    def fours(self, slots: Ints) -> Iterator[tuple[Ints, Digits]]:
        """The first four words of each tuple, then its next four, and so on, with positions in ``slots``."""
        first, ends = self._span(slots, 1)
        positions = np.flatnonzero(first < ends)
        while len(positions):
            yield positions, self._fours.columns()[0].take(first.take(positions)).view(np.uint16)
            first += 1
            positions = np.flatnonzero(first < ends)

    def word_at(self, slots: Ints, numbers: Ints) -> Ints:
        """For each tuple its word with a number, in the order of its fours; negative if there is none."""
        first, ends = self._span(slots, 0)
        indices = first + numbers
        return np.where(indices < ends, self._codes.take(indices, mode="clip") & _WORD, -1)

    def contain(self, slots: Ints, words: Ints) -> Flags:
        """True for each tuple that contains the word at its position."""
        hits = np.zeros(len(slots), dtype=bool)
        if not len(self):
            return hits
        _, _, bits, high_bits = self._tuples.columns()
        candidates = np.flatnonzero(bits.take(slots) & _signature(words))
        matches = high_bits.take(slots.take(candidates)) & _signature(words.take(candidates) >> _SECOND_SHIFT)
        candidates = candidates.take(np.flatnonzero(matches))
        codes = slots.take(candidates) << 32 | words.take(candidates)
        positions = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        hits[candidates] = self._codes.take(positions) == codes
        return hits

    def carriers(self, words: Ints) -> tuple[Ints, Ints]:
        """All live tuples with some words, as (slot, word), in order of slots."""
        all_words = self.words
        flags: Flags = np.isin(all_words, words) if len(words) > _FEW_WORDS else _any_of(all_words, words)
        positions = np.flatnonzero(flags)
        return self._codes.take(positions) >> 32, all_words.take(positions)

    def _span(self, slots: Ints, column: int) -> tuple[Ints, Ints]:
        """The start and end of the words, or fours, of each tuple."""
        ends = self._tuples.columns()[column]
        # The slot before the first has no words, so its end is 0.
        return np.where(slots > 0, ends.take(slots - 1, mode="clip"), 0), ends.take(slots)

    def _set(self, codes: Ints, live: int) -> None:
        self._clear()
        self._append(codes, live)

    def _append(self, codes: Ints, live: int) -> None:
        """Append pairs of a tuple and a word after the existing ones."""
        first_slot, pair_count, four_count = self._tuples.size, len(self), self._fours.size
        self._pairs.append((codes,))
        tuple_numbers = (codes >> 32) - first_slot
        counts = np.bincount(tuple_numbers, minlength=live - first_slot)
        ends = np.cumsum(counts)
        fours = (counts + (WORDS_PER_FOUR - 1)) // WORDS_PER_FOUR
        four_ends = np.cumsum(fours)
        padding = WORDS_PER_FOUR * (four_ends - fours) - (ends - counts)
        digits = np.zeros(WORDS_PER_FOUR * int(fours.sum()), dtype=np.uint16)
        digits[np.arange(len(codes)) + padding.take(tuple_numbers)] = codes.astype(np.uint16)
        self._fours.append((digits.view(np.int64),))
        bits, high_bits = np.zeros((2, live - first_slot), dtype=np.int64)
        carrying = np.flatnonzero(counts)
        if len(carrying):
            begins = (ends - counts).take(carrying)
            bits[carrying] = np.bitwise_or.reduceat(_signature(codes), begins)
            high_bits[carrying] = np.bitwise_or.reduceat(_signature(codes >> _SECOND_SHIFT), begins)
        self._tuples.append((ends + pair_count, four_ends + four_count, bits, high_bits))


def _any_of(values: Ints, words: Ints) -> Flags:
    """Like ``np.isin``, which sorts; faster for few words."""
    flags = np.zeros(len(values), dtype=bool)
    for word in words.tolist():
        flags |= values == word
    return flags


def _signature(words: Ints) -> Ints:
    """The bit of each word in a signature, chosen by the last digits of the word."""
    return 1 << (words & (_SIGNATURE_BITS - 1))


_REMOVED: Final = -1


class WordPairs:
    """Queries by number; those for two words are found by either word or by both.

    An *entry* is a query with the word by which it is found. Queries for one word have no entries.
    """

    def __init__(self) -> None:
        self._single: tuple[Ints, Ints] = NOTHING, NOTHING  # the word, sorted, and the query
        self._clear()

    def _clear(self) -> None:
        # The query, and its words. Row n has the entries 2 n, found by the first word, and 2 n + 1, by the
        # second.
        self._rows = Table((NOTHING, np.empty((0, 2), dtype=np.int64)))
        self._by_words, self._by_word = HashIndex(), HashIndex()  # to entries
        self._removed = 0

    def __len__(self) -> int:
        """The number of queries."""
        return self._rows.size - self._removed + len(self._single[0])

    def words(self, entries: Ints) -> tuple[Ints, Ints]:
        """The word of each entry, and the other word of its query."""
        words = self._words
        return words.take(entries), words.take(entries ^ 1)

    def query(self, entries: Ints) -> Ints:
        """The query of each entry."""
        return self._rows.columns()[0].take(entries >> 1)

    def is_reversed(self, entries: Ints) -> Flags:
        """True for each entry that is found by the second word of its query."""
        flags: Flags = (entries & 1).astype(bool)
        return flags

    def add(self, numbers: Ints, first: Ints, second: Ints) -> None:
        """Add queries; ``second`` is negative for queries of one word."""
        is_pair = second >= 0
        self._add(numbers[is_pair], np.column_stack([first[is_pair], second[is_pair]]))
        if is_pair.all():
            return
        word, queries = self._single
        word, queries = np.concatenate([word, first[~is_pair]]), np.concatenate([queries, numbers[~is_pair]])
        order = np.argsort(word, kind="stable")
        self._single = word.take(order), queries.take(order)

    def _add(self, numbers: Ints, words: Ints) -> None:
        begin = 2 * self._rows.append((numbers, words))
        entries = np.arange(begin, begin + words.size, dtype=np.int64)
        first, second = words.ravel(), words[:, ::-1].ravel()
        self._by_words.add(_hashes(first << 32 | second), entries)
        self._by_word.add(_hashes(first), entries)

    def remove(self, query: int, first: int, second: int) -> None:
        """Remove a query, given its words."""
        if second < 0:
            word, queries = self._single
            remaining = queries != query
            self._single = word[remaining], queries[remaining]
            return
        _, entries = self.between(np.array([first]), np.array([second]))
        numbers, words = self._rows.columns()
        dead_rows = entries[numbers.take(entries >> 1) == query][:1] >> 1
        words[dead_rows] = _REMOVED  # so that it is not found again
        self._removed += len(dead_rows)
        if 2 * self._removed > self._rows.size:
            live_rows = np.flatnonzero(words[:, 0] != _REMOVED)
            self._clear()
            self._add(numbers.take(live_rows), words.take(live_rows, axis=0))

    def singles(self, words: Ints) -> tuple[Ints, Ints]:
        """The queries for one of the words alone, as (position in ``words``, query)."""
        single_words, queries = self._single
        first = np.searchsorted(single_words, words)
        counts = np.searchsorted(single_words, words, side="right") - first
        position = np.repeat(np.arange(len(words), dtype=np.int64), counts)
        return position, queries.take(ranges(first, counts))

    def from_words(self, words: Ints) -> tuple[Ints, Ints]:
        """All entries of the words, as (position in ``words``, entry)."""
        position, entries = self._by_word.probe(_hashes(words))
        is_match = self._words.take(entries) == words.take(position)
        return (position, entries) if is_match.all() else (position[is_match], entries[is_match])

    def between(self, words: Ints, others: Ints) -> tuple[Ints, Ints]:
        """All entries from words to others, as (position, entry), in order of positions."""
        position, entries = self._by_words.probe(_hashes(words << 32 | others))
        near, far = self.words(entries)
        matches = np.flatnonzero((near == words.take(position)) & (far == others.take(position)))
        matches = matches.take(np.argsort(position.take(matches), kind="stable"))
        return position.take(matches), entries.take(matches)

    @property
    def _words(self) -> Ints:
        """By entry: the word by which it is found."""
        return self._rows.columns()[1].ravel()


def _hashes(codes: Ints) -> Hashes:
    return mix(codes.view(np.uint64), codes)


NO_WORD = -1


class WordSets:
    """Queries by number, sorted by their rarest word, which the fewest live tuples contain.

    A *place* is a position in this order. ``pairs``: every two words of one query.
    """

    def __init__(self) -> None:
        self.pairs = WordPairs()
        self._rarest: Ints = NOTHING  # sorted
        self._queries: Ints = NOTHING
        self._words: Ints = np.empty((0, 0), dtype=np.int64)  # one row per query, padded with NO_WORD

    def __len__(self) -> int:
        """The number of queries."""
        return len(self._queries)

    @property
    def most(self) -> int:
        """The most words of a query."""
        most: int = self._words.shape[1]
        return most

    def add(self, queries: Mapping[int, Sequence[int]], frequencies: Ints) -> None:
        """Add the words of queries. ``frequencies``: by word, the number of live tuples that contain it."""
        if not queries:
            return
        most = max(self.most, *map(len, queries.values()))
        new = np.full((len(queries), most), NO_WORD, dtype=np.int64)
        for row, words in enumerate(queries.values()):
            new[row, : len(words)] = words
        table = np.full((len(self), most), NO_WORD, dtype=np.int64)
        table[:, : self.most] = self._words
        self._words = np.concatenate([table, new])
        self._queries = np.concatenate([self._queries, np.array(list(queries), dtype=np.int64)])
        self.order(frequencies)
        pairs = [(number, *pair) for number, words in queries.items() for pair in combinations(words, 2)]
        self.pairs.add(*np.array(pairs, dtype=np.int64).T)

    def remove(self, query: int, words: Sequence[int]) -> None:
        """Remove a query, given its words."""
        remaining = self._queries != query
        self._rarest, self._queries, self._words = (
            self._rarest[remaining],
            self._queries[remaining],
            self._words[remaining],
        )
        for first, second in combinations(words, 2):
            self.pairs.remove(query, first, second)

    def order(self, frequencies: Ints) -> None:
        """Sort the queries again, since words have become rarer or more frequent."""
        if not len(self):
            return
        counts = np.zeros_like(self._words)
        has_count = (self._words != NO_WORD) & (self._words < len(frequencies))
        counts[has_count] = frequencies.take(self._words[has_count])
        counts[self._words == NO_WORD] = int(frequencies.max(initial=0)) + 1
        rarest = self._words[np.arange(len(self)), np.argmin(counts, axis=1)]
        order = np.argsort(rarest, kind="stable")
        self._rarest, self._queries, self._words = rarest[order], self._queries[order], self._words[order]

    def by_rarest(self, words: Ints) -> tuple[Ints, Ints]:
        """The queries whose rarest word is one of ``words``, as (position in ``words``, place)."""
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
        """One word of the query at each place, by its number in the query; NO_WORD if there are fewer."""
        return self._words[:, number].take(places)

    def places_of(self, queries: Flags) -> Ints:
        """The places of the flagged queries."""
        return np.flatnonzero(queries.take(self._queries))
