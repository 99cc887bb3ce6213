"""When the outputs of join operators are cleaned: eager or lazy (S-KWS paper, Section 4.3).

Sources are cleaned at once under both. Negative tuples are no matter of
policy: they travel up the mesh and expunge what holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from mesh.paper.operator import JoinOperator, Producer, Source
from purging.eager import purge_upwards
from purging.lazy import SleepQueue
from schema.model import Schema

DriesUp: TypeAlias = Callable[[Producer], None]


class PurgePolicy(Protocol):
    """Hears what happens to operators, and cleans them. ``due`` is a window's length from now.

    ``dries_up`` is told of operators that have lost their last output.
    """

    dries_up: DriesUp

    def use(self, schema: Schema) -> None: ...
    def probed(self, operator: Producer, horizon: int) -> None: ...
    def produces(self, operator: JoinOperator, due: int) -> None: ...
    def falls_asleep(self, operator: JoinOperator, due: int) -> None: ...
    def wakes(self, operator: JoinOperator) -> None: ...
    def forgets(self, operator: JoinOperator) -> None: ...
    def sources_expired(self, sources: Iterable[Source], horizon: int) -> None: ...
    def time_passes(self, horizon: int, due: int) -> None: ...
    def nothing_lives(self) -> None: ...


class EagerPurging:
    """Expired tuples leave every buffer at once, from the source upwards (Figure 4.5)."""

    dries_up: DriesUp

    def use(self, schema: Schema) -> None: ...
    def probed(self, operator: Producer, horizon: int) -> None: ...
    def produces(self, operator: JoinOperator, due: int) -> None: ...
    def falls_asleep(self, operator: JoinOperator, due: int) -> None: ...
    def wakes(self, operator: JoinOperator) -> None: ...
    def forgets(self, operator: JoinOperator) -> None: ...
    def time_passes(self, horizon: int, due: int) -> None: ...
    def nothing_lives(self) -> None: ...

    def sources_expired(self, sources: Iterable[Source], horizon: int) -> None:
        def drop(operator: JoinOperator) -> bool:
            return drop_dead(operator, horizon, self.dries_up)

        for source in sources:
            purge_upwards(joins_above(source), drop, lambda operator: tuple(operator.parents.values()))


class LazyPurging:
    """Expired tuples leave a buffer when it is probed, or at the latest after two windows.

    The paper's guarantee needs demand-driven execution, where a buffer that
    nobody probes belongs to a sleeping operator. Running operators are queued,
    too, without demand, and where there are static tables, whose tuples keep
    operators awake without ever arriving again.
    """

    dries_up: DriesUp

    def __init__(self, by_demand: bool) -> None:
        self._by_demand = by_demand
        self._watch_all = not by_demand
        self.queue: SleepQueue[JoinOperator] = SleepQueue()

    def use(self, schema: Schema) -> None:
        self._watch_all = not self._by_demand or any(relation.table for relation in schema.relations)

    def probed(self, operator: Producer, horizon: int) -> None:
        drop_dead(operator, horizon, self.dries_up)

    def produces(self, operator: JoinOperator, due: int) -> None:
        """``operator`` has output, and may have had none."""
        if self._watch_all and operator not in self.queue:
            self.queue.append(operator, due)

    def falls_asleep(self, operator: JoinOperator, due: int) -> None:
        # If it is queued already, its turn comes sooner.
        if operator.out.entries and operator not in self.queue:
            self.queue.append(operator, due)

    def wakes(self, operator: JoinOperator) -> None:
        if not self._watch_all:
            self.queue.discard(operator)

    def forgets(self, operator: JoinOperator) -> None:
        self.queue.discard(operator)

    def sources_expired(self, sources: Iterable[Source], horizon: int) -> None: ...

    def time_passes(self, horizon: int, due: int) -> None:
        for operator in tuple(self.queue.due(horizon)):
            drop_dead(operator, horizon, self.dries_up)
            # Static tuples joined with each other stay; a running operator may have new output.
            if operator.linked and operator.out.entries:
                self.queue.append(operator, due)

    def nothing_lives(self) -> None:
        """Without a live tuple every composite is dead, so nothing need wait for its turn."""
        for operator in self.queue.drain():
            operator.out.clear()
            self.dries_up(operator)


def drop_dead(operator: Producer, horizon: int, dries_up: DriesUp) -> bool:
    """Clean one output; True if anything was dead."""
    dropped = operator.out.drop_dead(horizon)
    if dropped and not operator.out.entries:
        dries_up(operator)
    return dropped


def joins_above(source: Source) -> tuple[JoinOperator, ...]:
    """The joins that take tuples of a source directly, from left or right."""
    return (*source.parents.values(), *source.fed)
