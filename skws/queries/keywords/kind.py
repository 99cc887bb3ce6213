"""Keyword queries of a session: one engine, since they share live tuples and operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from skws.data.batch import LongBatch, RecordBatch
from skws.keywords.keyword_matching import ordered_by_sample
from skws.queries.evaluator import Counts, Load, OrderedBatch
from skws.queries.keywords.diagnosis import EmptyResult
from skws.queries.keywords.engine import KeywordEngine
from skws.queries.keywords.keyword_plans import SearchPlan, keyword_plan, ranking_of
from skws.queries.keywords.present_rows import PresentRows
from skws.queries.keywords.searching import Searched
from skws.queries.keywords.updates import Begin
from skws.queries.operator import NOTHING_LIVES, SHARED, Begins, LiveOperator, QueryPlan, StreamState
from skws.queries.order import Order
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws.store.live_store import LiveRecords
from skws_mesh.backend import OperatorUse
from skws_schema.errors import UsageError, shown
from skws_schema.evolution import SchemaChange
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Window


class KeywordPlan(SearchPlan):
    def __init__(self, query: Query, stream: Stream) -> None:
        ranking = ranking_of(query.options)
        super().__init__(query, stream, keyword_plan(query, stream, stream.window, ranking, stream.evaluator))

    def check_change(self, before: Stream) -> None:
        """The engine continues with any schema over which its queries can be read."""

    def group(self, state: StreamState) -> str | None:
        return SHARED if state.share.answers(self.query.text) else None

    def operator(self, state: StreamState) -> LiveKeywords:
        return LiveKeywords(state)


class LiveKeywords(LiveOperator):
    """The keyword queries of a session. They share an engine, which corrects its results for late records."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._engine: KeywordEngine | None = None
        state.live = self

    def begin(self) -> None:
        self._engine = self._new()

    @property
    def in_order(self) -> bool:
        """True under a count window; under a window of time, late records correct results."""
        return self._state.stream.by_count

    @property
    def adding_needs_log(self) -> bool:
        """False once there is an engine, which has the live tuples."""
        return self._engine is None

    @property
    def keeps(self) -> Window | None:
        return None if self._engine is None else self._state.stream.window

    def load_tables(self, batches: Sequence[RecordBatch]) -> list[Result]:
        return [] if self._engine is None else list(self._engine.load_tables(batches))

    def add(self, plans: Sequence[QueryPlan]) -> list[Result]:
        if self._engine is None:
            self._engine = self._engine_of_log()
        sample = self._state.stream.sample
        searches = [plan.search for plan in plans if plan.search is not None]
        return list(self._engine.add_all([ordered_by_sample(search, sample) for search in searches]))

    def remove(self, name: str) -> None:
        if self._engine is not None:
            self._engine.remove(name)

    def alive(self, name: str) -> list[Result]:
        return [] if self._engine is None else list(self._engine.alive(name))

    def prepare_searches(self, most: int) -> bool:
        return self._engine is not None and self._engine.prepare_searches(most)

    def completions(self, start: str, most: int) -> list[tuple[str, int]]:
        return [] if self._engine is None else self._engine.completions(start, most)

    def present(self, since: int | None) -> PresentRows | None:
        return None if self._engine is None else self._engine.present(since)

    def search(self, plan: QueryPlan, most: int) -> Searched:
        if self._engine is None:
            raise UsageError(NOTHING_LIVES)
        if plan.search is None:
            raise UsageError(f"{shown(plan.query.text)}: only keyword queries can search the live tuples")
        return self._engine.search(ordered_by_sample(plan.search, self._state.stream.sample), most)

    def why_nothing(self, plan: QueryPlan) -> EmptyResult | None:
        if self._engine is None or plan.search is None:
            return None
        return self._engine.why_nothing(plan.search)

    def process(self, arrived: OrderedBatch) -> dict[str, Iterable[Result]]:
        if self._engine is None:
            return {}
        return {SHARED: _results_of(self._engine, self._state.order, arrived)}

    def take_up(self, log: LongBatch) -> LongBatch:
        return log if self._engine is None else self._engine.take_up(log)

    def make_space(self, tuples: int) -> None:
        if self._engine is not None:
            self._engine.make_space(tuples)

    def replay(self, arrived: OrderedBatch) -> None:
        if self._engine is not None:
            if self._state.order.final is not None:
                self._engine.await_late()
            self._engine.replay(arrived)

    def change_schema(self, change: SchemaChange, text: str) -> dict[str, list[Result]]:
        if self._engine is None:
            return {}
        schema, state = parse_schema(text, default_name=change.before.name), self._state
        tick = state.order.at(state.time)
        self._engine.reach(tick, tick if state.stream.by_count else state.order.horizon)
        return {SHARED: list(self._engine.change_schema(schema, state.time))}

    def seek(self) -> None:
        if self._engine is not None:
            self._reach_present(self._engine)

    def snapshot(self) -> dict[str, bytes]:
        state = b"" if self._engine is None else self._engine.snapshot()
        return {SHARED: state} if state else {}

    def expect(self) -> None:
        if self._engine is not None:
            self._engine.expect(self._state.expected.get(SHARED, b""))

    def begins(self) -> dict[str, list[Begin]]:
        return {} if self._engine is None else {SHARED: self._engine.begins()}

    def all_begins(self) -> dict[str, list[Begin]]:
        return {} if self._engine is None else {SHARED: self._engine.all_begins()}

    def expect_begins(self, begins: Begins) -> None:
        if self._engine is not None:
            self._engine.expect_begins(begins.get(SHARED, ()))

    @property
    def lasts(self) -> bool:
        return self._engine is not None

    @property
    def living(self) -> int:
        return 0 if self._engine is None else self._engine.living

    def living_tuples(self) -> list[Result]:
        return [] if self._engine is None else self._engine.living_tuples()

    def live_records(self) -> LiveRecords | None:
        return None if self._engine is None else self._engine.live_records()

    def load(self) -> Load:
        return Load() if self._engine is None else self._engine.load()

    def counts(self) -> list[Counts]:
        return [] if self._engine is None else [self._engine.counts]

    def used(self, name: str | None) -> list[OperatorUse]:
        return [] if self._engine is None else self._engine.used(name)

    def _engine_of_log(self) -> KeywordEngine:
        """A new engine that has processed the log."""
        state = self._state
        engine, order = self._new(), Order(state.stream)
        for accepted in state.accepted_batches(order, state.past()):
            in_order = order.in_order(accepted)
            _exhaust(_results_of(engine, order, in_order if self.in_order else order.at_once(accepted)))
        self._reach_present(engine)
        return engine

    def _reach_present(self, engine: KeywordEngine) -> None:
        order = self._state.order
        if order.final is not None:
            engine.await_late()
        engine.reach(order.now, order.horizon)

    def _new(self) -> KeywordEngine:
        state, stream = self._state, self._state.stream
        engine = KeywordEngine(
            stream.schema,
            stream.window,
            lateness=stream.lateness,
            accepts_root=state.share.accepts_root(),
            updates=stream.updates,
            on_demand=stream.mesh is None,
        )
        if state.order.final is not None:
            engine.await_late()
        _exhaust(engine.load_tables(state.tables))  # and tables with their own source
        engine.expect(state.expected.get(SHARED, b""))
        return engine


def _results_of(engine: KeywordEngine, order: Order, arrived: OrderedBatch) -> Iterator[Result]:
    if order.final is not None:
        engine.await_late()
    return engine.take(arrived)


def _exhaust(results: Iterable[Result]) -> None:
    for _ in results:
        pass
