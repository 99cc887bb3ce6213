"""When the outputs of operators are purged: eagerly or lazily (S-KWS paper, Section 4.3).

Sources are purged at once under both policies. Negative tuples are no matter
of policy (``negative_tuples.py``).

A sweep of a table reads all of it. So it waits until as many entries have come as the
last one left: each entry is then read a constant number of times, and at most
about half of a table is dead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Generic, Protocol, Self, TypeVar

from skws_purging.composites import Members, MeshTuple


class OutputBuffer(Protocol):
    """The composite tuples that an operator has put out."""

    @property
    def entries(self) -> Collection[Members]: ...

    def drop_dead(self, horizon: int) -> bool:
        """Remove what ended at or before ``horizon``; True if anything did."""
        ...

    def expunge(self, ended: MeshTuple) -> bool:
        """Remove all that contains a tuple; True if anything does."""
        ...

    def clear(self) -> None: ...


class PurgedOperator(Hashable, Protocol):
    """A source or a join, as purging sees it."""

    @property
    def out(self) -> OutputBuffer: ...

    @property
    def linked(self) -> bool:
        """False once the operator has been taken out of the mesh."""
        ...

    def consumers(self) -> Iterable[Self]:
        """The operators that read the output."""
        ...


Op = TypeVar("Op", bound=PurgedOperator)


class PurgePolicy(Generic[Op]):
    """Hears what happens to operators, and purges their outputs; here no event has an effect.

    ``due`` is a window's length from now. ``dries_up`` is called with an
    operator that has lost its last output.
    """

    dries_up: Callable[[Op], None]

    def use(self, *, tables: bool) -> None:
        """The schema has changed; ``tables``: it has static ones."""

    def probed(self, operator: Op, horizon: int) -> None:
        """The output is about to be probed."""

    def produces(self, operator: Op, due: int) -> None:
        """The operator has output, and may have had none."""

    def falls_asleep(self, operator: Op, due: int) -> None: ...
    def wakes(self, operator: Op) -> None: ...
    def forgets(self, operator: Op) -> None:
        """The operator is taken out of the mesh."""

    def sources_expired(self, sources: Iterable[Op], horizon: int) -> None:
        """Tuples of these sources have expired."""

    def time_passes(self, horizon: int, due: int) -> None: ...
    def nothing_lives(self) -> None: ...

    def drop_dead(self, operator: Op, horizon: int) -> bool:
        """Purge one output; True if anything was dead."""
        dropped = operator.out.drop_dead(horizon)
        if dropped and not operator.out.entries:
            self.dries_up(operator)
        return dropped


T = TypeVar("T")


class EagerPurging(PurgePolicy[Op]):
    """Expired tuples leave every output at once, from the source upwards (Figure 4.5)."""

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
    """Clean the operators, and those above each that had something to drop.

    ``drop`` cleans an operator's output and returns whether anything was there
    to remove: if not, nothing above can hold it either.
    """
    for operator in operators:
        if drop(operator):
            purge_upwards(consumers(operator), drop, consumers)


Sleeper = TypeVar("Sleeper", bound=Hashable)


class SleepQueue(Generic[Sleeper]):
    """Operators in the order in which they fell asleep: the paper's list Q, doubly linked, with pointers."""

    def __init__(self) -> None:
        self._queue: OrderedDict[Sleeper, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, operator: Sleeper) -> bool:
        return operator in self._queue

    def append(self, operator: Sleeper, due: int) -> None:
        """Queue an operator; at tick ``due``, which never decreases, all its output has expired."""
        self._queue.pop(operator, None)
        self._queue[operator] = due

    def discard(self, operator: Sleeper) -> None:
        """The operator wakes up, or is taken out."""
        self._queue.pop(operator, None)

    def due(self, horizon: int) -> Iterator[Sleeper]:
        """Remove and return the operators that are due."""
        while self._queue and next(iter(self._queue.values())) <= horizon:
            yield self._queue.popitem(last=False)[0]

    def drain(self) -> Iterator[Sleeper]:
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


LEAST = 1024
_MANY = 1 << 18  # dead entries that are worth a sweep, unless they are few beside the living


class Sweep:
    """Decides when the next sweep pays; the owner of the tables does the work."""

    def __init__(self) -> None:
        self._left = self._read = 0
        self._more = LEAST
        self._horizon: int | None = None

    def due(self, horizon: int, entries: int) -> bool:
        """True if a sweep up to ``horizon`` is worth reading ``entries`` entries."""
        if horizon == self._horizon or entries <= self._left + self._more:
            return False
        self._read = entries
        return True

    def done(self, horizon: int, left: int) -> None:
        """After a sweep in vain, as while a database is loaded, the next waits for as many entries more."""
        in_vain = 8 * (self._read - left) < self._read
        self._more = LEAST + (left if in_vain else max(left // 4, min(left, _MANY)))
        self._left = left
        self._horizon = horizon
