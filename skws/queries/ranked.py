"""Keyword queries with scores, and those of which only the best results are given.

Scores are an option of keyword queries. The best results at every instant are
a kind of their own: one shard answers such a query with an engine of its own,
so nothing is merged, and all is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from skws.data.record import Record
from skws.keywords import parse_query
from skws.keywords.frequencies import ordered_by_sample
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Evaluator, Load, OrderedBatch
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.operator import SeparateKind
from skws.queries.partitioning import Part
from skws.ranking.rankings import known_ranking
from skws.ranking.top import Top
from skws.results.model import Place, Result
from skws.spec.query import (
    ALLOWED,
    APPEND_ONLY,
    EXPLAIN,
    GROUP,
    HALF_LIFE,
    RANK,
    SCORED,
    SIZE,
    WINDOW,
    WINDOWED,
    Query,
)
from skws.spec.ranking import DEFAULT, RankingChoice, TopChoice
from skws.spec.stream import Stream
from skws_purging.tuples import ALWAYS
from skws_schema.errors import UsageError, nearest
from skws_schema.evolution import SchemaChange
from skws_windows.window import (
    MICROSECOND,
    CountWindow,
    ExpressionWindow,
    Window,
    at_arrival,
    parse_duration,
    parse_window,
)

_OPTIONS: Final = (*SCORED, SIZE, GROUP, APPEND_ONLY, WINDOW, ALLOWED)


def ranking_of(options: Mapping[str, str]) -> RankingChoice | None:
    """The ranking in the options of a query; None if there is none. Raises UsageError."""
    if not any(name in options for name in SCORED):
        return None
    length = options.get(HALF_LIFE)
    half_life = None if length is None else parse_duration(length, what="half-life")
    return RankingChoice(known_ranking(options.get(RANK, DEFAULT)), half_life, EXPLAIN in options)


def top_of(options: Mapping[str, str]) -> TopChoice:
    """The number of best results in the options of a query. Raises UsageError."""
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(f"no option {name!r} of a query{nearest(name, _OPTIONS)}")
    size = options.get(SIZE, "")
    if not size.isdecimal():
        raise UsageError(f"top {size!r}: expected a number above 0")
    return TopChoice(int(size), GROUP in options, APPEND_ONLY in options)


def keyword_plan(query: Query, stream: Stream, window: Window, ranking: RankingChoice | None) -> Plan:
    """How the keywords of a query are searched. Raises QueryError."""
    parsed = parse_query(query.text, stream.schema, match_names=stream.match_names)
    return Plan(stream.schema, parsed, window, query.max_size or stream.max_size, ranking=ranking)


def refuse_unasked(plan: Plan, stream: Stream) -> None:
    """Raises UsageError for keywords that need unbounded memory, unless memory may grow."""
    if not stream.may_grow:
        from skws.queries.keywords.memory_guard import refuse_unbounded  # noqa: PLC0415 - loads the verdicts

        refuse_unbounded(plan)


class TopKind(SeparateKind):
    """Keywords, of which only the best results are given."""

    def check(self, query: Query, stream: Stream) -> str:
        top_of(query.options)
        refuse_unasked(_plan(query, stream), stream)
        return ""

    def plan(self, query: Query, stream: Stream) -> Plan:
        return _plan(query, stream)

    def window(self, query: Query, stream: Stream) -> Window:
        return _plan(query, stream).window

    def check_change(self, query: Query, before: Stream, after: Stream) -> None:
        """Results over what is gone leave: they must be allowed to."""
        gone = SchemaChange(before.schema, after.schema).removed
        if any(gone) and top_of(query.options).append_only:
            raise UsageError("--append-only says that no result is taken back, and relations or joins go")

    def evaluator(self, query: Query, stream: Stream, part: Part) -> BestResults:  # noqa: ARG002
        return BestResults(_plan(query, stream), top_of(query.options))


class BestResults(Evaluator):
    """Gives the results that enter the best ones of a query, and those that leave them."""

    def __init__(self, plan: Plan, choice: TopChoice) -> None:
        self._plan = plan
        self.keeps = plan.window
        self._engine = ColumnarEngine.of(plan)
        self._times: dict[int, int] = {}  # of the insertions of a batch by tick, under a count window
        self._top = Top(choice, plan.schema, when=self._when)

    def load_tables(self, records: Iterable[Record]) -> None:
        """Their results are among those alive."""
        for _ in self._top.take(self._engine.load_tables(records)):
            pass

    def begin(self, past: Iterable[OrderedBatch]) -> list[Result]:
        """Process the log; gives the best results now, as a snapshot."""
        for arrived in past:
            for _ in self.take(arrived):
                pass
        return self.alive()

    def take(self, arrived: OrderedBatch) -> Iterable[Result]:
        """Changes in order of time, up to the time that the batch reaches."""
        for run in arrived.runs():
            yield from self._take(run)

    def take_over(self, former: Evaluator) -> list[Result]:
        """The results that leave with removed relations, and those that new joins bring in."""
        assert isinstance(former, BestResults)  # noqa: S101 - of the same query
        return list(self._top.take_over(former._top))  # noqa: SLF001 - its own kind

    def _take(self, arrived: OrderedBatch) -> Iterable[Result]:
        batch = arrived.batch
        self._engine.seek(arrived.position)
        if self._plan.by_count:
            inserted = batch.time[~batch.deletes()].tolist()
            self._times = {at_arrival(arrived.position + n): time for n, time in enumerate(inserted)}
        yield from self._top.take(self._engine.process_batches([batch]))
        yield from self._top.advance(self._engine.now)

    def snapshot(self) -> bytes:
        return self._engine.snapshot()

    def expect(self, state: bytes) -> None:
        self._engine.expect(state)

    def alive(self) -> list[Result]:
        """The best results now, best first."""
        return [
            replace(result, snapshot=True, place=Place("enter", rank, self._when(self._engine.now)))
            for rank, result in enumerate(self._top.alive(), 1)
        ]

    @property
    def counts(self) -> Counts:
        return self._engine.counts

    def load(self) -> Load:
        waiting = self._engine.waiting()
        return Load(self._engine.live_tuples, len(waiting), sum(count for _, count in waiting))

    def _when(self, tick: int) -> float | None:
        if tick <= ALWAYS:
            return None
        time = self._times.get(tick) if self._plan.by_count else tick
        return None if time is None else time / MICROSECOND


def _plan(query: Query, stream: Stream) -> Plan:
    ranking = ranking_of(query.options) or RankingChoice()
    own = query.options.get(WINDOW)
    window = stream.window if own is None else parse_window(own)
    if isinstance(window, ExpressionWindow):
        raise UsageError(f"window {window.text!r}: the best of its windows are of kind {WINDOWED}")
    if isinstance(window, CountWindow) != stream.by_count:
        raise UsageError(f"window {own!r}: the job's is of {'a count' if stream.by_count else 'time'}")
    return ordered_by_sample(keyword_plan(query, stream, window, ranking), stream.sample)
