"""Runs of one state as columns, and tables of them by key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from patterns.evaluation.program import Key

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
    """Numbers for keys, the same for equal ones; None has none."""

    def __init__(self) -> None:
        self._of: dict[Key, int] = {}
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def given(self, keys: Iterable[Key]) -> Ints:
        """The numbers of keys, new ones for those not known."""
        known, listed = self._of, self._keys
        found = []
        for key in keys:
            number = known.get(key, NONE)
            if number < 0 and key is not None:
                number = known[key] = len(listed)
                listed.append(key)
            found.append(number)
        return np.array(found, dtype=np.int64)

    def known(self, keys: Iterable[Key]) -> Ints:
        """The numbers of keys, NONE for those not known."""
        known = self._of
        return np.array([known.get(key, NONE) for key in keys], dtype=np.int64)

    def forget_but(self, used: Ints) -> Ints:
        """Keep the keys of some numbers alone; gives these, as they are numbered from now on."""
        kept, numbers = np.unique(used, return_inverse=True)
        self._keys = [self._keys[number] for number in kept.tolist()]
        self._of = {key: number for number, key in enumerate(self._keys)}
        return numbers.astype(np.int64)


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
