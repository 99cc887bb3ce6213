"""Sums over the live tuples at any instant that is still of interest, kept up by what comes and goes."""

from __future__ import annotations

import numpy as np

from mesh.columnar.columns import Ints
from windows.window import FOREVER


class Timeline:
    """Numbers added at ticks; tells their sums up to a tick. ``width`` numbers at a time.

    What is added in order of ticks is appended; else all is sorted anew.
    """

    def __init__(self, width: int) -> None:
        self._ticks = np.empty(16, dtype=np.int64)
        self._sums = np.zeros((16, width), dtype=np.int64)  # up to and with each tick
        self._base = np.zeros(width, dtype=np.int64)  # what is forgotten
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, ticks: Ints, values: Ints) -> None:
        """``values`` has a row for each tick."""
        if not len(ticks):
            return
        order = np.argsort(ticks, kind="stable")
        ticks, values = ticks[order], values[order]
        if self._size and ticks[0] < self._ticks[self._size - 1]:
            ticks = np.concatenate([self._ticks[: self._size], ticks])
            values = np.concatenate([self._values(), values])
            order = np.argsort(ticks, kind="stable")
            ticks, values = ticks[order], values[order]
            self._size = 0
        self._append(ticks, values)

    def at(self, ticks: Ints) -> Ints:
        """The sums up to and with each tick, a row each. None of them may be forgotten."""
        if not self._size:
            return np.tile(self._base, (len(ticks), 1))
        places = np.searchsorted(self._ticks[: self._size], ticks, side="right")
        sums: Ints = np.where(places[:, None] > 0, self._sums[places - 1], self._base)
        return sums

    def forget(self, tick: int) -> None:
        """Nobody will ask for earlier ticks."""
        done = int(np.searchsorted(self._ticks[: self._size], tick, side="right"))
        if done:
            self._base = self._sums[done - 1].copy()
            self._ticks = self._ticks[done : self._size].copy()
            self._sums = self._sums[done : self._size].copy()
            self._size -= done

    def _values(self) -> Ints:
        return np.diff(self._sums[: self._size], axis=0, prepend=self._base[None])

    def _append(self, ticks: Ints, values: Ints) -> None:
        last = self._sums[self._size - 1] if self._size else self._base
        size = self._size + len(ticks)
        if size > len(self._ticks):
            self._ticks = _grown(self._ticks, size, self._size)
            self._sums = _grown(self._sums, size, self._size)
        self._ticks[self._size : size] = ticks
        self._sums[self._size : size] = np.cumsum(values, axis=0) + last
        self._size = size


def _grown(column: Ints, size: int, kept: int) -> Ints:
    grown = np.empty((max(2 * len(column), size), *column.shape[1:]), dtype=np.int64)
    grown[:kept] = column[:kept]
    return grown


class LiveSums:
    """Sums over the tuples that are alive at an instant, from their lifespans."""

    def __init__(self, width: int) -> None:
        self._come = Timeline(width)
        self._gone = Timeline(width)

    def add(self, start: Ints, end: Ints, values: Ints) -> None:
        """Tuples, and what each adds to the sums while it lives."""
        self._come.add(start, values)
        self._go(end, values)

    def end(self, former: Ints, end: Ints, values: Ints) -> None:
        """Tuples end earlier than they were said to."""
        self._go(former, -values)
        self._go(end, values)

    def at(self, ticks: Ints) -> Ints:
        """A row of sums for each tick."""
        sums: Ints = self._come.at(ticks) - self._gone.at(ticks)
        return sums

    def forget(self, tick: int) -> None:
        self._come.forget(tick)
        self._gone.forget(tick)

    def _go(self, ticks: Ints, values: Ints) -> None:
        ever = ticks < FOREVER
        self._gone.add(ticks[ever], values[ever])
