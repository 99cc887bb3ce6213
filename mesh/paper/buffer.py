"""Output buffers, which serve as the input buffers of the operators above (S-KWS paper, Section 3.3).

The paper probes by nested loops, since its buffers hold few tuples. Here each
buffer is indexed on the values by which the operators above join it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count, takewhile
from typing import TypeAlias

from mesh.composite import GetKey, Key, Members, end_of, key_getter
from windows.tuples import StreamTuple
from windows.window import FOREVER

Index: TypeAlias = dict[Key, dict[Members, int]]
Columns: TypeAlias = tuple[int, ...]

_order = count()  # composite tuples with equal ends need no order of their own


class Buffer:
    """Composite tuples by arrival: each with the number of the arrival that made it."""

    __slots__ = ("_ends", "_indexes", "entries")

    def __init__(self) -> None:
        self.entries: dict[Members, int] = {}
        self._indexes: dict[tuple[int, Columns], tuple[GetKey, Index]] = {}
        self._ends: list[tuple[int, int, Members]] = []

    def index(self, node: int, columns: Columns) -> Index:
        """Entries by the values that member ``node`` has in ``columns``; NULLs are left out."""
        if (node, columns) not in self._indexes:
            key_of, index = key_getter(columns), Index()
            self._indexes[node, columns] = key_of, index
            for members, arrival in self.entries.items():
                _enter(index, key_of(members[node].row), members, arrival)
        return self._indexes[node, columns][1]

    def add(self, members: Members, arrival: int, end: int) -> None:
        """``end``: when the entry is dead; FOREVER if its owner removes it."""
        self.entries[members] = arrival
        if end < FOREVER:
            heappush(self._ends, (end, next(_order), members))
        for (node, _), (key_of, index) in self._indexes.items():
            _enter(index, key_of(members[node].row), members, arrival)

    def discard(self, members: Members) -> None:
        if self.entries.pop(members, None) is None:
            return
        for (node, _), (key_of, index) in self._indexes.items():
            key = key_of(members[node].row)
            if key is not None:
                # The bucket stays the same object: a probe may be reading it.
                del index[key][members]
                if not index[key]:
                    del index[key]

    def drop_dead(self, horizon: int) -> bool:
        """Remove what ended at or before ``horizon``; True if anything did."""
        dropped = False
        while self._ends and self._ends[0][0] <= horizon:
            members = heappop(self._ends)[2]
            # Expunged before, or prolonged and entered again.
            if members in self.entries and end_of(members) <= horizon:
                self.discard(members)
                dropped = True
        return dropped

    def expunge(self, ended: StreamTuple) -> bool:
        """Remove all that contains a tuple; True if anything does."""
        gone = [members for members in self.entries if ended in members]
        for members in gone:
            self.discard(members)
        return bool(gone)

    def since(self, arrival: int) -> list[tuple[Members, int]]:
        """The entries made by later arrivals than ``arrival``."""
        return [entry for entry in self.entries.items() if entry[1] > arrival]

    def latest(self, arrival: int) -> list[tuple[Members, int]]:
        """The same where entries are in order of arrival, as they are in sources; reads no others."""
        return list(takewhile(lambda entry: entry[1] > arrival, reversed(self.entries.items())))

    def clear(self) -> None:
        self.entries.clear()
        self._ends.clear()
        for _, index in self._indexes.values():
            index.clear()


def _enter(index: Index, key: Key, members: Members, arrival: int) -> None:
    if key is not None:
        index.setdefault(key, {})[members] = arrival
