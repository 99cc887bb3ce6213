"""Lazy purging: the queue of buffers that nobody probes (S-KWS paper, Section 4.3).

Dead tuples are dropped when a probe meets them. Of a sleeping operator all
output has expired once it has slept for a window's length, and can then be
cleared: no dead tuple stays for longer than two windows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class SleepQueue(Generic[T]):
    """Operators in the order in which they fell asleep: the paper's list Q, doubly linked, with pointers."""

    def __init__(self) -> None:
        self._queue: OrderedDict[T, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, operator: T) -> bool:
        return operator in self._queue

    def append(self, operator: T, due: int) -> None:
        """Queue an operator, last; at tick ``due``, which never decreases, all its output has expired."""
        self._queue.pop(operator, None)
        self._queue[operator] = due

    def discard(self, operator: T) -> None:
        """The operator wakes up, or is no more."""
        self._queue.pop(operator, None)

    def due(self, horizon: int) -> Iterator[T]:
        """Remove and give the operators whose time has come."""
        while self._queue and next(iter(self._queue.values())) <= horizon:
            yield self._queue.popitem(last=False)[0]

    def drain(self) -> Iterator[T]:
        """Remove and give all operators."""
        while self._queue:
            yield self._queue.popitem(last=False)[0]
