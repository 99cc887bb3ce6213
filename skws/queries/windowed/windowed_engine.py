"""Keyword queries over window expressions: all tuples of a result are in one window.

The tracker of windows reads a batch first. It knows when tuples leave the last
window that may hold them, so the mesh joins live tuples once, however many
windows overlap. A result waits until a window ends that holds all its tuples;
then it is emitted, unless one of them was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import numpy as np

from skws.data.batch import Record, RecordBatch
from skws.index import source_batches
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Load
from skws.queries.keywords.keyword_operator import KeywordOperator, MeshEngine
from skws.queries.keywords.live_results import LiveResults
from skws.queries.keywords.meshes import SharedPlans
from skws.queries.keywords.result_emitter import Event, completed, in_order
from skws.queries.windowed.members import ClosedWindows, EndedWindows, Members
from skws.queries.windowed.stream_windows import BatchSource, StreamWindows, WindowSpan
from skws.results.result import Result
from skws.store.live_store import LiveStore
from skws.store.table_tuples import table_tuples
from skws.store.tuple_batch import TupleBatch
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_purging.lifespans import ALWAYS
from skws_schema.budgets import Footprint, register
from skws_schema.evolution import nameable
from skws_schema.model import Schema, sourced
from skws_windows.processor.spans import ClosedSpans
from skws_windows.window import FOREVER, ExpressionWindow


class WaitingResults(LiveResults):
    """Results that wait for a window to end that holds all their tuples."""

    def __init__(self, operator: KeywordOperator, members: Members) -> None:
        super().__init__()
        self._operator = operator
        self._members = members

    def add(self, results: Partials) -> None:
        """Remember results, except those whose keys differ and those of static tuples alone."""
        agrees, _ = self._members.key_of(results.members)
        super().add(results.take(self._is_streaming(results).any(axis=1) & agrees))

    def forget(self, closed: ClosedSpans) -> None:
        """Drop the results that windows hold: they were emitted before."""
        for _ in self._take_contained(closed):
            pass

    def due(self, closed: ClosedSpans, time: Ints, begin: int) -> Iterator[Event]:
        """Results that windows hold, at the end of the first one. ``time``: by position, from ``begin``."""
        if len(closed.last):
            for results, ends in self._take_contained(closed):
                yield from self._events(results, ends, time[ends - begin])

    def _take_contained(self, closed: ClosedSpans) -> Iterator[tuple[Partials, Ints]]:
        ended_windows = EndedWindows(closed)
        return self.take_due(lambda results: self._first_ends(ended_windows, results))

    def _is_streaming(self, results: Partials) -> Flags:
        """Flags the members that are tuples of streams."""
        starts = self._operator.store.live.tuples.start[results.members]
        flags: Flags = (results.members != NO_MEMBER) & (starts != ALWAYS)
        return flags

    def _first_ends(self, ended_windows: EndedWindows, results: Partials) -> Ints:
        """The end of the first window that holds each result while its tuples are alive, or FOREVER."""
        starts, is_streaming = (
            self._operator.store.live.tuples.start[results.members],
            self._is_streaming(results),
        )
        first = np.where(is_streaming, starts, FOREVER).min(axis=1)
        last = np.where(is_streaming, starts, -1).max(axis=1)
        end = ended_windows.ends(first, last, self._members.key_of(results.members)[1])
        return np.where(end < results.end, end, FOREVER)

    def _events(self, rows: Partials, ends: Ints, time: Ints) -> Iterator[Event]:
        times = self._operator.store.directory.times[rows.members]
        begins = np.where(self._is_streaming(rows), times, ALWAYS).max(axis=1)
        results = self._operator.emitter.results(rows, begins, time)
        for result, tick in zip(results, ends.tolist(), strict=True):
            yield completed(tick, result)


class WindowedEngine(MeshEngine):
    """Answers queries over the windows of one expression, from the first record on.

    A time before the latest one, as a stream with a count window may have, counts as the latest. Raises
    UsageError for an expression that cannot be read.
    """

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        self.schema = schema
        self.window = window
        self.counts = Counts()
        self.now = ALWAYS
        self._windows = StreamWindows(nameable(schema), window)
        self.tracker = self._windows.tracker
        self._operator = KeywordOperator(LiveStore(schema, window), on_compact=self._renumber)
        self._members = Members(schema, self._operator, self.tracker)
        self._waiting_results = WaitingResults(self._operator, self._members)
        self._queries = SharedPlans()
        self._closed = ClosedWindows(self.tracker)
        self._latest_time = ALWAYS  # in microseconds
        register(self)

    @classmethod
    def of(cls, plan: Plan) -> WindowedEngine:
        """An engine with one query, whose window is an expression."""
        assert isinstance(plan.window, ExpressionWindow)  # noqa: S101 - the caller has checked
        engine = cls(plan.schema, plan.window)
        engine.add(plan)
        return engine

    def add(self, plan: Plan) -> None:
        """Answer a query from now on; its results are emitted when windows end."""
        number, is_new, _ = self._queries.add(plan)
        if is_new:
            for partials in self._operator.add(number, plan):
                self._waiting_results.add(partials)

    def remove(self, name: str) -> None:
        """Stop answering a query. Raises UsageError if there is none of that name."""
        number, remaining_plan = self._queries.remove(name)
        if remaining_plan is not None:
            self._operator.rename(number, remaining_plan)
            return
        self._waiting_results.remove(number)
        self._operator.remove(number)

    def footprint(self) -> Footprint:
        """The number of entries that the queries hold, and the largest query."""
        return self._operator.footprint(dict(self._queries), self._waiting_results.all_partials())

    def load(self) -> Load:
        """The load, with the results that wait for a window to end."""
        return replace(super().load(), waiting=len(self._waiting_results))

    def window_spans(self) -> list[WindowSpan]:
        """The windows that ended last, in order of their ends, then the open ones, oldest first."""
        return self._windows.window_spans()

    def load_tables(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Insert the static tables, which are in every window; yields the results of static tuples alone."""
        static = table_tuples(self.schema, chain(batches, source_batches(self.schema, sourced(self.schema))))
        self.counts.static += len(static.relation)
        self._members.add_static(len(static.relation))
        results = self._operator.insert(static)
        self.counts.excluded = self._operator.excluded
        yield from self._count_results(list(self._operator.emitter.events(results, snapshot=True)))

    def process_batches(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Process records in columns, in order of arrival."""
        for batch in batches:
            if len(batch):
                yield from self._count_results(self.events(batch))

    def seek(self, position: int) -> None:
        """Move to a position; the records before it are not processed."""
        self.tracker.position = position

    def state(self) -> dict[str, Any]:
        """The state without static tables, in plain values."""
        tuples, directory = self._operator.store.live.tuples, self._operator.store.directory
        slots = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS)).tolist()
        members = [directory.member(slot) for slot in slots]
        return {
            "tracker": self.tracker.state(),
            "tuples": [(m.start, m.time, m.relation, m.row) for m in members],
            "closed": self._closed.state(),
            "followed": sorted(self._members.followed),
            "counts": asdict(self.counts),
            "latest": self._latest_time,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of ``state``, for an engine with the same queries and tables, before the stream.

        The schema may have changed if the same automata find the windows:
        tuples of removed relations are left out.
        """
        self.tracker.restore(state["tracker"])
        removed_relations = self.schema.evolution.removed_relations
        tuples = [each for each in state["tuples"] if each[2] not in removed_relations]
        columns = tuple(map(list, zip(*tuples, strict=True))) or ([], [], [], [])
        positions, times, relations, rows = columns
        records = [Record(r, t, tuple(w), False) for r, t, w in zip(relations, times, rows, strict=True)]
        batch = RecordBatch.of(records)
        start = np.array(positions, dtype=np.int64)
        self._members.add_keys(self.tracker.keys(BatchSource(batch)))
        ends = np.full(len(start), FOREVER, dtype=np.int64)
        tuple_batch = TupleBatch(batch.relation, batch.rows, start, ends, batch.time, start)
        for results in self._operator.insert(tuple_batch):
            self._waiting_results.add(results)
        self._members.follow(set(state["followed"]) - removed_relations)
        self._waiting_results.forget(self._closed.restore(state["closed"]))
        self.counts = Counts(**state["counts"])
        self._latest_time = state["latest"]
        self._operator.excluded = self.counts.excluded  # restored tuples were counted before

    def events(self, batch: RecordBatch) -> list[Event]:
        """The results of a batch in order of time."""
        batch = batch.without_decreasing_times(self._latest_time)
        self._latest_time = int(batch.time[-1])
        deletes = batch.deletes()
        self.counts.deletions += int(deletes.sum())
        self.counts.tuples += len(batch) - int(deletes.sum())
        insertions, begin, spans = self._windows.feed(batch)
        effects = self._members.settle(batch, insertions, spans)
        self.counts.unmatched_deletions += effects.unmatched
        if len(effects.slots):
            self._operator.end(effects.slots, effects.ends)
            self._waiting_results.shorten(effects.slots, self._operator.store.live.tuples.end)
        for results in self._operator.insert(effects.arrivals):
            self._waiting_results.add(results)
        self.counts.excluded = self._operator.excluded
        events = list(self._waiting_results.due(spans.closed, insertions.time, begin))
        self._closed.add(spans.closed)
        self._operator.purge(self.tracker.position)
        self._members.forget()
        if self._closed.crowded:
            self._closed.keep(*self._members.living())
        if self.tracker.is_crowded:
            self.tracker.keep([self._members.keys, *self._closed.keys()])
        return events

    def _renumber(self, horizon: int, slots: Ints) -> None:
        self._members.renumber(slots)
        self._waiting_results.compact(horizon, slots)

    def _count_results(self, events: list[Event]) -> Iterator[Result]:
        for result in self._queries.under_all_names(in_order(events)):
            self.counts.results += 1
            yield result
