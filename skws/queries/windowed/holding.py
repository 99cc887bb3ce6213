"""Which of some windows is the first to hold all tuples of a result."""

from __future__ import annotations

import numpy as np

from skws_mesh.columnar.columns import Flags, Ints
from skws_windows.processor.spans import ANY, Closed
from skws_windows.window import FOREVER

_WIDE = 1 << 40
"""More than any position: numbers of keys go above it."""


class Holding:
    """Windows that ended, at most one at each record, in order of their ends."""

    def __init__(self, closed: Closed) -> None:
        self._closed = closed
        self._known: dict[tuple[bool, ...], _Ordered] = {}

    def ends(self, first: Ints, last: Ints, key: Ints) -> Ints:
        """For each result the end of the first window from ``first`` or before to ``last`` or after.

        ``key`` has the codes of what the result's tuples have of the window's key,
        ANY for what none of them has. FOREVER where no window holds it.
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
        """The windows by what their keys have in some fields."""
        name = tuple(fields.tolist())
        if name not in self._known:
            closed = self._closed
            self._known[name] = _Ordered(closed.first, closed.last, closed.key[:, fields])
        return self._known[name]


class _Ordered:
    """Windows by key, then end; ``_least[n]`` has the least start of 2**n windows from each on."""

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
        """As for ``Holding``, keys being whole."""
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
        """The next place from each on with a start of ``first`` or before; by leaps that get shorter."""
        size = len(self._last)
        for level in range(len(self._least) - 1, -1, -1):
            least = self._least[level]
            # Leap over a stretch in which no start is early enough.
            can = place < len(least)
            late = np.zeros(len(place), dtype=bool)
            late[can] = least[place[can]] > first[can]
            place = np.where(late, place + (1 << level), place)
        return np.minimum(place, size)


def numbered(key: Ints) -> tuple[Ints, Ints]:
    """Distinct keys, and each one's number; all the same where keys have no fields."""
    if not key.shape[1]:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(len(key), dtype=np.int64)
    distinct, inverse = np.unique(key, axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1)
