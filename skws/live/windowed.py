"""Keyword queries over the windows of an expression, as standing queries.

How much of the stream its windows reach back over is known only by watching
them, and what came before the oldest open one still decides where windows
begin. So an evaluator keeps its own state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from schema.errors import UsageError
from schema.evolve import nameable
from skws.keywords import parse_query
from skws.live.evaluator import Arrived, Evaluator, Load
from skws.live.share import Share
from skws.live.standing import ALLOWED, WINDOW, Standing
from skws.live.stream import Stream
from skws.plan import Plan
from skws.records import Record
from skws.results.model import LiveResult, Result
from skws.windowing.admission import admit, check_same_windows
from skws.windowing.engine import WindowedEngine
from skws.windowing.timeline import Stretch
from windows.window import ExpressionWindow


class WindowedKind:
    """Reads the queries."""

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises QueryError; UsageError, SchemaError for windows not to be read, or that pile up unasked."""
        plan = _plan(standing, stream)
        admit(nameable(stream.schema), plan.window, allowed=ALLOWED in standing.options)

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Its state goes on if what finds the windows is as before."""
        check_same_windows(before.schema, after.schema, ExpressionWindow(standing.options[WINDOW]))

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> Evaluator | None:
        """A query is answered whole by one shard."""
        return WindowedQuery(_plan(standing, stream)) if share.owns(standing.name) else None


class WindowedQuery:
    """Answers one query."""

    keeps: Final = None

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tables: list[Record] = []
        self._static: list[Result] = []
        self._engine = WindowedEngine.of(plan)
        self._begun = False

    def load_tables(self, records: Sequence[Record]) -> None:
        self._tables += records
        self._engine = self._new_engine()

    def take(self, arrived: Arrived) -> Iterable[LiveResult]:
        if not self._begun:
            self._engine.begin_at(arrived.position)
            self._begun = True
        return self._engine.process_batches([arrived.batch])

    def end(self) -> Iterable[LiveResult]:
        """Windows that are open are not told."""
        return ()

    def begin(self, past: Iterable[Arrived]) -> Iterable[LiveResult]:  # noqa: ARG002 - protocol
        """Gives those of static tuples alone: others are told when their window ends, and over then.

        The past is left out. How much of it is known depends on other queries,
        and from where on the stream is read decides where windows begin.
        """
        return self._static

    def succeed(self, former: Evaluator) -> Iterable[LiveResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load(self._engine.live_tuples, len(self._engine.waiting()), self._engine.waiting_results)

    def stretches(self) -> list[Stretch]:
        """The windows that ended last, and those that are open."""
        return self._engine.stretches()

    def snapshot(self) -> bytes:
        return orjson.dumps(self._engine.state() if self._begun else None)

    def restore(self, state: bytes) -> None:
        held = orjson.loads(state)
        self._engine = self._new_engine()
        self._begun = held is not None
        if held is not None:
            self._engine.restore(held)

    def _new_engine(self) -> WindowedEngine:
        engine = WindowedEngine.of(self._plan)
        self._static = list(engine.load_tables(self._tables))
        return engine


def _plan(standing: Standing, stream: Stream) -> Plan:
    text = standing.options.get(WINDOW)
    if text is None:
        raise UsageError(f"query {standing.name!r}: expected a window expression for it")
    query = parse_query(standing.query, stream.schema, match_names=stream.match_names)
    return Plan(stream.schema, query, ExpressionWindow(text), standing.max_size)
