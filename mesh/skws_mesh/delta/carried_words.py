"""The words of live tuples.

A *word* is a number: what one keyword of a query asks of a tuple. Queries with
equal keywords share words.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, ranges
from skws_mesh.columnar.store import Table

_WORD: Final = (1 << 32) - 1
_FEW: Final = 8
_BITS: Final = 64  # of a signature


class CarriedWords:
    """Which live tuples, by slot, contain which words."""

    def __init__(self) -> None:
        self._pairs = Table((NOTHING,))  # slot and word in one integer, sorted
        self._tuples = Table((NOTHING, NOTHING))  # by slot: the end of its words, a bit for each of them

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
        self._append(np.unique(slots << 32 | words), live)

    def insert(self, slots: Ints, words: Ints, live: int) -> None:
        """Add new words of any tuples."""
        codes = np.unique(slots << 32 | words)
        if not len(codes) and live == self._tuples.size:
            return
        places = np.searchsorted(self._codes, codes)
        if len(self):
            new = self._codes.take(places, mode="clip") != codes
            codes, places = codes[new], places[new]
        known, (ends, bits) = self._codes, self._tuples.columns()
        more = np.zeros(live, dtype=np.int64)
        np.bitwise_or.at(more, codes >> 32, _signature(codes & _WORD))
        more[: len(bits)] |= bits
        every = np.full(live, len(known), dtype=np.int64)
        every[: len(ends)] = ends
        every += np.cumsum(np.bincount(codes >> 32, minlength=live))
        self._pairs, self._tuples = Table((NOTHING,)), Table((NOTHING, NOTHING))
        self._pairs.append((np.insert(known, places, codes),))
        self._tuples.append((every, more))

    def forget(self, words: Ints) -> None:
        """Drop words that no query asks for any more."""
        self._set(self._codes[~np.isin(self.words, words)], self._tuples.size)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        moved = slots[self.slots]
        kept = moved >= 0
        self._set(moved[kept] << 32 | self.words[kept], int(slots.max(initial=-1)) + 1)

    @property
    def any(self) -> Flags:
        """By slot: whether the tuple has words."""
        carrying: Flags = self._tuples.columns()[1] != 0
        return carrying

    def signatures(self, slots: Ints) -> Ints:
        """A bit for each word of a tuple; several words share one."""
        return self._tuples.columns()[1].take(slots)

    def counts(self, slots: Ints) -> Ints:
        """How many words each tuple contains."""
        first, ends = self._span(slots)
        return ends - first

    def of(self, slots: Ints) -> tuple[Ints, Ints]:
        """All words of tuples, as (position in ``slots``, word)."""
        counts, codes = self.codes(slots)
        codes &= _WORD
        return np.repeat(np.arange(len(slots), dtype=np.int64), counts), codes

    def codes(self, slots: Ints) -> tuple[Ints, Ints]:
        """How many words each tuple contains, and all of these, one after the other, in the last 32 bits."""
        first, ends = self._span(slots)
        counts = ends - first
        return counts, self._codes.take(ranges(first, counts))

    def contain(self, slots: Ints, words: Ints) -> Flags:
        """Which tuples contain the word beside them."""
        found = np.zeros(len(slots), dtype=bool)
        if not len(self):
            return found
        maybe = np.flatnonzero(self._tuples.columns()[1].take(slots) & _signature(words))
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

    def _span(self, slots: Ints) -> tuple[Ints, Ints]:
        """Where the words of each tuple begin and end."""
        ends = self._tuples.columns()[0]
        # The slot before the first has, as it should, no words: there it is 0.
        return np.where(slots > 0, ends.take(slots - 1, mode="clip"), 0), ends.take(slots)

    def _set(self, codes: Ints, live: int) -> None:
        self._pairs, self._tuples = Table((NOTHING,)), Table((NOTHING, NOTHING))
        self._append(codes, live)

    def _append(self, codes: Ints, live: int) -> None:
        """Append pairs of tuples beyond those that are known."""
        first, known = self._tuples.size, len(self)
        self._pairs.append((codes,))
        ends = np.searchsorted(codes, np.arange(first + 1, live + 1, dtype=np.int64) << 32)
        bits = np.zeros(live - first, dtype=np.int64)
        np.bitwise_or.at(bits, (codes >> 32) - first, _signature(codes & _WORD))
        self._tuples.append((ends + known, bits))


def _any_of(known: Ints, words: Ints) -> Flags:
    """As ``np.isin``, which sorts, for few words."""
    among = np.zeros(len(known), dtype=bool)
    for word in words.tolist():
        among |= known == word
    return among


def _signature(words: Ints) -> Ints:
    """The bit of each word, of as many as a signature has: that of its last digits."""
    return 1 << (words & (_BITS - 1))
