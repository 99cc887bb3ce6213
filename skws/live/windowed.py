"""Keyword queries over the windows of an expression, as standing queries.

How much of the stream its windows reach back over is known only by watching
them, and what came before the oldest open one still decides where windows
begin. So an evaluator keeps its own state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from schema.errors import UsageError
from schema.evolve import nameable
from skws.keywords import parse_query
from skws.live.evaluator import Arrived, Evaluator, Load
from skws.live.ranked import SIZE, ranking_of, top_of
from skws.live.share import Share
from skws.live.shared_windows import Groups, Member
from skws.live.standing import ALLOWED, WINDOW, Standing
from skws.live.stream import Stream
from skws.plan import Plan
from skws.ranking.best_of_windows import BestOfWindows, check_over_windows
from skws.ranking.choice import RankingChoice
from skws.ranking.top import TopChoice
from skws.records import Record
from skws.results.model import LiveResult, Result
from skws.windowing.admission import admit, check_same_windows
from skws.windowing.engine import WindowedEngine
from skws.windowing.timeline import Stretch
from windows.window import ExpressionWindow


class WindowedKind:
    """Reads the queries; one for each live search, in which those with the same windows share an engine."""

    def __init__(self) -> None:
        self._groups = Groups()

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises QueryError; UsageError, SchemaError for windows not to be read, or that pile up unasked."""
        plan, top = _plan(standing, stream), _top(standing)
        if top is not None:
            check_over_windows(top)
        admit(nameable(stream.schema), plan.window, allowed=ALLOWED in standing.options)

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Its state goes on if what finds the windows is as before."""
        check_same_windows(before.schema, after.schema, ExpressionWindow(standing.options[WINDOW]))

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> Evaluator | None:
        """A query is answered whole by one shard."""
        if not share.owns(standing.name):
            return None
        return WindowedQuery(_plan(standing, stream), self._groups, _top(standing))


class WindowedQuery:
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

    def take(self, arrived: Arrived) -> Iterable[LiveResult]:
        return self._told(self._group.take(self._member, arrived, self._tables))

    @property
    def waits(self) -> bool:
        return False

    def end(self) -> Iterable[LiveResult]:
        """Windows that are open are not told."""
        return ()

    def begin(self, past: Iterable[Arrived]) -> Iterable[LiveResult]:  # noqa: ARG002 - protocol
        """Gives those of static tuples alone: others are told when their window ends, and over then.

        The past is left out. How much of it is known depends on other queries,
        and from where on the stream is read decides where windows begin.
        """
        if not self._tables:
            return ()
        return self._told(WindowedEngine.of(self._member.plan).load_tables(self._tables))

    def succeed(self, former: Evaluator) -> Iterable[LiveResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        """What a group holds is counted for one of its queries."""
        if not self._group.started or self._group.first is not self._member:
            return Load()
        engine = self._engine
        return Load(engine.live_tuples, len(engine.waiting()), engine.waiting_results)

    def stretches(self) -> list[Stretch]:
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
