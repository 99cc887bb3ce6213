"""By live tuple: the words of the tuples one join away, as signatures.

A semi-join from the far end: the last join of a walk, which would make most
of all walks, is tried only where it may lead to a word that is asked for.
"""

from __future__ import annotations

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Ints, written
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.walks import Walker, Walks

_AT_ONCE = 1024  # tuples whose neighbours are looked up together


class NeighbouringWords:
    """Signatures (``CarriedWords.signatures``) of all words of a tuple's neighbours, or of more."""

    def __init__(self, words: CarriedWords, walker: Walker) -> None:
        self._words = words
        self._walker = walker
        self._size = 0
        self._signatures: Ints = NOTHING

    def extend(self, live: int) -> None:
        """Add new tuples, up to slot ``live``; what they join is to be ``met``."""
        new = np.zeros(max(0, live - self._size), dtype=np.int64)
        self._signatures = written(self._signatures, self._size, new)
        self._size = live

    def met(self, joined: Walks) -> None:
        """Pairs of neighbours, as walks of one join."""
        near, far = joined.members.T
        np.bitwise_or.at(self._signatures, far, self._words.signatures(near))
        np.bitwise_or.at(self._signatures, near, self._words.signatures(far))

    def renew(self, slots: Ints) -> None:
        """Some tuples have new words."""
        for begin in range(0, len(slots), _AT_ONCE):
            begun = self._walker.begun(slots[begin : begin + _AT_ONCE])
            self.met(self._walker.further(begun, earlier=False))

    def of(self, slots: Ints) -> Ints:
        """The signature of each tuple."""
        return self._signatures.take(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        kept = np.flatnonzero(slots >= 0)
        self._signatures[: len(kept)] = self._signatures[kept]
        self._size = len(kept)
