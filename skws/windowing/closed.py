"""The windows that ended while tuples in them are live still: what these gave has been told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from windows.expressions.spans import Closed, Tracker

Row: TypeAlias = tuple[int, int, Sequence[Any], int]
"""Positions of first and last record, values of the key, time of the first."""


class ClosedWindows:
    """Remembered by batch; the positions and keys are those of a tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._closed: list[Closed] = []

    def add(self, closed: Closed) -> None:
        """Windows that have ended; those before the oldest open one are forgotten."""
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
        """Remember what a ``state`` was of; gives it as one."""
        first, last, keys, began = tuple(zip(*state, strict=True)) or ((), (), (), ())
        closed = Closed(
            np.array(first, dtype=np.int64),
            np.array(last, dtype=np.int64),
            self._tracker.coded(keys),
            np.array(began, dtype=np.int64),
        )
        self._closed = [closed] if len(closed.last) else []
        return closed
