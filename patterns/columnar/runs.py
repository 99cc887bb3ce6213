"""Runs of one state as columns, and tables of them by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count as counted_from
from typing import Final

import numpy as np
import numpy.typing as npt

from patterns.evaluation.program import Key
from schema.model import Value

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
FULL: Final = 1 << 62
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
        packed = _packed(columns)
        if packed is None:
            return self._looked_up(columns, count)
        _, first, which = np.unique(packed, return_index=True, return_inverse=True)
        chosen = first.tolist()
        return self._looked_up([[column[at] for at in chosen] for column in columns], len(chosen))[which]

    def _looked_up(self, columns: Sequence[list[Value]], count: int) -> Ints:
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


def _packed(columns: Sequence[list[Value]]) -> Ints | None:
    """Columns of integers as one, equal where all are; None if there are other values, or no room."""
    packed, room = np.zeros(1, dtype=np.int64), FULL
    for column in columns:
        if not column or set(map(type, column)) != {int}:
            return None
        try:
            values = np.array(column, dtype=np.int64)
        except OverflowError:
            return None
        least = int(values.min())
        span = int(values.max()) - least + 1
        if span > room:
            return None
        room //= span
        packed = packed * span + (values - least)
    return packed


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
        """Of each key where its runs begin that end from ``first`` on, and how many end before ``until``.

        Quick where keys come by position: sorted by number, they are looked up in order.
        """
        order = np.argsort(number, kind="stable")
        code = (number * self.width - self.base)[order]
        begin, end = np.empty_like(number), np.empty_like(number)
        begin[order] = np.searchsorted(self.codes, code + first[order])
        end[order] = np.searchsorted(self.codes, code + until[order])
        return begin, np.where(number < 0, 0, end - begin)
