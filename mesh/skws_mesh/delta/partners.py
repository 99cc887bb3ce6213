"""By live tuple: the words that queries pair with its own.

A tuple at one end of a path completes a query only with one of its partners at
the other end. Looking that up is one bit, whatever the number of queries.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.delta.carried_words import FOUR, CarriedWords
from skws_mesh.delta.word_pairs import WordPairs

_MOST_BITS: Final = 14
_LEAST_BITS: Final = 10
_SPARSE: Final = 4  # at most about one bit of 16 is set
_LEAST: Final = 1024  # rows to have space for
_CELLS: Final = 1 << 20  # that are made with a byte for each bit: they fit the processor's caches

_Matrix: TypeAlias = npt.NDArray[np.uint8]


class Partners:
    """A row of bits for each live tuple. Words share bits where there are more than ``2 ** _MOST_BITS``.

    So what passes is looked up (``WordPairs.between``); what does not has no query.
    """

    def __init__(self, words: CarriedWords, *pairs: WordPairs) -> None:
        self._words = words
        self._pairs = pairs
        self._bits = _LEAST_BITS
        self._size = 0
        self._set = 0  # bits of all rows, about
        self._matrix = self._rows(0)
        self._signatures: Ints = NOTHING  # the rows, folded to 64 bits

    def extend(self, live: int) -> None:
        """Add the rows of new tuples, up to slot ``live``."""
        if live > len(self._matrix):
            matrix = self._rows(max(_LEAST, live + live // 4))
            matrix[: self._size] = self._matrix[: self._size]
            self._matrix = matrix
            self._signatures = np.resize(self._signatures, len(matrix))
        first, self._size = self._size, live
        self.renew(np.arange(first, live, dtype=np.int64))

    def renew(self, slots: Ints) -> None:
        """Make some tuples' rows anew; all of them, and wider, once rows are crowded on average."""
        at_once = _CELLS >> self._bits
        for begin in range(0, len(slots), at_once):
            some = slots[begin : begin + at_once]
            position, words = self._words.of(some)
            asked = [(pairs, *pairs.from_words(words)) for pairs in self._pairs if len(pairs)]
            self._set += sum(len(entries) for _, _, entries in asked)
            if self._set << _SPARSE > max(self._size, _LEAST) << self._bits and self._bits < _MOST_BITS:
                self._bits, self._set = self._bits + 1, 0
                self._matrix = self._rows(len(self._matrix))
                self.renew(np.arange(self._size, dtype=np.int64))
                return
            flags = np.zeros((len(some), 1 << self._bits), dtype=bool)
            for pairs, of, entries in asked:
                flags[position.take(of), self._bit(pairs.words(entries)[1])] = True
            self._matrix[some] = packed = np.packbits(flags, axis=1, bitorder="little")
            self._signatures[some] = np.bitwise_or.reduce(packed.view("<i8"), axis=1)

    def among(self, slots: Ints, others: Ints) -> tuple[Ints, Ints]:
        """The words of others that may be partners of the tuples beside them, as (position, word).

        Most pairs of tuples end here.
        """
        rows, mask = self._matrix.shape[1] * slots, np.uint16((1 << self._bits) - 1)
        positions, numbers = [NOTHING], [NOTHING]
        for fours, (pairs, digits) in enumerate(self._words.fours(others)):
            place = np.repeat(rows.take(pairs), FOUR)
            place += (digits & mask) >> 3
            found = self._matrix.ravel().take(place)
            found &= np.left_shift(1, (digits & 7).astype(np.uint8), dtype=np.uint8)
            hits = np.flatnonzero(found != 0)
            positions.append(pairs.take(hits // FOUR))
            numbers.append(hits % FOUR + FOUR * fours)
        position = np.concatenate(positions)
        word = self._words.numbered(others.take(position), np.concatenate(numbers))
        there = np.flatnonzero(word >= 0)
        return position.take(there), word.take(there)

    def signatures(self, slots: Ints) -> Ints:
        """A bit for each partner of a tuple, as in ``CarriedWords.signatures``."""
        return self._signatures.take(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        kept = np.flatnonzero(slots >= 0)
        number = len(kept)
        self._set = self._set * number // max(1, self._size)
        # The oldest go, as is usual, and the others are moved as one.
        some = slice(len(slots) - number, None) if number and kept[0] == len(slots) - number else kept
        self._matrix[:number] = self._matrix[: self._size][some]
        self._signatures[:number] = self._signatures[: self._size][some]
        self._size = number

    def _bit(self, words: Ints) -> Ints:
        return words & ((1 << self._bits) - 1)

    def _rows(self, number: int) -> _Matrix:
        return np.zeros((number, 1 << self._bits >> 3), dtype=np.uint8)
