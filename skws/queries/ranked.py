"""Standing queries with scores, and those of which only the best results are told.

Scores are an option of keyword queries. The best results at every instant are
a kind of their own: one shard has the whole of such a query, with an engine
for it, so that nothing has to be merged and all is made again from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from skws.data.record import Record
from skws.keywords import parse_query
from skws.keywords.frequencies import ordered_by_sample
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Evaluator, Load, MadeFromLog, OrderedBatch
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.partitioning import Part
from skws.queries.separate import SeparateKind
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
    Standing,
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
    """The ranking that options ask for; None if for none. Raises UsageError."""
    if not any(name in options for name in SCORED):
        return None
    length = options.get(HALF_LIFE)
    half_life = None if length is None else parse_duration(length, what="half-life")
    return RankingChoice(known_ranking(options.get(RANK, DEFAULT)), half_life, EXPLAIN in options)


def top_of(options: Mapping[str, str]) -> TopChoice:
    """How many of the best options ask for. Raises UsageError."""
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(f"no option {name!r} of a query{nearest(name, _OPTIONS)}")
    size = options.get(SIZE, "")
    if not size.isdecimal():
        raise UsageError(f"top {size!r}: expected a number above 0")
    return TopChoice(int(size), GROUP in options, APPEND_ONLY in options)


class TopKind(SeparateKind):
    """Keyword queries of which the best results are told."""

    def check(self, standing: Standing, stream: Stream) -> str:
        """Raises QueryError, UsageError."""
        top_of(standing.options)
        plan = _plan(standing, stream)
        if not stream.may_grow:
            from skws.queries.keywords.memory_guard import refuse_unbounded  # noqa: PLC0415 - loads what decides

            refuse_unbounded(plan)
        return ""

    def plan(self, standing: Standing, stream: Stream) -> Plan:
        return _plan(standing, stream)

    def window(self, standing: Standing, stream: Stream) -> Window:
        return _plan(standing, stream).window

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Results over what is gone leave: they must be allowed to."""
        gone = SchemaChange(before.schema, after.schema).removed
        if any(gone) and top_of(standing.options).append_only:
            raise UsageError("--append-only says that no result is taken back, and relations or joins go")

    def evaluator(self, standing: Standing, stream: Stream, share: Part) -> BestResults | None:
        if not share.owns(standing.name):
            return None
        return BestResults(_plan(standing, stream), top_of(standing.options))


class BestResults(MadeFromLog):
    """Tells what enters the best results of a query, and what leaves them."""

    def __init__(self, plan: Plan, choice: TopChoice) -> None:
        self._plan = plan
        self._engine = ColumnarEngine.of(plan)
        self._times: dict[int, int] = {}  # by tick of the insertions of a batch, where ticks count positions
        self._top = Top(choice, plan.schema, when=self._when)

    @property
    def keeps(self) -> Window:
        return self._plan.window

    def load_tables(self, records: Iterable[Record]) -> None:
        """Their results come with what is alive."""
        for _ in self._top.take(self._engine.load_tables(records)):
            pass

    def begin(self, past: Iterable[OrderedBatch]) -> list[Result]:
        """Take in what came before; gives the best results now, as a snapshot."""
        for arrived in past:
            for _ in self.take(arrived):
                pass
        return self.alive()

    def take(self, arrived: OrderedBatch) -> Iterable[Result]:
        """Changes in order of time, up to the time that the batch reaches."""
        for run in arrived.runs():
            yield from self._take(run)

    def take_over(self, former: Evaluator) -> list[Result]:
        """What leaves with what is gone, and what new joins make enter."""
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


def _plan(standing: Standing, stream: Stream) -> Plan:
    query = parse_query(standing.query, stream.schema, match_names=stream.match_names)
    ranking = ranking_of(standing.options) or RankingChoice()
    own = standing.options.get(WINDOW)
    window = stream.window if own is None else parse_window(own)
    if isinstance(window, ExpressionWindow):
        raise UsageError(f"window {window.text!r}: the best of its windows are of kind {WINDOWED}")
    if isinstance(window, CountWindow) != stream.by_count:
        raise UsageError(f"window {own!r}: the job's is of {'a count' if stream.by_count else 'time'}")
    return ordered_by_sample(
        Plan(stream.schema, query, window, standing.max_size, ranking=ranking), stream.sample
    )
