"""Runs of one state as columns, and tables of them by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count as counted_from

import numpy as np
import numpy.typing as npt

from patterns.evaluation.program import Key
from schema.model import Value

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NONE = -1  # the position of a label that marks nothing, the number of a key that is undefined


@dataclass(frozen=True, slots=True)
class Runs:
    """One run a row: the tick of its first tuple, the position of its last, and that of each label."""

    start: Ints
    last: Ints
    marked: Ints

    @classmethod
    def none(cls, labels: int) -> Runs:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, np.empty((0, labels), dtype=np.int64))

    @classmethod
    def together(cls, parts: Iterable[Runs], labels: int) -> Runs:
        found = [part for part in parts if len(part)] or [cls.none(labels)]
        if len(found) == 1:
            return found[0]
        return cls(
            np.concatenate([part.start for part in found]),
            np.concatenate([part.last for part in found]),
            np.concatenate([part.marked for part in found]),
        )

    def __len__(self) -> int:
        return len(self.start)

    def taken(self, chosen: Ints | Flags) -> Runs:
        return Runs(self.start[chosen], self.last[chosen], self.marked[chosen])


class Numbers:
    """Numbers for keys, the same for equal ones, never for others."""

    def __init__(self) -> None:
        self._of: dict[Key, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._of)

    def of(self, columns: Sequence[list[Value]], count: int) -> Ints:
        """The numbers of so many keys, given by column; NONE for those with a NULL."""
        if not columns:
            return np.zeros(count, dtype=np.int64)
        keys: Iterable[Key] = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        numbered = map(self._of.setdefault, keys, counted_from(self._next))
        found = np.fromiter(numbered, dtype=np.int64, count=count)
        self._next += count
        for column in columns:
            if None in column:
                found[[i for i, value in enumerate(column) if value is None]] = NONE
        return found

    def forget_but(self, used: Ints) -> None:
        """Keep the keys of some numbers alone."""
        kept = set(used.tolist())
        self._of = {key: number for key, number in self._of.items() if number in kept}


@dataclass(frozen=True, slots=True)
class Table:
    """Runs of a state in order of a key and of their last tuples: ``codes`` are made of both."""

    codes: Ints
    runs: Runs
    base: int
    width: int

    @classmethod
    def of(cls, number: Ints, runs: Runs, base: int, until: int) -> Table:
        """The runs whose key is defined; positions lie from ``base`` to ``until``."""
        width = until - base + 1
        kept = np.flatnonzero(number >= 0)
        codes = number[kept] * width + (runs.last[kept] - base)
        order = np.argsort(codes, kind="stable")
        return cls(codes[order], runs.taken(kept[order]), base, width)

    def near(self, number: Ints, first: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Of each key where its runs begin that end from ``first`` on, and how many end before ``until``."""
        code = number * self.width - self.base
        begin = np.searchsorted(self.codes, code + first)
        end = np.searchsorted(self.codes, code + until)
        return begin, np.where(number < 0, 0, end - begin)
