"""The words of live tuples.

A *word* is a number: what one keyword of a query asks of a tuple. Queries with
equal keywords share words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges
from skws_mesh.columnar.store import Table

_WORD: Final = (1 << 32) - 1
_FEW: Final = 8
_BITS: Final = 64  # of a signature
_MORE: Final = 6  # digits that these stand for
FOUR: Final = 4


Digits: TypeAlias = npt.NDArray[np.uint16]


class CarriedWords:
    """Which live tuples, by slot, contain which words.

    The last digits of four of a tuple's words stand in one integer, a *four*, so that many tuples' words are
    read in a quarter of the time. The last four of a tuple is filled up by zeros.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._pairs = Table((NOTHING,))  # slot and word in one integer, sorted
        self._fours = Table((NOTHING,))
        # By slot: the ends of its words and of its fours, a bit for each word, another bit for each.
        self._tuples = Table((NOTHING,) * 4)

    def __len__(self) -> int:
        return self._pairs.size

    @property
    def _codes(self) -> Ints:
        return self._pairs.columns()[0]

    @property
    def slots(self) -> Ints:
        """The slot of each pair of a tuple and a word, in order."""
        return self._codes >> 32

    @property
    def words(self) -> Ints:
        """The word of each pair of a tuple and a word."""
        return self._codes & _WORD

    @property
    def often(self) -> Ints:
        """By word: how many tuples contain it; words beyond the last are in none."""
        return np.bincount(self.words)

    def append(self, slots: Ints, words: Ints, live: int) -> None:
        """Add the words of new tuples, in any order; ``live`` slots are then in use."""
        self._append(distinct(slots << 32 | words), live)

    def insert(self, slots: Ints, words: Ints, live: int) -> None:
        """Add new words of any tuples."""
        codes = distinct(slots << 32 | words)
        places = np.searchsorted(self._codes, codes)
        if len(self):
            new = self._codes.take(places, mode="clip") != codes
            codes, places = codes[new], places[new]
        if len(codes):
            self._set(np.insert(self._codes, places, codes), live)
        elif live > self._tuples.size:
            self._append(codes, live)

    def forget(self, words: Ints) -> None:
        """Drop words that no query asks for any more."""
        self._set(self._codes[~np.isin(self.words, words)], self._tuples.size)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        kept = slots >= 0
        ends, its_ends, bits, others = self._tuples.columns()
        counts, its = np.diff(ends, prepend=0), np.diff(its_ends, prepend=0)
        codes = self._codes[np.repeat(kept, counts)] & _WORD
        fours = self._fours.columns()[0][np.repeat(kept, its)]
        counts, its, bits, others = counts[kept], its[kept], bits[kept], others[kept]
        codes |= np.repeat(np.arange(len(counts), dtype=np.int64) << 32, counts)
        self._clear()
        self._pairs.append((codes,))
        self._fours.append((fours,))
        self._tuples.append((np.cumsum(counts), np.cumsum(its), bits, others))

    @property
    def any(self) -> Flags:
        """By slot: whether the tuple has words."""
        carrying: Flags = self._tuples.columns()[2] != 0
        return carrying

    def signatures(self, slots: Ints) -> Ints:
        """A bit for each word of a tuple; several words share one."""
        return self._tuples.columns()[2].take(slots)

    def counts(self, slots: Ints) -> Ints:
        """How many words each tuple contains."""
        first, ends = self._span(slots, 0)
        return ends - first

    def of(self, slots: Ints) -> tuple[Ints, Ints]:
        """All words of tuples, as (position in ``slots``, word)."""
        first, ends = self._span(slots, 0)
        counts = ends - first
        codes = self._codes.take(ranges(first, counts))
        codes &= _WORD
        return np.repeat(np.arange(len(slots), dtype=np.int64), counts), codes

    def fours(self, slots: Ints) -> Iterator[tuple[Ints, Digits]]:
        """The first four words of each tuple, its next four, and so on, with the positions in ``slots``."""
        first, ends = self._span(slots, 1)
        positions = np.flatnonzero(first < ends)
        while len(positions):
            yield positions, self._fours.columns()[0].take(first.take(positions)).view(np.uint16)
            first += 1
            positions = np.flatnonzero(first < ends)

    def numbered(self, slots: Ints, numbers: Ints) -> Ints:
        """The word of each tuple that has a number in the order of its fours; negative if it has fewer."""
        first, ends = self._span(slots, 0)
        places = first + numbers
        return np.where(places < ends, self._codes.take(places, mode="clip") & _WORD, -1)

    def contain(self, slots: Ints, words: Ints) -> Flags:
        """Which tuples contain the word beside them."""
        found = np.zeros(len(slots), dtype=bool)
        if not len(self):
            return found
        _, _, bits, others = self._tuples.columns()
        maybe = np.flatnonzero(bits.take(slots) & _signature(words))
        also = others.take(slots.take(maybe)) & _signature(words.take(maybe) >> _MORE)
        maybe = maybe.take(np.flatnonzero(also))
        codes = slots.take(maybe) << 32 | words.take(maybe)
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        found[maybe] = self._codes.take(places) == codes
        return found

    def carriers(self, words: Ints) -> tuple[Ints, Ints]:
        """All live tuples with some words, as (slot, word), in order of slots."""
        known = self.words
        among: Flags = np.isin(known, words) if len(words) > _FEW else _any_of(known, words)
        places = np.flatnonzero(among)
        return self._codes.take(places) >> 32, known.take(places)

    def _span(self, slots: Ints, column: int) -> tuple[Ints, Ints]:
        """Where the words or fours of each tuple begin and end."""
        ends = self._tuples.columns()[column]
        # The slot before the first has, as it should, no words: there it is 0.
        return np.where(slots > 0, ends.take(slots - 1, mode="clip"), 0), ends.take(slots)

    def _set(self, codes: Ints, live: int) -> None:
        self._clear()
        self._append(codes, live)

    def _append(self, codes: Ints, live: int) -> None:
        """Append pairs of tuples beyond those that are known."""
        first, known, before = self._tuples.size, len(self), self._fours.size
        self._pairs.append((codes,))
        of = (codes >> 32) - first
        counts = np.bincount(of, minlength=live - first)
        ends = np.cumsum(counts)
        fours = (counts + (FOUR - 1)) // FOUR
        ends_of_fours = np.cumsum(fours)
        spare = FOUR * (ends_of_fours - fours) - (ends - counts)
        digits = np.zeros(FOUR * int(fours.sum()), dtype=np.uint16)
        digits[np.arange(len(codes)) + spare.take(of)] = codes.astype(np.uint16)
        self._fours.append((digits.view(np.int64),))
        bits, others = np.zeros((2, live - first), dtype=np.int64)
        carrying = np.flatnonzero(counts)
        if len(carrying):
            begins = (ends - counts).take(carrying)
            bits[carrying] = np.bitwise_or.reduceat(_signature(codes), begins)
            others[carrying] = np.bitwise_or.reduceat(_signature(codes >> _MORE), begins)
        self._tuples.append((ends + known, ends_of_fours + before, bits, others))


def _any_of(known: Ints, words: Ints) -> Flags:
    """As ``np.isin``, which sorts, for few words."""
    among = np.zeros(len(known), dtype=bool)
    for word in words.tolist():
        among |= known == word
    return among


def _signature(words: Ints) -> Ints:
    """The bit of each word, of as many as a signature has: that of its last digits."""
    return 1 << (words & (_BITS - 1))
