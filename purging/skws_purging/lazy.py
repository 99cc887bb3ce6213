"""Lazy purging: when an output is probed, and of sleeping operators by a queue (S-KWS paper, Section 4.3).

Once an operator has slept for a window's length, all of its output has
expired and can be cleared: no dead tuple stays for longer than two windows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from skws_purging.policy import Op, PurgePolicy

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
        """Queue an operator; at tick ``due``, which never decreases, all its output has expired."""
        self._queue.pop(operator, None)
        self._queue[operator] = due

    def discard(self, operator: T) -> None:
        """The operator wakes up, or is taken out."""
        self._queue.pop(operator, None)

    def due(self, horizon: int) -> Iterator[T]:
        """Remove and return the operators that are due."""
        while self._queue and next(iter(self._queue.values())) <= horizon:
            yield self._queue.popitem(last=False)[0]

    def drain(self) -> Iterator[T]:
        """Remove and return all operators."""
        while self._queue:
            yield self._queue.popitem(last=False)[0]


class LazyPurging(PurgePolicy[Op]):
    """Expired tuples leave an output when it is probed, or at the latest after two windows.

    The paper's guarantee needs demand-driven execution, where an output that
    is not probed belongs to a sleeping operator. Running operators are queued
    as well without demand, and where there are static tables, whose tuples keep
    operators awake without ever arriving again.
    """

    def __init__(self, by_demand: bool) -> None:
        self._by_demand = by_demand
        self._watch_all = not by_demand
        self.queue: SleepQueue[Op] = SleepQueue()

    def use(self, *, tables: bool) -> None:
        self._watch_all = tables or not self._by_demand

    def probed(self, operator: Op, horizon: int) -> None:
        self.drop_dead(operator, horizon)

    def produces(self, operator: Op, due: int) -> None:
        if self._watch_all and operator not in self.queue:
            self.queue.append(operator, due)

    def falls_asleep(self, operator: Op, due: int) -> None:
        # If it is queued already, its turn comes sooner.
        if operator.out.entries and operator not in self.queue:
            self.queue.append(operator, due)

    def wakes(self, operator: Op) -> None:
        if not self._watch_all:
            self.queue.discard(operator)

    def forgets(self, operator: Op) -> None:
        self.queue.discard(operator)

    def time_passes(self, horizon: int, due: int) -> None:
        for operator in tuple(self.queue.due(horizon)):
            self.drop_dead(operator, horizon)
            # Static tuples joined with each other stay; a running operator may have new output.
            if operator.linked and operator.out.entries:
                self.queue.append(operator, due)

    def nothing_lives(self) -> None:
        """Without a live tuple every composite is dead, so none need wait for its turn."""
        for operator in self.queue.drain():
            operator.out.clear()
            self.dries_up(operator)
