"""A queue of things by the tick at which they expire."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class ExpiryQueue(Generic[T]):
    """Items leave in order of expiry. An item may be queued again when its end changes."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._order = count()  # items need no order of their own

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, end: int, item: T) -> None:
        heappush(self._heap, (end, next(self._order), item))

    def expired(self, horizon: int) -> Iterator[tuple[int, T]]:
        """Remove and give (end as queued, item) up to ``horizon``, oldest end first."""
        heap = self._heap
        while heap and heap[0][0] <= horizon:
            end, _, item = heappop(heap)
            yield end, item
