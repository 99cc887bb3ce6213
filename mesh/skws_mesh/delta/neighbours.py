"""For each live tuple, the tuples that it joins, and the words that queries pair with its own.

Walks pass each pair of joined tuples many times. A pair is looked up by join
value once, when the later of the two arrives. If tuples join so many others that
the pairs would take too much memory, walks look them up each time.
A tuple at one end of a path completes a query only with one of its partners at
the other end. This test is one bit, whatever the number of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import NOTHING, Ints, ranges, slices, write
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.columnar.live import LeavingEdges, LiveTuples
from skws_mesh.columnar.store import Table
from skws_mesh.delta.words import WORDS_PER_FOUR, CarriedWords, WordPairs
from skws_schema.budgets import check
from skws_schema.graph import edges_from
from skws_schema.model import Schema

_MOST_PAIRS: Final = 32  # pairs per tuple; a pair takes 16 bytes or a few times as much
_LEAST_TUPLES: Final = 1024
CHUNK_TUPLES: Final = 1024
"""Tuples whose neighbours are looked up together; few, as each may have very many."""
_SLOT: Final = (1 << 32) - 1


class Neighbours:
    """Lists of neighbours, each with space to grow.

    ``most``: if tuples have more pairs than this on average, none are stored until tuples are dropped.
    ``least``: the average is taken over at least this many tuples.
    """

    def __init__(
        self, live: LiveTuples, schema: Schema, most: int = _MOST_PAIRS, least: int = _LEAST_TUPLES
    ) -> None:
        self._live = live
        self._leaving = LeavingEdges(edges_from(schema))
        self._most, self._least = most, least
        self._is_crowded = False
        self._lists = Table((NOTHING,) * 3)  # by slot: the start of its list, its length, and its space
        self._codes: Ints = NOTHING  # edges and slots
        self._used = 0
        self.pairs = 0
        """The number of stored pairs, including those of dead tuples."""

    def extend(self, live: int) -> Iterator[tuple[Ints, Ints]]:
        """Add the tuples up to slot ``live``; returns their pairs with earlier ones, as columns in parts."""
        for begin in range(self._lists.size, live, CHUNK_TUPLES):
            new = np.arange(begin, min(live, begin + CHUNK_TUPLES), dtype=np.int64)
            zeros = np.zeros(len(new), dtype=np.int64)
            self._lists.append((zeros, zeros, zeros))
            position, edge, slots = self._look_up(new)
            owners = new.take(position)
            tuples = self._live.tuples
            start = np.maximum(tuples.start.take(owners), tuples.start.take(slots))
            end = np.minimum(tuples.end.take(owners), tuples.end.take(slots))
            indices = np.flatnonzero((slots < owners) & (start < end))
            owners, edge, slots = owners.take(indices), edge.take(indices), slots.take(indices)
            if not self._is_crowded:
                self._add(
                    np.concatenate([owners, slots]),
                    np.concatenate([edge, edge ^ 1]),
                    np.concatenate([slots, owners]),
                )
            yield owners, slots

    def of(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """The tuples that the given ones join, as (position in ``slots``, edge, slot), in order of positions.

        They include at least the tuples alive at the same time that are in lower slots, or were added before
        the last tuple.
        """
        if self._is_crowded:
            position, edge, partners = self._look_up(slots)
            indices = np.flatnonzero(partners < self._lists.size)  # others are not known to any caller yet
            indices = indices.take(_order(position.take(indices)))
            return position.take(indices), edge.take(indices), partners.take(indices)
        first, counts, _ = self._lists.columns()
        lengths = counts.take(slots)
        codes = self._codes.take(ranges(first.take(slots), lengths))
        position = np.repeat(np.arange(len(slots), dtype=np.int64), lengths)
        return position, codes >> 32, codes & _SLOT

    def in_parts(self, slots: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Like ``of``, in parts of about PAIRS pairs, as tuples may have very many neighbours."""
        counts = self._lists.columns()[1].take(slots)
        if self._is_crowded:  # then the counts are unknown
            counts = np.full(len(slots), PAIRS // CHUNK_TUPLES, dtype=np.int64)
        for part in slices(counts, PAIRS):
            position, edge, partners = self.of(slots[part])
            check()
            yield position + part.start, edge, partners

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones are dropped."""
        first, counts, _ = self._lists.columns()
        remaining = np.flatnonzero(slots[: self._lists.size] >= 0)
        if self._is_crowded:
            self._rebuild(len(remaining))
            return
        lengths = counts.take(remaining)
        codes = self._codes.take(ranges(first.take(remaining), lengths))
        partners = slots.take(codes & _SLOT)
        present = partners >= 0
        if not present.all():
            counts_before = np.concatenate([NOTHING, [0], np.cumsum(present)])
            ends = np.cumsum(lengths)
            lengths = counts_before.take(ends) - counts_before.take(ends - lengths)
            codes, partners = codes[present], partners[present]
        codes &= ~_SLOT
        codes |= partners
        self._codes, self._used, self.pairs = codes, len(codes), len(codes)
        self._lists = Table((NOTHING,) * 3)
        self._lists.append((np.cumsum(lengths) - lengths, lengths, lengths))

    def _rebuild(self, live: int) -> None:
        """Store the pairs of the tuples up to slot ``live``, unless they are too many again."""
        self._is_crowded, self._codes, self._used, self.pairs = False, NOTHING, 0, 0
        self._lists = Table((NOTHING,) * 3)
        for _ in self.extend(live):
            if self._is_crowded:
                break
        zeros = np.zeros(live - self._lists.size, dtype=np.int64)
        self._lists.append((zeros, zeros, zeros))

    def _look_up(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """Like ``of``, by join value and in any order: all live tuples."""
        row, edge = self._leaving.of(self._live.tuples.relation.take(slots))
        present, hashes = self._live.probe_hashes(edge, slots.take(row))
        if not present.all():
            row, edge = row[present], edge[present]
        position, partners = self._live.probe(hashes)
        check()
        row, edge = row.take(position), edge.take(position)
        is_joined = self._live.are_joined(edge, slots.take(row), partners)
        if is_joined.all():  # nearly always
            return row, edge, partners
        return row[is_joined], edge[is_joined], partners[is_joined]

    def _add(self, slots: Ints, edges: Ints, partners: Ints) -> None:
        """Add pairs of joined tuples."""
        self.pairs += len(slots)
        if self.pairs > self._most * max(self._least, self._lists.size):
            self._is_crowded, self._codes, self.pairs = True, NOTHING, 0
            self._lists.columns()[1][:] = 0
            return
        order = _order(slots)
        slots, codes = slots.take(order), (edges << 32 | partners).take(order)
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
        lists, growth = slots.take(begins), np.diff(begins, append=len(slots))
        first, counts, space = self._lists.columns()
        lengths = counts.take(lists)
        new_lengths = lengths + growth
        full = np.flatnonzero(new_lengths > space.take(lists))
        self._move(lists.take(full), 2 * new_lengths.take(full))
        self._codes[ranges(first.take(lists) + lengths, growth)] = codes
        counts[lists] = new_lengths

    def _move(self, lists: Ints, spaces: Ints) -> None:
        """Move lists to positions with more space."""
        first, counts, space = self._lists.columns()
        lengths = counts.take(lists)
        begins = self._used + np.cumsum(spaces) - spaces
        codes = self._codes.take(ranges(first.take(lists), lengths))
        padding = np.zeros(int(spaces.sum()), dtype=np.int64)
        self._codes = write(self._codes, self._used, padding)
        self._used += len(padding)
        self._codes[ranges(begins, lengths)] = codes
        first[lists], space[lists] = begins, spaces


def _order(numbers: Ints) -> Ints:
    """The stable order of the numbers; sorting takes a fraction of the time of ``argsort``."""
    return np.sort(numbers << 32 | np.arange(len(numbers), dtype=np.int64)) & _SLOT


_MOST_BITS: Final = 14
_LEAST_BITS: Final = 10
_SPARSITY_SHIFT: Final = 4  # at most about one bit of 16 is set
_LEAST_ROWS: Final = 1024  # the fewest rows to reserve space for
_CHUNK_BITS: Final = 1 << 20  # bits that are made with a byte each: few enough for the processor's caches

_Matrix: TypeAlias = npt.NDArray[np.uint8]


class Partners:
    """A row of bits for each live tuple, one bit for each word that a query pairs with one of its words.

    Words share bits if there are more than ``2 ** _MOST_BITS``. So a tuple that passes is looked up
    (``WordPairs.between``); one that does not pass completes no query.
    """

    def __init__(self, words: CarriedWords, *pairs: WordPairs) -> None:
        self._words = words
        self._pairs = pairs
        self._bits = _LEAST_BITS
        self._size = 0
        self._bit_count = 0  # bits set in all rows
        self._matrix = self._rows(0)
        self._signatures: Ints = NOTHING  # the rows, folded to 64 bits each

    def extend(self, live: int) -> None:
        """Add the rows of new tuples, up to slot ``live``."""
        if live > len(self._matrix):
            matrix = self._rows(max(_LEAST_ROWS, live + live // 4))
            matrix[: self._size] = self._matrix[: self._size]
            self._matrix = matrix
            self._signatures = np.resize(self._signatures, len(matrix))
        first, self._size = self._size, live
        self.renew(np.arange(first, live, dtype=np.int64))

    def renew(self, slots: Ints) -> None:
        """Rebuild the rows of some tuples; if rows are crowded on average, rebuild all at twice the width."""
        at_once = _CHUNK_BITS >> self._bits
        for begin in range(0, len(slots), at_once):
            chunk = slots[begin : begin + at_once]
            position, words = self._words.of(chunk)
            flags = np.zeros((len(chunk), 1 << self._bits), dtype=bool)
            for pairs in self._pairs:
                if len(pairs):
                    index, entries = pairs.from_words(words)
                    flags[position.take(index), self._bit(pairs.words(entries)[1])] = True
            packed = np.packbits(flags, axis=1, bitorder="little")
            self._bit_count += _count(packed) - _count(self._matrix[chunk])
            if (
                self._bit_count << _SPARSITY_SHIFT > max(self._size, _LEAST_ROWS) << self._bits
                and self._bits < _MOST_BITS
            ):
                self._bits, self._bit_count = self._bits + 1, 0
                self._matrix = self._rows(len(self._matrix))
                self.renew(np.arange(self._size, dtype=np.int64))
                return
            self._matrix[chunk] = packed
            self._signatures[chunk] = np.bitwise_or.reduce(packed.view("<i8"), axis=1)

    def candidates(self, slots: Ints, others: Ints) -> tuple[Ints, Ints]:
        """The words of ``others`` that may be partners of the tuples in ``slots``, as (position, word).

        Most pairs of tuples are rejected here.
        """
        rows, mask = self._matrix.shape[1] * slots, np.uint16((1 << self._bits) - 1)
        positions, numbers = [NOTHING], [NOTHING]
        for fours, (pairs, digits) in enumerate(self._words.fours(others)):
            index = np.repeat(rows.take(pairs), WORDS_PER_FOUR)
            index += (digits & mask) >> 3
            octets = self._matrix.ravel().take(index)
            octets &= np.left_shift(1, (digits & 7).astype(np.uint8), dtype=np.uint8)
            hits = np.flatnonzero(octets != 0)
            positions.append(pairs.take(hits // WORDS_PER_FOUR))
            numbers.append(hits % WORDS_PER_FOUR + WORDS_PER_FOUR * fours)
        position = np.concatenate(positions)
        word = self._words.word_at(others.take(position), np.concatenate(numbers))
        valid = np.flatnonzero(word >= 0)
        return position.take(valid), word.take(valid)

    def signatures(self, slots: Ints) -> Ints:
        """A bit for each partner of a tuple, as in ``CarriedWords.signatures``."""
        return self._signatures.take(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones are dropped."""
        remaining = np.flatnonzero(slots >= 0)
        count = len(remaining)
        # Usually the oldest are dropped, and the others move as one block.
        rows = slice(len(slots) - count, None) if count and remaining[0] == len(slots) - count else remaining
        self._matrix[:count] = self._matrix[: self._size][rows]
        self._matrix[count : self._size] = 0
        self._signatures[:count] = self._signatures[: self._size][rows]
        self._size, self._bit_count = count, _count(self._matrix[:count])

    def _bit(self, words: Ints) -> Ints:
        return words & ((1 << self._bits) - 1)

    def _rows(self, number: int) -> _Matrix:
        return np.zeros((number, 1 << self._bits >> 3), dtype=np.uint8)


def _count(rows: _Matrix) -> int:
    """The number of bits that are set."""
    return int(np.bitwise_count(rows).sum(dtype=np.int64))
