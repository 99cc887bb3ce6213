"""Which tuples windows that just ended hold."""

from __future__ import annotations

import numpy as np

from mesh.columnar import TupleColumns
from mesh.columnar.columns import Flags, Ints
from skws.windowing.holding import numbered
from windows.expressions.spans import ANY, Closed
from windows.tuples import ALWAYS


class Contents:
    """By number of the window: tuples from its first to its last record that go with its key; static ones.

    ``tuples`` are all by slot, in order of their starts, which are positions;
    ``keys`` the codes of what they have of the window's key. A tuple that a
    deletion ended before the record after the window's last is not in it.
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
        """One window that holds nothing but static tuples."""
        none = np.empty((len(tuples.start), 0), dtype=np.int64)
        nothing = Closed(np.array([0]), np.array([-1]), np.empty((1, 0), dtype=np.int64), np.array([0]))
        return cls(tuples, none, nothing)

    def ended_at(self, last: Ints) -> Ints:
        """The numbers of the windows that end with some records."""
        found: Ints = np.searchsorted(self._closed.last, last)
        return found

    def slots(self, window: int) -> Ints:
        """The tuples of a window."""
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
        """Whether each tuple is in a window of its own."""
        start, end = self._tuples.start[slots], self._tuples.end[slots]
        first, last = self._closed.first[window], self._closed.last[window]
        inside = (start >= first) & (start <= last) & _goes_with(self._keys[slots], self._closed.key[window])
        held: Flags = (inside | (start == ALWAYS)) & (end > last)
        return held


def _goes_with(keys: Ints, wanted: Ints) -> Flags:
    agreed: Flags = ((keys == wanted) | (keys == ANY)).all(axis=1)
    return agreed
