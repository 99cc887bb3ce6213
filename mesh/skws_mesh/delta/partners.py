"""By live tuple: the words that queries pair with its own.

A tuple at one end of a path completes a query only with one of its partners at
the other end. Looking that up is one bit, whatever the number of queries.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.word_pairs import WordPairs

_MOST_BITS: Final = 14
_LEAST_BITS: Final = 6
_SPARSE: Final = 4  # at most about one bit of 16 is set
_MASKS: Final = np.left_shift(1, np.arange(8)).astype(np.uint8)
_WORD: Final = (1 << 32) - 1
_AT_ONCE: Final = 1024  # rows that are made with a byte for each bit

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
            matrix = self._rows(max(1024, live + live // 4))
            matrix[: self._size] = self._matrix[: self._size]
            self._matrix = matrix
            self._signatures = np.resize(self._signatures, len(matrix))
        first, self._size = self._size, live
        self.renew(np.arange(first, live, dtype=np.int64))

    def renew(self, slots: Ints) -> None:
        """Make some tuples' rows anew; all of them, and wider, once rows are crowded on average."""
        for begin in range(0, len(slots), _AT_ONCE):
            some = slots[begin : begin + _AT_ONCE]
            position, words = self._words.of(some)
            asked = [(pairs, *pairs.from_words(words)) for pairs in self._pairs]
            self._set += sum(len(entries) for _, _, entries in asked)
            if self._set << _SPARSE > max(self._size, _AT_ONCE) << self._bits and self._bits < _MOST_BITS:
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

        Most pairs of tuples end here, so columns are used again as far as possible.
        """
        counts, codes = self._words.codes(others)
        bit = self._bit(codes)
        place = np.repeat(slots * self._matrix.shape[1], counts)
        place += bit >> 3
        bit &= 7
        found = self._matrix.ravel().take(place)
        found &= _MASKS.take(bit)
        hits = np.flatnonzero(found)
        position = np.searchsorted(np.cumsum(counts), hits, side="right")
        return position, codes.take(hits) & _WORD

    def signatures(self, slots: Ints) -> Ints:
        """A bit for each partner of a tuple, as in ``CarriedWords.signatures``."""
        return self._signatures.take(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        kept = np.flatnonzero(slots >= 0)
        self._set = self._set * len(kept) // max(1, self._size)
        self._matrix[: len(kept)] = self._matrix[kept]
        self._signatures[: len(kept)] = self._signatures[kept]
        self._size = len(kept)

    def _bit(self, words: Ints) -> Ints:
        return words & ((1 << self._bits) - 1)

    def _rows(self, number: int) -> _Matrix:
        return np.zeros((number, 1 << self._bits >> 3), dtype=np.uint8)
