"""The columnar engine for bounded queries: it forgets tuples that no later one can join.

It holds the tuples of tables, of finite streams and of relations with
finitely many keys; of endless streams only those of the current instant.

Its state is the tuples alive at the horizon, and the records from there on:
within the lateness others may come between them. It is restored by processing
records again. The name of a tuple depends on equal tuples before it in its instant; so such
tuples, and their deletions, are processed too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np
import orjson

from skws.data.batch import OnLate, Record, RecordBatch, together, unheard
from skws.data.blocks import TruncationBlock
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.memory_guard import FORCE, lasting, lasts_by_key, memory_of, refuse_unbounded
from skws.results.model import Result
from skws.spec.enums import ToldUpdates
from skws_bounds.names import Promises
from skws_mesh.columnar.columns import distinct
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_schema.errors import BadRecordsError
from skws_schema.model import Relation, Row, Schema, Value
from skws_windows.window import Unbounded, Window


def packed(alive: Iterable[StreamTuple], recent: Iterable[Record]) -> bytes:
    """The tuples alive at a horizon and the records from there on, as JSON."""
    past = [(t.relation, t.time, t.row, t.occurrence) for t in alive]
    return orjson.dumps([past, list(map(tuple, recent))])


def unpacked(state: bytes) -> list[Record]:
    """Records in order of time that lead to a state."""
    past, recent = orjson.loads(state)
    records = [Record(relation, time, tuple(row), delete) for relation, time, row, delete in recent]
    return sorted([*_leading_to(past), *records], key=attrgetter("time"))


def _leading_to(past: Iterable[tuple[int, int, list[Value], int]]) -> Iterator[Record]:
    seen: Counter[tuple[object, ...]] = Counter()
    for relation, time, values, occurrence in past:
        row = tuple(values)
        for _ in range(occurrence - seen[relation, time, row]):
            yield Record(relation, time, row)
            yield Record(relation, time + 1, row, True)
        seen[relation, time, row] = occurrence + 1
        yield Record(relation, time, row)


_ENDLESS = Unbounded()


class BoundedEngine(ColumnarEngine):
    """Answers bounded queries over one stream without a window, in memory that does not grow.

    A query that is added later gives no results of forgotten tuples.
    """

    def __init__(
        self,
        schema: Schema,
        window: Window = _ENDLESS,
        on_late: OnLate = unheard,
        *,
        lateness: int = 0,
        accepts_root: Callable[[Row], bool] | None = None,
        updates: ToldUpdates = ToldUpdates.TELL,
    ) -> None:
        super().__init__(
            schema, window, on_late, lateness=lateness, accepts_root=accepts_root, updates=updates
        )
        self._until = 0
        self._recent = RecordBatch.of(())
        self._know(schema)

    def add_all(self, plans: Mapping[str, Plan]) -> list[Result]:
        """Answer queries from now on. Raises UsageError if one is not bounded."""
        for plan in plans.values():
            refuse_unbounded(plan)
        found = super().add_all(plans)
        self._until = max([self._until, *(memory_of(plan).until for plan in plans.values())])
        return found

    def process_batches(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Process records as columns.

        Raises BadRecordsError for records that the verdicts exclude: a deletion
        from an endless stream, a value outside the bounds in the schema, a NULL
        in a key whose bounds limit the number of live tuples.
        """
        return super().process_batches(map(self._checked, batches))

    def expire(self, tick: int) -> None:
        """Let time pass; forget the tuples of earlier instants."""
        self._order.reach(tick)
        self._forget()
        super().expire(tick)

    def change_schema(self, schema: Schema, time: int) -> list[Result]:
        """Go on with another schema. Raises UsageError, as it was, if a query is not bounded there."""
        for _, plan in self._queries:
            refuse_unbounded(plan.over(schema))
        found = super().change_schema(schema, time)
        self._know(self.schema)
        return found

    def snapshot(self) -> bytes:
        """The state besides tables, of constant size."""
        tuples, horizon = self._operator.live.tuples, self._order.horizon
        past = (tuples.start != ALWAYS) & (tuples.start < horizon) & (tuples.end >= horizon)
        alive = map(self._operator.known.member, np.flatnonzero(past).tolist())
        return packed(alive, self._recent.records())

    def restore(self, state: bytes) -> None:
        """Inverse of ``snapshot``; after tables and queries, before the stream."""
        for _ in super().process_batches([RecordBatch.of(unpacked(state))]):
            pass  # given before

    def _know(self, schema: Schema) -> None:
        self._promises = Promises(schema)
        passing = [n for n, relation in enumerate(schema.relations) if not lasting(relation)]
        self._passing = np.array(passing, dtype=np.int64)

    def _batch(self, batch: RecordBatch) -> Iterator[list[Result]]:
        yield from super()._batch(batch)
        recent = together([self._recent, batch])
        self._recent = recent.taken(recent.time >= self._order.horizon)
        self._forget()

    def _forget(self) -> None:
        """End the tuples of endless streams from earlier instants; their results stay."""
        horizon = self._order.horizon
        if horizon < self._until:
            return
        tuples = self._operator.live.tuples
        passed = np.isin(tuples.relation, self._passing) & (tuples.start < horizon) & (tuples.end > horizon)
        slots = np.flatnonzero(passed)
        if len(slots):
            self._operator.end(slots, np.full(len(slots), ALWAYS))
            self._results.shorten(slots, self._operator.live.tuples.end)

    def _checked(self, batch: RecordBatch) -> RecordBatch:
        if batch.delete is not None:
            deleted = set(distinct(batch.relation[batch.delete]).tolist())
            for number in deleted.intersection(self._passing.tolist()):
                raise BadRecordsError(
                    f"a record deletes a tuple of {self.schema.relations[number].name}, whose tuples are not "
                    f"kept, as there is no window: give the streams one, or keep everything ({FORCE})"
                )
        for block in batch.rows.blocks:
            if isinstance(block, TruncationBlock):
                continue
            relation = self.schema.relations[block.relation]
            for column, attribute in self._promises.columns.get(relation.name, ()):
                self._promises.check(relation.name, attribute, block.values(column))
            for column in relation.key_columns if lasts_by_key(relation) else ():
                self._check_key(relation, column, block.values(column))
        return batch

    def _check_key(self, relation: Relation, column: int, values: Sequence[Value]) -> None:
        if None in values:
            raise BadRecordsError(
                f"{relation.name}.{relation.attributes[column].name} is NULL, so the row has no key and "
                "replaces nothing: without a window there is no bound on such rows; give the streams one, "
                f"or keep everything ({FORCE})"
            )
