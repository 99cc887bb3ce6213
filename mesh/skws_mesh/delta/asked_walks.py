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
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.neighbours import AT_ONCE, Neighbours
from skws_mesh.delta.partners import Partners
from skws_mesh.delta.walks import Walker, Walks
from skws_schema.model import Schema

_ROWS: Final = 1 << 19  # walks of some tuples together


class NeighbouringWords:
    """By live tuple: the words of the tuples one join away, or more, as signatures (``CarriedWords``).

    A semi-join from the far end: the last join of a walk, which would make most of all walks, is tried only
    where it may lead to a word that is asked for.
    """

    def __init__(self, words: CarriedWords, neighbours: Neighbours) -> None:
        self._words = words
        self._neighbours = neighbours
        self._size = 0
        self._signatures: Ints = NOTHING

    def extend(self, live: int) -> None:
        """Add new tuples, up to slot ``live``."""
        if live <= self._size:
            return
        self._signatures = written(self._signatures, self._size, np.zeros(live - self._size, dtype=np.int64))
        self._size = live
        for near, far in self._neighbours.extend(live):
            self._met(near, far)

    def renew(self, slots: Ints) -> None:
        """Some tuples have new words."""
        for begin in range(0, len(slots), AT_ONCE):
            some = slots[begin : begin + AT_ONCE]
            position, _, others = self._neighbours.of(some)
            self._met(some.take(position), others)

    def _met(self, near: Ints, far: Ints) -> None:
        """Pairs of neighbours."""
        np.bitwise_or.at(self._signatures, far, self._words.signatures(near))
        np.bitwise_or.at(self._signatures, near, self._words.signatures(far))

    def of(self, slots: Ints) -> Ints:
        """The signature of each tuple."""
        return self._signatures.take(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        kept = np.flatnonzero(slots[: self._size] >= 0)
        self._signatures[: len(kept)] = self._signatures[kept]
        self._size = len(kept)
        self._neighbours.remap(slots)


class AskedWalks:
    """Walks by length, from some tuples at a time: *levels*, of which the first has no joins."""

    def __init__(self, live: LiveTuples, schema: Schema, words: CarriedWords, partners: Partners) -> None:
        self.neighbours = Neighbours(live, schema)
        self.walker = Walker(live, self.neighbours)
        self._words = words
        self._partners = partners
        self._behind = NeighbouringWords(words, self.neighbours)

    def extend(self, live: int) -> None:
        """Add new tuples, up to slot ``live``."""
        self._behind.extend(live)

    def renew(self, slots: Ints) -> None:
        """Some tuples have new words."""
        self._behind.renew(slots)

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        self._behind.remap(slots)

    def levels(self, owners: Ints, width: int, *, earlier: bool) -> Iterator[list[Walks]]:
        """The walks from some tuples after others, for networks of at most ``width`` nodes.

        All walks to a tuple of a result are there. ``earlier``: as in ``Walker.further``; else all tuples
        have been added.
        """
        at_once, place = 512, 0
        while place < len(owners):
            some = owners[place : place + at_once]
            self.extend(int(some[-1]) + 1)
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
        begun = self.walker.begun(owners)
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
            levels.append(self.walker.further(walks, earlier=earlier, to=to))
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
