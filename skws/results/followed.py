"""Tuples that are known one by one, and their slots, which change as others are purged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Ints, written
from skws_purging.tuples import StreamTuple

_NONE: Final = -1


class FollowedTuples:
    """From tuples to slots, and back.

    A tuple has a number that outlives its slots, so that a purge renumbers columns of integers: there may
    be hundreds of thousands of tuples, and dictionaries of them would take half a second to make anew.
    """

    def __init__(self) -> None:
        self._numbers: dict[StreamTuple, int] = {}
        self._tuples: list[StreamTuple | None] = []  # by number
        self._free: list[int] = []
        self._slots: Ints = NOTHING  # by number; with space for more
        self._at: Ints = NOTHING  # by slot: the number, or none

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, known: StreamTuple) -> bool:
        return known in self._numbers

    def __getitem__(self, known: StreamTuple) -> int:
        """The slot of a tuple. Raises KeyError if it is not followed."""
        return self._slots.item(self._numbers[known])

    def at(self, slot: int) -> StreamTuple | None:
        """The tuple in a slot, if it is followed."""
        number = self._at.item(slot) if slot < len(self._at) else _NONE
        return None if number == _NONE else self._tuples[number]

    def among(self, slots: Ints) -> list[int]:
        """Those of some slots whose tuples are followed."""
        within = slots[slots < len(self._at)]
        found: list[int] = within[self._at.take(within) != _NONE].tolist()
        return found

    def items(self) -> Iterator[tuple[int, StreamTuple]]:
        """All of them, by slot."""
        return ((self[known], known) for known in self._numbers)

    def set(self, known: StreamTuple, slot: int) -> None:
        """Follow the tuple of a slot."""
        if self._free:
            number = self._free.pop()
            self._tuples[number] = known
        else:
            number = len(self._tuples)
            self._tuples.append(known)
        self._numbers[known] = number
        self._slots = written(self._slots, number, np.array([slot], dtype=np.int64))
        if slot >= len(self._at):
            more = np.full(slot + 1 + slot // 4 - len(self._at), _NONE, dtype=np.int64)
            self._at = np.concatenate([self._at, more])
        self._at[slot] = number

    def remove(self, known: StreamTuple) -> int:
        """Follow a tuple no longer; gives its slot."""
        number = self._numbers.pop(known)
        slot = self._slots.item(number)
        self._tuples[number] = None
        self._free.append(number)
        self._at[slot] = _NONE
        return slot

    def renumber(self, slots: Ints) -> None:
        """Tuples have new slots; those with negative ones are followed no longer."""
        followed = np.flatnonzero(self._at != _NONE)
        numbers, moved = self._at.take(followed), slots.take(followed)
        for number in numbers[moved < 0].tolist():
            gone = self._tuples[number]
            if gone is not None:
                self.remove(gone)
        numbers, moved = numbers[moved >= 0], moved[moved >= 0]
        self._slots[numbers] = moved
        self._at = np.full(int(moved.max(initial=_NONE)) + 1, _NONE, dtype=np.int64)
        self._at[moved] = numbers
