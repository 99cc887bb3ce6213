"""Keyword queries over the windows of an expression.

How far windows reach back is known only by following them, and records before
the oldest open one still decide where windows begin. So the queries keep
their own state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import orjson

from skws.data.batch import Record, RecordBatch
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Load, OrderedBatch
from skws.queries.keyword_plans import keyword_plan
from skws.queries.operator import Operator, QueryKind, StreamState
from skws.queries.windowed.engine import WindowedEngine
from skws.queries.windowed.plan import admit, check_same_windows
from skws.queries.windowed.stream_windows import NOT_BEGUN, WindowSpan
from skws.results.model import LiveResult, Result
from skws.spec.query import ALLOWED, SIZE, WINDOW, Query, Stream
from skws_schema.errors import UsageError
from skws_schema.evolution import SchemaChange, nameable
from skws_windows.window import ExpressionWindow


class WindowedKind(QueryKind):
    """Keywords over the windows of an expression."""

    def check(self, query: Query, stream: Stream) -> str:
        """Raises QueryError; SchemaError; UsageError for windows that pile up, and for scores."""
        _plan(query, stream)
        if query.scored or SIZE in query.options:
            raise UsageError(
                "--rank and --top cannot be combined with a window expression: "
                "the results of a window are given when it ends, all of them"
            )
        return admit(nameable(stream.schema), _window(query), allowed=ALLOWED in query.options)

    def plan(self, query: Query, stream: Stream) -> Plan:
        return _plan(query, stream)

    def window(self, query: Query, stream: Stream) -> ExpressionWindow:  # noqa: ARG002 - its own
        return _window(query)

    def check_change(self, query: Query, before: Stream, after: Stream) -> None:
        """The state goes on if the same automata find the windows."""
        check_same_windows(before.schema, after.schema, _window(query))

    def group(self, query: Query, state: StreamState) -> Hashable | None:
        """Queries that begin at one position share an engine, if their windows are the same."""
        if not state.share.owns(query.name):
            return None
        plan = _plan(query, state.stream)
        return plan.window, plan.max_size, state.order.next

    def operator(self, query: Query, state: StreamState) -> WindowedQueries:
        return WindowedQueries(state, _window(query))


class WindowedQueries(Operator):
    """Keyword queries over the same windows, answered by one engine from the next record on."""

    def __init__(self, state: StreamState, window: ExpressionWindow) -> None:
        self._state = state
        self._window = window
        self._queries: dict[str, Query] = {}
        self._plans: dict[str, Plan] = {}
        self._engine: WindowedEngine | None = None  # from the first record on
        self._saved: bytes | None = None  # the state, until the next record

    @property
    def waits(self) -> bool:
        """Windows that are open at the end give no results."""
        return self._state.order.waits

    def load_tables(self, records: Sequence[Record]) -> list[LiveResult]:  # noqa: ARG002 - all are needed
        return self._static(list(self._queries))

    def add(self, queries: Sequence[Query]) -> list[LiveResult]:
        """Gives the results of static tuples alone: others are given when their window ends.

        The log is not read: how much of it is known depends on other queries,
        and its first record would decide where windows begin.
        """
        self._read(queries)
        return self._static([query.name for query in queries])

    def remove(self, query: Query) -> None:
        del self._queries[query.name], self._plans[query.name]
        if self._engine is not None:
            self._engine.remove(query.name)

    def process(self, accepted: RecordBatch, arrived: OrderedBatch) -> dict[str, Iterable[LiveResult]]:  # noqa: ARG002
        if not len(arrived.batch):
            return {}
        if self._engine is None:
            self._engine, _ = self._new_engine(self._queries)
            self._engine.seek(arrived.position)
        self._saved = None
        return self._by_name(self._queries, self._engine.process_batches([arrived.batch]))

    def change_schema(self, change: SchemaChange, text: str) -> dict[str, list[LiveResult]]:  # noqa: ARG002
        state, queries = self._bytes(), list(self._queries.values())
        self._engine = None
        self._begin_from(state, queries)
        return {}

    def snapshot(self) -> dict[str, bytes]:
        return dict.fromkeys(self._queries, self._bytes())

    def restore(self, states: Mapping[str, bytes], queries: Sequence[Query]) -> None:
        self._begin_from(states[queries[0].name], queries)

    def load(self) -> Load:
        return Load() if self._engine is None else self._engine.load()

    def counts(self) -> list[Counts]:
        return [] if self._engine is None else [self._engine.counts]

    def window_spans(self) -> list[WindowSpan]:
        return [] if self._engine is None else self._engine.window_spans()

    def _begin_from(self, state: bytes, queries: Sequence[Query]) -> None:
        self._saved = None
        self._read(queries)
        held = orjson.loads(state)
        if held is not None:
            self._engine, _ = self._new_engine(self._queries)
            self._engine.restore(held)

    def _read(self, queries: Sequence[Query]) -> None:
        """Read queries, and have an engine that has begun answer them."""
        for query in queries:
            plan = _plan(query, self._state.stream)
            if self._engine is not None:
                self._engine.add(plan, query.name)
            self._queries[query.name], self._plans[query.name] = query, plan

    def _new_engine(self, names: Iterable[str]) -> tuple[WindowedEngine, list[Result]]:
        """An engine with some queries and the static tables; and the results of static tuples alone."""
        engine = WindowedEngine(self._state.stream.schema, self._window)
        for name in names:
            engine.add(self._plans[name], name)
        return engine, list(engine.load_tables(self._state.tables))

    def _static(self, names: Sequence[str]) -> list[LiveResult]:
        """The results of static tuples alone, query by query."""
        if not self._state.tables:
            return []
        found = self._by_name(names, self._new_engine(names)[1])
        return [result for results in found.values() for result in results]

    def _by_name(self, names: Iterable[str], results: Iterable[Result]) -> dict[str, Iterable[LiveResult]]:
        found: defaultdict[str, list[Result]] = defaultdict(list)
        for result in results:
            found[result.query].append(result)
        return {name: found[self._queries[name].text] for name in names}

    def _bytes(self) -> bytes:
        """The state of all queries, made once between two batches."""
        if self._saved is None:
            self._saved = NOT_BEGUN if self._engine is None else orjson.dumps(self._engine.state())
        return self._saved


def _plan(query: Query, stream: Stream) -> Plan:
    return keyword_plan(query, stream, _window(query), None)


def _window(query: Query) -> ExpressionWindow:
    text = query.options.get(WINDOW)
    if text is None:
        raise UsageError(f"query {query.name!r}: expected a window expression for it")
    return ExpressionWindow(text)
