"""Keyword queries over the windows of an expression, as standing queries.

How much of the stream its windows reach back over is known only by watching
them, and what came before the oldest open one still decides where windows
begin. So an evaluator keeps its own state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from skws.data.record import Record
from skws.keywords import parse_query
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counting, Counts, Evaluator, Load, OrderedBatch
from skws.queries.partitioning import Part
from skws.queries.ranked import ranking_of, top_of
from skws.queries.separate import SeparateKind
from skws.queries.windowed.check_overlap import admit, check_same_windows
from skws.queries.windowed.engine import WindowedEngine
from skws.queries.windowed.shared import Groups, Member
from skws.queries.windowed.window_span import WindowSpan
from skws.ranking.top import BestOfWindows, check_over_windows
from skws.results.model import LiveResult, Result
from skws.spec.query import ALLOWED, SIZE, WINDOW, Standing
from skws.spec.ranking import RankingChoice, TopChoice
from skws.spec.stream import Stream
from skws_schema.errors import UsageError
from skws_schema.evolution import nameable
from skws_windows.window import ExpressionWindow, Window


class WindowedKind(SeparateKind):
    """Reads the queries; one for each live search, in which those with the same windows share an engine."""

    def __init__(self) -> None:
        self._groups = Groups()

    def check(self, standing: Standing, stream: Stream) -> str:
        """Raises QueryError; UsageError, SchemaError for windows not to be read, or that pile up unasked."""
        plan, top = _plan(standing, stream), _top(standing)
        if top is not None:
            check_over_windows(top)
        return admit(nameable(stream.schema), plan.window, allowed=ALLOWED in standing.options)

    def plan(self, standing: Standing, stream: Stream) -> Plan:
        return _plan(standing, stream)

    def window(self, standing: Standing, stream: Stream) -> Window:
        return _plan(standing, stream).window

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Its state goes on if what finds the windows is as before."""
        check_same_windows(before.schema, after.schema, ExpressionWindow(standing.options[WINDOW]))

    def evaluator(self, standing: Standing, stream: Stream, share: Part) -> Evaluator | None:
        """A query is answered whole by one shard."""
        if not share.owns(standing.name):
            return None
        return WindowedQuery(_plan(standing, stream), self._groups, _top(standing))


class WindowedQuery(Counting):
    """Answers one query, by an engine that it may share with others. ``top``: the best of each window."""

    keeps: Final = None

    def __init__(self, plan: Plan, groups: Groups, top: TopChoice | None = None) -> None:
        self._member = Member(plan)
        self._best = None if top is None else BestOfWindows(top, plan.schema)
        self._groups = groups
        self._group = groups.join(self._member)
        self._tables: list[Record] = []

    def load_tables(self, records: Sequence[Record]) -> None:
        self._tables += records

    def take(self, arrived: OrderedBatch) -> Iterable[LiveResult]:
        return self._told(self._group.take(self._member, arrived, self._tables))

    @property
    def waits(self) -> bool:
        return False

    def end(self) -> Iterable[LiveResult]:
        """Windows that are open are not told."""
        return ()

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[LiveResult]:  # noqa: ARG002 - protocol
        """Gives those of static tuples alone: others are told when their window ends, and over then.

        The past is left out. How much of it is known depends on other queries,
        and from where on the stream is read decides where windows begin.
        """
        if not self._tables:
            return ()
        return self._told(WindowedEngine.of(self._member.plan).load_tables(self._tables))

    def take_over(self, former: Evaluator) -> Iterable[LiveResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    @property
    def counts(self) -> Counts:
        return self._engine.counts

    def load(self) -> Load:
        """What a group holds is counted for one of its queries."""
        if not self._group.started or self._group.first is not self._member:
            return Load()
        engine = self._engine
        return Load(engine.live_tuples, len(engine.waiting()), engine.waiting_results)

    def stretches(self) -> list[WindowSpan]:
        """The windows that ended last, and those that are open."""
        return self._engine.stretches() if self._group.started else []

    def snapshot(self) -> bytes:
        return self._group.state()

    def restore(self, state: bytes) -> None:
        self._group.members.discard(self._member)
        self._group = self._groups.join(self._member, state)

    def _told(self, results: Iterable[Result]) -> Iterable[Result]:
        return results if self._best is None else self._best.take(results)

    @property
    def _engine(self) -> WindowedEngine:
        return self._group.engine(self._tables)


def _plan(standing: Standing, stream: Stream) -> Plan:
    text = standing.options.get(WINDOW)
    if text is None:
        raise UsageError(f"query {standing.name!r}: expected a window expression for it")
    query = parse_query(standing.query, stream.schema, match_names=stream.match_names)
    ranking = ranking_of(standing.options) or (None if _top(standing) is None else RankingChoice())
    return Plan(stream.schema, query, ExpressionWindow(text), standing.max_size, ranking=ranking)


def _top(standing: Standing) -> TopChoice | None:
    return top_of(standing.options) if SIZE in standing.options else None
