"""Runs of one state as columns, and tables of them by key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from patterns.columnar.keys import Ints, order_of

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Runs:
    """The tick of each run's first tuple, the position of its last, and a row of positions for each label."""

    start: Ints
    last: Ints
    marked: Ints

    @classmethod
    def none(cls, labels: int) -> Runs:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, np.empty((labels, 0), dtype=np.int64))

    @classmethod
    def together(cls, parts: Iterable[Runs], labels: int) -> Runs:
        found = [part for part in parts if len(part)] or [cls.none(labels)]
        if len(found) == 1:
            return found[0]
        return cls(
            np.concatenate([part.start for part in found]),
            np.concatenate([part.last for part in found]),
            np.concatenate([part.marked for part in found], axis=1),
        )

    def __len__(self) -> int:
        return len(self.start)

    def taken(self, chosen: Ints | Flags) -> Runs:
        return Runs(self.start[chosen], self.last[chosen], self.marked[:, chosen])


@dataclass(frozen=True, slots=True)
class Table:
    """Runs of a state by a key and by their last tuples: ``order`` of them, ``codes`` made of both."""

    codes: Ints
    order: Ints
    runs: Runs
    base: int
    width: int

    @classmethod
    def of(cls, number: Ints, runs: Runs, base: int, until: int) -> Table:
        """The runs whose key is defined; positions lie from ``base`` to ``until``."""
        width = until - base + 1
        by_last = np.argsort(runs.last, kind="stable")  # quick: made of parts that are in order
        by_last = by_last[number[by_last] >= 0]
        order = by_last[order_of(number[by_last])]
        return cls(number[order] * width + (runs.last[order] - base), order, runs, base, width)

    def near(self, number: Ints, first: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Of each key where its runs begin that end from ``first`` on, and how many end before ``until``.

        Quick where keys come by position: sorted by number, they are looked up in order.
        """
        order = order_of(number)
        code = (number * self.width - self.base)[order]
        begin, end = np.empty_like(number), np.empty_like(number)
        begin[order] = np.searchsorted(self.codes, code + first[order])
        end[order] = np.searchsorted(self.codes, code + until[order])
        return begin, np.where(number < 0, 0, end - begin)
