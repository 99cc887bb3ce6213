"""Which hashes there may be: a bitmap of leading bits, that is a Bloom filter with one hash function."""

from __future__ import annotations

import numpy as np

from mesh.columnar.columns import Flags, Hashes, Ints

_LEAST_BITS = 17  # 128 kB, which fits the processor's caches
_SPARSE = 8  # places for each hash, so that one in eight look-ups passes in vain


class HashFilter:
    """Made for some number of hashes; beyond that it lets more pass in vain until it is made anew."""

    def __init__(self, expected: int = 0) -> None:
        bits = max(_LEAST_BITS, (expected * _SPARSE * 2).bit_length())
        self._added = 0
        self._set(np.zeros(1 << bits, dtype=bool))

    def has_room(self, more: int) -> bool:
        """True if the filter stays as sparse as it should with so many hashes more."""
        return (self._added + more) * _SPARSE <= len(self._there)

    def add(self, hashes: Hashes) -> None:
        self._added += len(hashes)
        self._there[self._places(hashes)] = True

    def grow(self) -> None:
        """Double the bitmap; what passed still does."""
        self._set(np.repeat(self._there, 2))

    def passing(self, hashes: Hashes) -> Ints:
        """The positions of the hashes that may be there."""
        return np.flatnonzero(self._there.take(self._places(hashes)))

    def _places(self, hashes: Hashes) -> Ints:
        return (hashes >> self._shift).view(np.int64)  # by unsigned numbers NumPy takes twice as long

    def _set(self, there: Flags) -> None:
        self._there = there
        self._shift = np.uint64(64 - (len(there).bit_length() - 1))
