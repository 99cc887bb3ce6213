"""The state of a stream that all operators of a session read: position, tables and log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.evaluator import OrderedBatch
from skws.queries.order import Order, passed_over
from skws.queries.partitioning import Part
from skws.spec.stream import Stream
from skws_schema.evolution import SchemaChange
from skws_schema.yaml.load import parse_schema


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A micro-batch of the log. ``position`` and ``now``: those of the stream before it."""

    position: int
    now: int
    batch: RecordBatch


Past = Callable[[], Iterable[LoggedBatch]]
"""Gives the log, oldest first.

It ends two windows back, where equal rows may queue that are older. A query that
begins with the log takes a deletion to end the oldest of the rows that it has
read; the deletion may have ended an older one.
"""


@dataclass(slots=True)
class StreamState:
    """``share``: the results that belong to the session. ``tables``: rows of static relations so far.

    ``since``: for relations added by a change of the schema, the position from which their records count.
    ``expected``: the states that the replay of the log leads to, by query.
    """

    stream: Stream
    share: Part
    order: Order
    past: Past
    tables: Sequence[Record] = ()
    since: dict[int, int] = field(default_factory=dict)
    expected: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def time(self) -> int:
        """The latest event time, as far as known."""
        if self.order.latest is not None or self.stream.by_count:
            return self.order.latest or 0
        return max(self.order.now, 0)

    def logged_in_order(self) -> Iterator[OrderedBatch]:
        """The log in order, as evaluators read it."""
        order = Order(self.stream)
        for accepted in self.logged(order):
            arrived = order.in_order(accepted)
            if len(arrived.batch):
                yield arrived

    def logged(self, order: Order) -> Iterator[RecordBatch]:
        """The log under the schema that holds now; ``order`` accepts its batches."""
        gone = self.stream.schema.evolution.removed_relations
        for number, logged in enumerate(self.past()):
            if not number:
                order.seek(logged.position, logged.now)
            earlier = {relation for relation, since in self.since.items() if order.position < since}
            yield order.accepted(passed_over(logged.batch, gone | earlier))


def changed(stream: Stream, text: str) -> Stream:
    """The stream with the schema of a YAML text. Raises SchemaError."""
    after = SchemaChange.between(stream.schema, parse_schema(text, default_name=stream.schema.name)).after
    return replace(stream, schema=after)
