"""Windows that ended: which holds a result first, which tuples each holds, and which to remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from skws_mesh.columnar.columns import Flags, Ints, TupleColumns
from skws_purging.tuples import ALWAYS
from skws_windows.processor.spans import ANY, Closed, Tracker
from skws_windows.window import FOREVER

_WIDE = 1 << 40
"""Greater than any position; numbers of keys are multiples of it."""


class Holding:
    """Windows that ended, at most one at each record, in order of their ends."""

    def __init__(self, closed: Closed) -> None:
        self._closed = closed
        self._known: dict[tuple[bool, ...], _Ordered] = {}

    def ends(self, first: Ints, last: Ints, key: Ints) -> Ints:
        """For each result the end of the first window from ``first`` or before to ``last`` or after.

        ``key``: codes of the fields of the window's key in the result's tuples,
        ANY for fields that none has. FOREVER if no window holds the result.
        """
        found = np.full(len(first), FOREVER, dtype=np.int64)
        if not len(self._closed.last) or not len(first):
            return found
        known, which = np.unique(key != ANY, axis=0, return_inverse=True)
        which = which.reshape(-1)
        for number, fields in enumerate(known):
            mine = which == number
            found[mine] = self._ordered(fields).ends(first[mine], last[mine], key[mine][:, fields])
        return found

    def _ordered(self, fields: Flags) -> _Ordered:
        """The windows by some fields of their keys."""
        name = tuple(fields.tolist())
        if name not in self._known:
            closed = self._closed
            self._known[name] = _Ordered(closed.first, closed.last, closed.key[:, fields])
        return self._known[name]


class _Ordered:
    """Windows by key, then end; ``_least[n]``: from each window on, the least start of 2**n windows."""

    def __init__(self, first: Ints, last: Ints, key: Ints) -> None:
        self._keys, group = numbered(key)
        order = np.lexsort((last, group))
        self._last = last[order]
        self._group = group[order]
        self._least = [first[order]]
        while (1 << len(self._least)) <= len(first):
            below = self._least[-1]
            step = 1 << (len(self._least) - 1)
            self._least.append(np.minimum(below[:-step], below[step:]))

    def ends(self, first: Ints, last: Ints, key: Ints) -> Ints:
        """As for ``Holding``, with whole keys."""
        distinct, inverse = numbered(key)
        numbers = {code: number for number, code in enumerate(map(tuple, self._keys.tolist()))}
        group = np.array([numbers.get(tuple(code), -1) for code in distinct.tolist()], dtype=np.int64)[
            inverse
        ]
        place = self._next(np.searchsorted(self._group * _WIDE + self._last, group * _WIDE + last), first)
        size = len(self._last)
        inside = np.minimum(place, size - 1)
        held = (place < size) & (group >= 0) & (self._group[inside] == group)
        return np.where(held, self._last[inside], FOREVER)

    def _next(self, place: Ints, first: Ints) -> Ints:
        """The next place from each on with a start of ``first`` or before, by leaps of decreasing length."""
        size = len(self._last)
        for level in range(len(self._least) - 1, -1, -1):
            least = self._least[level]
            # Leap over windows whose starts are all too late.
            can = place < len(least)
            late = np.zeros(len(place), dtype=bool)
            late[can] = least[place[can]] > first[can]
            place = np.where(late, place + (1 << level), place)
        return np.minimum(place, size)


def numbered(key: Ints) -> tuple[Ints, Ints]:
    """The distinct keys, and the number of each key; all are equal if keys have no fields."""
    if not key.shape[1]:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(len(key), dtype=np.int64)
    distinct, inverse = np.unique(key, axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1)


class Contents:
    """The tuples of each window: static ones, and those from its first to its last record that fit its key.

    ``tuples``: all by slot, in order of their starts, which are positions.
    ``keys``: codes of the fields of the window's key. A tuple is not in a window
    if a deletion ended it before the record after the window's last.
    """

    def __init__(self, tuples: TupleColumns, keys: Ints, closed: Closed) -> None:
        self._tuples = tuples
        self._keys = keys
        self._closed = closed
        self._static = int(np.searchsorted(tuples.start, ALWAYS, side="right"))
        self._groups, group = numbered(keys)
        self._order = np.argsort(group, kind="stable")
        self._borders = np.searchsorted(group[self._order], np.arange(len(self._groups) + 1))

    @classmethod
    def of_static(cls, tuples: TupleColumns) -> Contents:
        """A window of static tuples only."""
        none = np.empty((len(tuples.start), 0), dtype=np.int64)
        nothing = Closed(np.array([0]), np.array([-1]), np.empty((1, 0), dtype=np.int64), np.array([0]))
        return cls(tuples, none, nothing)

    def ended_at(self, last: Ints) -> Ints:
        """The numbers of the windows that end with records."""
        found: Ints = np.searchsorted(self._closed.last, last)
        return found

    def slots(self, window: int) -> Ints:
        first, last = self._closed.first[window], self._closed.last[window]
        lower, upper = np.searchsorted(self._tuples.start, [first, last + 1])
        parts = [np.arange(self._static)]
        for group in np.flatnonzero(_goes_with(self._groups, self._closed.key[window])).tolist():
            mine = self._order[self._borders[group] : self._borders[group + 1]]
            parts.append(mine[slice(*np.searchsorted(mine, [lower, upper]))])
        slots = np.concatenate(parts)
        inside: Ints = slots[self._tuples.end[slots] > last]
        return inside

    def hold(self, slots: Ints, window: Ints) -> Flags:
        """Whether each tuple is in its window."""
        start, end = self._tuples.start[slots], self._tuples.end[slots]
        first, last = self._closed.first[window], self._closed.last[window]
        inside = (start >= first) & (start <= last) & _goes_with(self._keys[slots], self._closed.key[window])
        held: Flags = (inside | (start == ALWAYS)) & (end > last)
        return held


def _goes_with(keys: Ints, wanted: Ints) -> Flags:
    agreed: Flags = ((keys == wanted) | (keys == ANY)).all(axis=1)
    return agreed


Row: TypeAlias = tuple[int, int, Sequence[Any], int]
"""Positions of the first and last record, values of the key, time of the first."""


class ClosedWindows:
    """Windows that ended while tuples in them are still live; positions and keys are those of a tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._closed: list[Closed] = []

    def add(self, closed: Closed) -> None:
        """Add windows that ended; forget those before the oldest open one."""
        if len(closed.last):
            self._closed.append(closed)
        self._closed = [each for each in self._closed if each.last[-1] >= self._tracker.horizon]

    def state(self) -> list[Row]:
        """In plain values."""
        return [
            row
            for each in self._closed
            for row in zip(
                each.first.tolist(),
                each.last.tolist(),
                self._tracker.values(each.key),
                each.began.tolist(),
                strict=True,
            )
        ]

    def restore(self, state: Sequence[Row]) -> Closed:
        """Inverse of ``state``; gives the windows as one batch."""
        first, last, keys, began = tuple(zip(*state, strict=True)) or ((), (), (), ())
        closed = Closed(
            np.array(first, dtype=np.int64),
            np.array(last, dtype=np.int64),
            self._tracker.coded(keys),
            np.array(began, dtype=np.int64),
        )
        self._closed = [closed] if len(closed.last) else []
        return closed
