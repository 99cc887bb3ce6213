"""Keyword queries over a stream without a session, by an engine that orders the records itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from skws.data.batch import OnLate, Record, RecordBatch, align_to_timestamps, batched, unheard
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, OrderedBatch
from skws.queries.keywords.engine import KeywordEngine
from skws.queries.keywords.keyword_operator import USUAL_SIZES, Sizes
from skws.queries.order import StreamOrder
from skws.results.result import Result
from skws.spec.enums import ToldUpdates
from skws_schema.model import Row, Schema
from skws_windows.window import Window

if TYPE_CHECKING:
    from skws.index.database import StoredTuples


class StreamEngine(KeywordEngine):
    """An engine for records in any order; it calls ``on_late`` for each record that is too late.

    The other parameters are those of ``KeywordEngine``.
    """

    def __init__(
        self,
        schema: Schema,
        window: Window,
        on_late: OnLate = unheard,
        *,
        lateness: int = 0,
        accepts_root: Callable[[Row], bool] | None = None,
        updates: ToldUpdates = ToldUpdates.TELL,
        on_demand: bool = True,
        sizes: Sizes = USUAL_SIZES,
    ) -> None:
        super().__init__(
            schema,
            window,
            lateness=lateness,
            accepts_root=accepts_root,
            updates=updates,
            on_demand=on_demand,
            sizes=sizes,
        )
        self._on_late = on_late
        self._order = StreamOrder(by_count=self.by_count, lateness=lateness, on_late=self._late)

    @classmethod
    def of(cls, plan: Plan, on_late: OnLate = unheard) -> StreamEngine:
        """An engine with one query."""
        engine = cls(
            plan.schema,
            plan.window,
            on_late,
            lateness=plan.lateness,
            updates=plan.updates,
            on_demand=plan.mesh is None,
        )
        engine.add(plan)
        return engine

    @classmethod
    def holding(
        cls, plan: Plan, tables: Iterable[RecordBatch], batches: Iterable[RecordBatch], counts: Counts
    ) -> StreamEngine:
        """An engine with the live rows of tables and a stream, for a search. ``counts``: of the records."""
        engine = cls(plan.schema, plan.window)
        engine.counts = counts
        for _ in chain(engine.load_tables(tables), engine.process_batches(batches)):
            pass
        return engine

    @classmethod
    def over(cls, plan: Plan, database: StoredTuples) -> StreamEngine:
        """An engine with the rows of a database, for a search."""
        engine = cls(plan.schema, plan.window)
        engine.counts.static = len(database)
        engine.open_database(database)
        return engine

    def process(self, records: Iterable[Record]) -> Iterator[Result]:
        """Process records in order of arrival. Consecutive records with equal time are one instant."""
        return self.process_batches(batched(records))

    def process_batches(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """As ``process``, for records in columns."""
        return chain.from_iterable(self.take(self._in_order(batch)) for batch in align_to_timestamps(batches))

    def expire(self, tick: int) -> None:
        """Advance time to ``tick`` without a record."""
        self._order.reach(tick)
        self.reach(tick, self._order.horizon)

    def _in_order(self, batch: RecordBatch) -> OrderedBatch:
        position = self._order.position
        batch, ticks = self._order.accepted(batch)
        if len(batch):
            self._order.reach(int(ticks[-1]))
        return OrderedBatch(batch, position, None, self.by_count, self._order.horizon)

    def _late(self, record: Record, latest: int) -> None:
        self.counts.late += 1
        self._on_late(record, latest)
