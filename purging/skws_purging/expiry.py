"""A queue of items by the tick at which they expire."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class ExpiryQueue(Generic[T]):
    """Items leave when their end has come. An item may be queued again when its end changes.

    Most tuples expire in the order of their arrival: those are in a plain queue,
    at a tenth of a heap's cost, the others in a heap.
    """

    def __init__(self) -> None:
        self._in_order: deque[tuple[int, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        self._last = -(1 << 63)
        self._order = count()  # items need no order of their own

    def __len__(self) -> int:
        return len(self._in_order) + len(self._heap)

    def push(self, end: int, item: T) -> None:
        if end >= self._last:
            self._last = end
            self._in_order.append((end, item))
        else:
            heappush(self._heap, (end, next(self._order), item))

    def expired(self, horizon: int) -> Iterator[tuple[int, T]]:
        """Remove and return (end as queued, item) up to ``horizon``."""
        queue, heap = self._in_order, self._heap
        while queue and queue[0][0] <= horizon:
            yield queue.popleft()
        if not queue:
            self._last = -(1 << 63)
        while heap and heap[0][0] <= horizon:
            end, _, item = heappop(heap)
            yield end, item
