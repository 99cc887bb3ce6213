"""Keyword queries over the windows of an expression.

Only tracking shows how far windows reach back, and records before the oldest
open window still decide where windows begin. So the queries keep
their own state instead of a log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import orjson

from skws.data.batch import RecordBatch
from skws.queries.evaluator import Counts, Load, OrderedBatch
from skws.queries.keywords.diagnosis import EmptyResult
from skws.queries.keywords.keyword_plans import SearchPlan, keyword_plan
from skws.queries.operator import Operator, QueryPlan, StreamState
from skws.queries.windowed.stream_windows import NOT_BEGUN, WindowSpan
from skws.queries.windowed.window_plan import admit, check_same_windows, window_notes
from skws.queries.windowed.windowed_engine import WindowedEngine
from skws.results.result import Result
from skws.spec.query_spec import ALLOWED, SIZE, WINDOW, Query, Stream
from skws_schema.errors import UsageError, shown
from skws_schema.evolution import nameable
from skws_windows.window import ExpressionWindow


class WindowedPlan(SearchPlan):
    """The plan of a keyword query over windows of an expression. The constructor also raises SchemaError."""

    def __init__(self, query: Query, stream: Stream) -> None:
        self._window = _window(query)
        super().__init__(query, stream, keyword_plan(query, stream, self._window, None))
        if query.scored or SIZE in query.options:
            raise UsageError(
                "--rank and --top cannot be combined with a window expression: "
                "all results of a window are emitted when it ends"
            )
        self._warning = admit(nameable(stream.schema), self._window, allowed=ALLOWED in query.options)

    @property
    def warning(self) -> str:
        return self._warning

    @property
    def notes(self) -> tuple[str, ...]:
        return (*super().notes, *window_notes(self.stream.schema, self._window))

    def check_change(self, before: Stream) -> None:
        """The state is kept if the same automata find the windows."""
        check_same_windows(before.schema, self.stream.schema, self._window)

    def group(self, state: StreamState) -> Hashable | None:
        """Queries that begin at the same position with the same window and size share an engine."""
        if not state.share.owns(self.query.name):
            return None
        return self._window, self._search.max_size, state.order.next

    def operator(self, state: StreamState) -> WindowedOperator:
        return WindowedOperator(state, self._window)


class WindowedOperator(Operator):
    """Keyword queries over the same windows, answered by one engine from the next record on."""

    def __init__(self, state: StreamState, window: ExpressionWindow) -> None:
        self._state = state
        self._window = window
        self._plans: dict[str, QueryPlan] = {}
        self._engine: WindowedEngine | None = None  # from the first record on
        self._cached_state: bytes | None = None  # the state, until the next record

    @property
    def waits(self) -> bool:
        """True if records wait; windows that are open at the end produce no results."""
        return self._state.order.waits

    def load_tables(self, batches: Sequence[RecordBatch]) -> list[Result]:  # noqa: ARG002 - the state has all tables
        return self._static_results(list(self._plans))

    def add(self, plans: Sequence[QueryPlan]) -> list[Result]:
        """Returns the results of static tuples alone: others are emitted when their window ends.

        The log is not read: its length depends on other queries,
        and its first record would decide where windows begin.
        """
        self._take_up(plans)
        return self._static_results([plan.query.name for plan in plans])

    def remove(self, name: str) -> None:
        del self._plans[name]
        if self._engine is not None:
            self._engine.remove(name)

    def why_nothing(self, plan: QueryPlan) -> EmptyResult | None:
        if self._engine is None or plan.search is None:
            return None
        return self._engine.why_nothing(plan.search)

    def process(self, arrived: OrderedBatch) -> dict[str, Iterable[Result]]:
        if self._engine is None:
            self._engine, _ = self._new_engine(self._plans)
            self._engine.seek(arrived.position)
        self._cached_state = None
        return self._by_name(self._plans, self._engine.process_batches([arrived.batch]))

    def snapshot(self) -> dict[str, bytes]:
        return dict.fromkeys(self._plans, self._bytes())

    def restore(self, states: Mapping[str, bytes], plans: Sequence[QueryPlan]) -> None:
        self._take_up(plans)
        state = orjson.loads(states[plans[0].query.name])
        if state is not None:
            self._engine, _ = self._new_engine(self._plans)
            self._engine.restore(state)

    def load(self) -> Load:
        return Load() if self._engine is None else self._engine.load()

    def counts(self) -> list[Counts]:
        return [] if self._engine is None else [self._engine.counts]

    def window_spans(self) -> list[WindowSpan]:
        return [] if self._engine is None else self._engine.window_spans()

    def _take_up(self, plans: Sequence[QueryPlan]) -> None:
        """Add queries to the present engine, if there is one, and to later ones."""
        self._plans |= {plan.query.name: plan for plan in plans}
        if self._engine is not None:
            _answer(self._engine, plans)

    def _new_engine(self, names: Iterable[str]) -> tuple[WindowedEngine, list[Result]]:
        """An engine with some queries and the static tables; and the results of static tuples alone."""
        engine = WindowedEngine(self._state.stream.schema, self._window)
        _answer(engine, [self._plans[name] for name in names])
        return engine, list(engine.load_tables(self._state.tables))

    def _static_results(self, names: Sequence[str]) -> list[Result]:
        """The results of static tuples alone, query by query."""
        if not self._state.tables:
            return []
        results_by_name = self._by_name(names, self._new_engine(names)[1])
        return [result for results in results_by_name.values() for result in results]

    def _by_name(self, names: Iterable[str], results: Iterable[Result]) -> dict[str, Iterable[Result]]:
        results_by_name: defaultdict[str, list[Result]] = defaultdict(list)
        for result in results:
            results_by_name[result.name].append(result)
        return {name: results_by_name[name] for name in names}

    def _bytes(self) -> bytes:
        """The state of all queries, cached until the next record."""
        if self._cached_state is None:
            self._cached_state = NOT_BEGUN if self._engine is None else orjson.dumps(self._engine.state())
        return self._cached_state


def _answer(engine: WindowedEngine, plans: Iterable[QueryPlan]) -> None:
    for plan in plans:
        if plan.search is not None:
            engine.add(plan.search)


def _window(query: Query) -> ExpressionWindow:
    text = query.options.get(WINDOW)
    if text is None:
        raise UsageError(f"query {shown(query.name)}: expected a window expression")
    return ExpressionWindow(text)
