"""Policies of purging the outputs of operators, eagerly or lazily (S-KWS paper, Section 4.3).

Both policies purge sources at once. Negative tuples are handled independently (``negative_tuples.py``).

A sweep reads a whole table. So the next sweep waits until as many entries have been added as the last one
left: each entry is read a constant number of times, and at most about half of a table is dead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Generic, Protocol, Self, TypeVar

from skws_purging.composites import Members, MeshTuple


class OutputBuffer(Protocol):
    """The composite tuples in the output of an operator."""

    @property
    def entries(self) -> Collection[Members]: ...

    def drop_dead(self, horizon: int) -> bool:
        """Remove the composites that ended at or before ``horizon``; True if there were any."""
        ...

    def expunge(self, dead_tuple: MeshTuple) -> bool:
        """Remove the composites that contain a tuple; True if there were any."""
        ...

    def clear(self) -> None: ...


class PurgedOperator(Hashable, Protocol):
    """A source or a join whose output is purged."""

    @property
    def out(self) -> OutputBuffer: ...

    @property
    def linked(self) -> bool:
        """False once the operator has been removed from the mesh."""
        ...

    def consumers(self) -> Iterable[Self]:
        """The operators that read its output."""
        ...


Op = TypeVar("Op", bound=PurgedOperator)


class PurgePolicy(Generic[Op]):
    """Observes events of operators and purges their outputs; in this base class, events have no effect.

    ``due``: the tick a window's length from now. ``dries_up`` is called with an operator that has lost its
    last output.
    """

    dries_up: Callable[[Op], None]

    def use(self, *, tables: bool) -> None:
        """The schema has changed; ``tables``: True if it has static tables."""

    def probed(self, operator: Op, horizon: int) -> None:
        """The output is about to be probed."""

    def produces(self, operator: Op, due: int) -> None:
        """The operator has output, perhaps for the first time."""

    def falls_asleep(self, operator: Op, due: int) -> None: ...
    def wakes(self, operator: Op) -> None: ...
    def forgets(self, operator: Op) -> None:
        """The operator is removed from the mesh."""

    def sources_expired(self, sources: Iterable[Op], horizon: int) -> None:
        """Tuples of these sources have expired."""

    def time_passes(self, horizon: int, due: int) -> None: ...
    def nothing_lives(self) -> None: ...

    def drop_dead(self, operator: Op, horizon: int) -> bool:
        """Purge one output; True if anything was dead."""
        is_changed = operator.out.drop_dead(horizon)
        if is_changed and not operator.out.entries:
            self.dries_up(operator)
        return is_changed


T = TypeVar("T")


class EagerPurging(PurgePolicy[Op]):
    """Removes expired tuples from every output at once, from the source upwards (Figure 4.5)."""

    def sources_expired(self, sources: Iterable[Op], horizon: int) -> None:
        for source in sources:
            purge_upwards(
                source.consumers(),
                lambda operator: self.drop_dead(operator, horizon),
                lambda operator: operator.consumers(),
            )


def purge_upwards(
    operators: Iterable[T], drop: Callable[[T], bool], consumers: Callable[[T], Iterable[T]]
) -> None:
    """Purge the operators, and those above each one that had something to drop.

    ``drop`` purges an operator's output, and returns whether it removed anything: if not, the operators above
    have nothing to remove either.
    """
    for operator in operators:
        if drop(operator):
            purge_upwards(consumers(operator), drop, consumers)


Sleeper = TypeVar("Sleeper", bound=Hashable)


class SleepQueue(Generic[Sleeper]):
    """Operators in the order in which they fell asleep: the doubly linked list Q of the paper."""

    def __init__(self) -> None:
        self._queue: OrderedDict[Sleeper, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, operator: Sleeper) -> bool:
        return operator in self._queue

    def append(self, operator: Sleeper, due: int) -> None:
        """Queue an operator whose output has expired at tick ``due``, which never decreases."""
        self._queue.pop(operator, None)
        self._queue[operator] = due

    def discard(self, operator: Sleeper) -> None:
        """Remove an operator that wakes up or leaves the mesh."""
        self._queue.pop(operator, None)

    def pop_due(self, horizon: int) -> Iterator[Sleeper]:
        """Remove and return the operators that are due."""
        while self._queue and next(iter(self._queue.values())) <= horizon:
            yield self._queue.popitem(last=False)[0]

    def drain(self) -> Iterator[Sleeper]:
        """Remove and return all operators."""
        while self._queue:
            yield self._queue.popitem(last=False)[0]


class LazyPurging(PurgePolicy[Op]):
    """Removes expired tuples from an output when it is probed, and within two windows.

    The paper's guarantee needs demand-driven execution, where only outputs of sleeping operators are not
    probed. Running operators are queued, too, without demand, and if there are static tables, whose tuples
    keep operators awake although they never arrive again.
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
        # If it is queued already, it is purged sooner.
        if operator.out.entries and operator not in self.queue:
            self.queue.append(operator, due)

    def wakes(self, operator: Op) -> None:
        if not self._watch_all:
            self.queue.discard(operator)

    def forgets(self, operator: Op) -> None:
        self.queue.discard(operator)

    def time_passes(self, horizon: int, due: int) -> None:
        for operator in tuple(self.queue.pop_due(horizon)):
            self.drop_dead(operator, horizon)
            # Static tuples joined with each other stay; a running operator may have new output.
            if operator.linked and operator.out.entries:
                self.queue.append(operator, due)

    def nothing_lives(self) -> None:
        """Purge everything: without a live tuple every composite is dead."""
        for operator in self.queue.drain():
            operator.out.clear()
            self.dries_up(operator)


LEAST = 1024
_MANY_DEAD = 1 << 18  # dead entries that are worth a sweep, unless they are few compared with the live ones


class Sweep:
    """Decides when the next sweep is worthwhile; the owner of the tables performs it."""

    def __init__(self) -> None:
        self._remaining = self._read = 0
        self._growth = LEAST
        self._horizon: int | None = None

    def is_due(self, horizon: int, entries: int) -> bool:
        """True if a sweep up to ``horizon`` is worth reading ``entries`` entries."""
        if horizon == self._horizon or entries <= self._remaining + self._growth:
            return False
        self._read = entries
        return True

    def record(self, horizon: int, remaining: int) -> None:
        """Record a sweep that left some entries; the next one waits for as many new ones."""
        is_futile = 8 * (self._read - remaining) < self._read
        self._growth = LEAST + (remaining if is_futile else max(remaining // 4, min(remaining, _MANY_DEAD)))
        self._remaining = remaining
        self._horizon = horizon
