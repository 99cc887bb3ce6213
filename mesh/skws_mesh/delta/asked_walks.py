"""Walks from tuples, without those that cannot be part of any result.

Every leaf of a result has a word of its own. So of two leaves each has a word
that a query asks for together with one of the other's, and the walks between
them have no more joins than the greatest network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, written
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.partners import Partners
from skws_mesh.delta.walks import Walker, Walks

_ROWS: Final = 1 << 19  # walks of some tuples together
_AT_ONCE: Final = 1024  # tuples whose neighbours are looked up together


class NeighbouringWords:
    """By live tuple: the words of the tuples one join away, or more, as signatures (``CarriedWords``).

    A semi-join from the far end: the last join of a walk, which would make most of all walks, is tried only
    where it may lead to a word that is asked for.
    """

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
        (near, far), _ = joined.paths(np.arange(len(joined), dtype=np.int64))
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


class AskedWalks:
    """Walks by length, from some tuples at a time: *levels*, of which the first has no joins."""

    def __init__(self, walker: Walker, words: CarriedWords, partners: Partners) -> None:
        self._walker = walker
        self._words = words
        self._partners = partners
        self._behind = NeighbouringWords(words, walker)

    def extend(self, live: int) -> None:
        """Add new tuples, up to slot ``live``. They are walked from next, or renewed before others are."""
        self._behind.extend(live)

    def renew(self, slots: Ints) -> None:
        """Some tuples have new words, or were not walked from when they came."""
        self._behind.renew(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        self._behind.remap(slots)

    def levels(self, owners: Ints, width: int, *, earlier: bool) -> Iterator[list[Walks]]:
        """The walks from some tuples after others, for networks of at most ``width`` nodes.

        All walks to a tuple of a result are there. ``earlier``: as in ``Walker.further``.
        """
        at_once, place = 512, 0
        while place < len(owners):
            some = owners[place : place + at_once]
            levels = self._levels(some, width, earlier=earlier)
            if levels is None:
                at_once = max(1, at_once // 4)
                continue
            place += len(some)
            rows = sum(map(len, levels))
            at_once = min(4 * at_once, 4096, max(1, _ROWS // 2 * len(some) // max(1, rows)))
            yield levels

    def leaves(self, levels: list[Walks]) -> list[Walks]:
        """The walks that may lead to a leaf of a result."""
        asked = np.zeros(int(levels[0].owner.max(initial=-1)) + 1, dtype=np.int64)
        within = []  # by number of joins: the partners of all words that are so near, by owner
        for walks in levels:
            np.bitwise_or.at(asked, walks.owner, self._partners.signatures(walks.ends))
            within.append(asked.copy())
        found = levels[:1]
        for walks, others in zip(levels[1:], reversed(within[:-1]), strict=True):
            ending = self._ending(others)(walks.owner, walks.ends)
            found.append(walks if ending.all() else walks.taken(np.flatnonzero(ending)))
        return found

    def _levels(self, owners: Ints, width: int, *, earlier: bool) -> list[Walks] | None:
        """None if there are too many walks to be made together.

        Without most walks of the greatest two lengths, which would be most of all.
        """
        begun = self._walker.begun(owners)
        levels, rows, last = [begun], len(owners), width - 1
        asked = np.zeros(len(owners), dtype=np.int64)
        asked[begun.owner] = self._partners.signatures(begun.ends)
        for joins in range(1, width):
            walks, to = levels[-1], None
            if joins == last:
                if joins > 1:
                    walks = walks.taken(np.flatnonzero(self._behind.of(walks.ends) & asked.take(walks.owner)))
                to = self._ending(asked)
            elif joins == last - 1 and joins > 1:
                either = asked.copy()
                np.bitwise_or.at(either, levels[1].owner, self._partners.signatures(levels[1].ends))
                to = self._ending(either, asked)
            levels.append(self._walker.further(walks, earlier=earlier, to=to))
            if joins == 1 and to is None:
                self._behind.met(levels[1])
            rows += len(levels[-1])
            if rows > _ROWS and len(owners) > 1:
                return None
        return levels

    def _ending(self, asked: Ints, behind: Ints | None = None) -> Callable[[Ints, Ints], Flags]:
        """Flags walks by the words of their ends, or by those behind; both as signatures by owner."""

        def kept(owner: Ints, ends: Ints) -> Flags:
            found = self._words.signatures(ends) & asked.take(owner)
            if behind is not None:
                found |= self._behind.of(ends) & behind.take(owner)
            flags: Flags = found != 0
            return flags

        return kept
