"""What is stored of a stream: the values that later tuples need, with counters (Example Queries)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from bounds.binding import Key, Table
from schema.model import Value


class Keep(Enum):
    """What an entry holds: how often it occurred, only that it did, or the least or greatest of one value."""

    COUNT = "count"
    FLAG = "flag"
    LEAST = "least"
    GREATEST = "greatest"

    @property
    def merge(self) -> Callable[[Any, Any], Any]:
        return _MERGES[self]


def _add(one: int, other: int) -> int:
    return one + other


def _once(one: int, other: int) -> int:  # noqa: ARG001 - the counters of a set
    return 1


_MERGES: dict[Keep, Callable[[Any, Any], Any]] = {
    Keep.COUNT: _add,
    Keep.FLAG: _once,
    Keep.LEAST: min,
    Keep.GREATEST: max,
}


class Synopsis:
    """The synopsis of one node: ``new`` of the current time step, ``past`` of all before.

    ``classes``: what an entry's key holds, ``probe``: those of them by which
    it is looked up.
    """

    def __init__(self, classes: tuple[int, ...], probe: tuple[int, ...], keep: Keep) -> None:
        self.keep = keep
        self.layout = probe, tuple(c for c in classes if c not in probe)
        self.new: dict[Key, Any] = {}
        self.past: Table = {}
        self._probe = [classes.index(c) for c in probe]
        self._rest = [classes.index(c) for c in self.layout[1]]
        self._merge = keep.merge
        self.entries = 0

    def insert(self, key: Key, value: Any) -> None:
        """Enter a combination of values at the current time step."""
        self.new[key] = self._merge(self.new[key], value) if key in self.new else value

    def pass_on(self) -> None:
        """Move what is new into the past, at the marker of the next time step."""
        for key, value in self.new.items():
            group = self.past.setdefault(tuple([key[i] for i in self._probe]), {})
            rest = tuple([key[i] for i in self._rest])
            if rest in group:
                group[rest] = self._merge(group[rest], value)
            else:
                group[rest] = value
                self.entries += 1
        self.new.clear()

    def snapshot(self) -> list[Any]:
        """All entries between two time steps, as JSON."""
        return [[probe, rest, value] for probe, group in self.past.items() for rest, value in group.items()]

    def restore(self, entries: Iterable[Any]) -> None:
        """Hold what a ``snapshot`` was of, and nothing else."""
        self.new.clear()
        self.past.clear()
        self.entries = 0
        for probe, rest, value in entries:
            self.past.setdefault(tuple(probe), {})[tuple(rest)] = value
            self.entries += 1


class Ranks:
    """Stands for a value by how it compares with finitely many others.

    All values between two neighbours of ``others`` compare alike, so the first
    one met stands for them all.
    """

    def __init__(self, others: Iterable[Value]) -> None:
        self._others: Sequence[Any] = sorted({v for v in others if v is not None})
        self._first: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        gap = bisect_left(self._others, value)
        if gap < len(self._others) and self._others[gap] == value:
            return value
        return self._first.setdefault(gap, value)

    def snapshot(self) -> list[Any]:
        """The values that stand for others, as JSON."""
        return list(self._first.items())

    def restore(self, first: Iterable[Any]) -> None:
        """Inverse of ``snapshot``."""
        self._first = dict(first)
