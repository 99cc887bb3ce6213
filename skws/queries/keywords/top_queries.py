"""Keyword queries that only report their best results: one shard has all results of each query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

import numpy as np
from msgspec import convert, to_builtins
from msgspec.structs import replace

from skws.data.batch import RecordBatch
from skws.keywords.keyword_matching import ordered_by_sample
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Load, OrderedBatch
from skws.queries.keywords.diagnosis import EmptyResult
from skws.queries.keywords.engine import KeywordEngine
from skws.queries.keywords.keyword_plans import SearchPlan, keyword_plan, ranking_of, top_of
from skws.queries.keywords.updates import Begin
from skws.queries.operator import Begins, LoggedBatch, Operator, QueryPlan, StreamState
from skws.ranking.top import Top
from skws.results.result import Result, Score, TopChange
from skws.spec.query_spec import (
    WINDOW,
    Query,
    RankingChoice,
    Stream,
)
from skws.store.live_store import LiveRecords
from skws_purging.lifespans import ALWAYS
from skws_schema.budgets import memory_checked
from skws_schema.errors import UsageError, shown
from skws_schema.evolution import SchemaChange
from skws_windows.window import (
    MICROSECOND,
    CountWindow,
    ExpressionWindow,
    Unbounded,
    Window,
    by_position,
    parse_window,
)

_STATE: Final = b"top "
"""The first bytes of a state: that of a later query of the same name may be of another kind."""
_PORTION: Final = 1 << 14
"""The approximate number of results in memory at a time."""


class TopPlan(SearchPlan):
    """The plan of a keyword query that only reports its best results."""

    def __init__(self, query: Query, stream: Stream) -> None:
        self.choice = top_of(query.options)
        super().__init__(query, stream, _plan(query, stream))

    def check_change(self, before: Stream) -> None:
        """Results over removed relations and joins are retracted, which the query must allow."""
        removals = SchemaChange(before.schema, self.stream.schema).removed
        if any(removals) and self.choice.append_only:
            raise UsageError(
                "--append-only excludes retractions, and the new schema removes relations or joins"
            )

    def group(self, state: StreamState) -> Hashable | None:
        return (self.window, state.order.next) if state.share.owns(self.query.name) else None

    def operator(self, state: StreamState) -> TopOperator:
        return TopOperator(state, self.window)


class TopOperator(Operator):
    """Keyword queries that report their best results: one engine answers all, with a filter for each.

    All have the same window, and began at the same position. The engine reads records in order, so its
    results are final, and it has all results of its queries, so there is nothing to merge. It begins with the
    log, as scores depend on the frequency of words when results were found. If rows live for ever, the live
    rows replace the log, and the scores are stored beside them.
    """

    def __init__(self, state: StreamState, window: Window) -> None:
        self._state = state
        self._window = window
        self._plans: dict[str, TopPlan] = {}
        self._tops: dict[str, Top] = {}
        self._times: dict[int, int] = {}  # event times of a batch's insertions by tick, under a count window
        self._engine = self._new()

    @property
    def keeps(self) -> Window:
        return self._window

    @property
    def waits(self) -> bool:
        return self._state.order.waits

    def load_tables(self, batches: Sequence[RecordBatch]) -> list[Result]:
        self._best_changes(self._engine.load_tables(batches))
        return self._snapshot(self._tops)

    def add(self, plans: Sequence[QueryPlan]) -> list[Result]:
        top_plans = {plan.query.name: plan for plan in plans if isinstance(plan, TopPlan)}
        has_plans = bool(self._plans)
        self._plans |= top_plans
        if has_plans and self._engine.now <= ALWAYS:
            self._best_changes(self._answer(self._engine, top_plans))
            return self._snapshot(top_plans)
        self._begin(self._state.logged_in_order(self._window))
        return self._snapshot(top_plans)

    def rebuild(self, past: Sequence[LoggedBatch]) -> None:
        self._begin(self._state.in_order(past))

    def remove(self, name: str) -> None:
        del self._plans[name], self._tops[name]
        self._engine.remove(name)

    def why_nothing(self, plan: QueryPlan) -> EmptyResult | None:
        return None if plan.search is None else self._engine.why_nothing(plan.search)

    def process(self, arrived: OrderedBatch) -> dict[str, Iterable[Result]]:
        """Changes in order of time, up to the time that the batch reaches."""
        results_by_name: defaultdict[str, list[Result]] = defaultdict(list)
        for part in self._split_deletions(arrived):
            for name, results in self._changes_of(part).items():
                results_by_name[name] += results
        return dict(results_by_name)

    def advance(self, now: int) -> dict[str, Iterable[Result]]:
        """The changes up to ``now``, as results expire."""
        return {name: list(top.advance(now)) for name, top in self._tops.items()}

    def take_over(self, former: Self) -> dict[str, list[Result]]:
        """The changes: results that leave with removed relations, and results that new joins add."""
        self.expect_begins(former.all_begins())
        return {name: list(top.take_over(former._tops[name])) for name, top in self._tops.items()}

    def snapshot(self) -> dict[str, bytes]:
        """The same state for all queries, since each may be the only one that remains."""
        state = self._engine.snapshot()
        return dict.fromkeys(self._plans, _STATE + state) if state else {}

    def begins(self) -> dict[str, list[Begin]]:
        return _by_name(self._engine.begins())

    def all_begins(self) -> dict[str, list[Begin]]:
        """The begins of updated results, and the scores of all results if live rows replace the log."""
        return _by_name([*self._engine.all_begins(), *(self._scores() if self.lasts else ())])

    def expect_begins(self, begins: Begins) -> None:
        all_begins = [each for name in self._plans for each in begins.get(name, ())]
        self._engine.expect_begins(each for each in all_begins if each.score is None)
        for name, scored_begins in _by_name(each for each in all_begins if each.score is not None).items():
            self._tops[name].rescore(
                {each.id: (convert(each.score, Score), each.begin) for each in scored_begins}
            )

    @property
    def living(self) -> int:
        return self._engine.living if self.lasts else 0

    def live_records(self) -> LiveRecords | None:
        return self._engine.live_records() if self.lasts else None

    @property
    def lasts(self) -> bool:
        """True if live rows may replace the log. Otherwise two windows of it are enough.

        Results that only expire and can never be among the best are forgotten, by their scores.
        """
        append_only = any(plan.choice.append_only for plan in self._plans.values())
        return isinstance(self._window, Unbounded) and not append_only

    def _scores(self) -> Iterator[Begin]:
        for name, top in self._tops.items():
            for each in top.live():
                yield Begin(name, each.id, None, each.start, None, to_builtins(each.score))

    def load(self) -> Load:
        return self._engine.load()

    def counts(self) -> list[Counts]:
        return [self._engine.counts]

    def _new(self) -> KeywordEngine:
        stream = self._state.stream
        return KeywordEngine(
            stream.schema, self._window, updates=stream.updates, on_demand=stream.mesh is None
        )

    def _begin(self, past: Iterable[OrderedBatch]) -> None:
        """Make an engine for all queries, with their filters, from the tables and a log."""
        expected_states = [self._state.expected.get(name, b"") for name in self._plans]
        states = [state.removeprefix(_STATE) for state in expected_states if state.startswith(_STATE)]
        state = states[0] if states else self._engine.snapshot()
        begins, self._engine = self.all_begins(), self._new()
        self._tops.clear()
        self._best_changes(self._answer(self._engine, self._plans))
        self._best_changes(self._engine.load_tables(self._state.tables))
        self._engine.expect(state)
        for arrived in past:
            self.process(arrived)
        self.expect_begins(begins)

    def _answer(self, engine: KeywordEngine, plans: Mapping[str, TopPlan]) -> list[Result]:
        """Add queries to an engine; returns their live results."""
        schema, sample = self._state.stream.schema, self._state.stream.sample
        self._tops |= {name: Top(plan.choice, schema, when=self._when) for name, plan in plans.items()}
        return engine.add_all([ordered_by_sample(plan.search, sample) for plan in plans.values()])

    def _split_deletions(self, arrived: OrderedBatch) -> Iterator[OrderedBatch]:
        """The batch in parts: deletions between two arrivals share a tick, so each time gets its own part."""
        batch = arrived.batch
        if not by_position(self._window) or batch.delete is None:
            yield arrived
            return
        deletes = batch.delete
        is_later = deletes[1:] & deletes[:-1] & (batch.time[1:] != batch.time[:-1])
        yield from arrived.cut((np.flatnonzero(is_later) + 1).tolist())

    def _changes_of(self, arrived: OrderedBatch) -> dict[str, list[Result]]:
        """The changes that records cause."""
        if by_position(self._window):
            is_insertion = ~arrived.batch.deletes()
            ticks, times = arrived.ticks[is_insertion].tolist(), arrived.batch.time[is_insertion].tolist()
            self._times = dict(zip(ticks, times, strict=True))
        results_by_name = self._best_changes(self._engine.take(arrived))
        now = self._engine.now
        return {name: [*results_by_name.get(name, ()), *top.advance(now)] for name, top in self._tops.items()}

    def _best_changes(self, results: Iterable[Result]) -> dict[str, list[Result]]:
        """The changes of the best results, by query.

        Results are read in portions, as there may be very many.
        """
        results_by_name: defaultdict[str, list[Result]] = defaultdict(list)
        for portion in _instants(memory_checked(results), _PORTION):
            by_name: defaultdict[str, list[Result]] = defaultdict(list)
            for result in portion:
                by_name[result.name].append(result)
            for name, query_results in by_name.items():
                results_by_name[name] += self._tops[name].take(query_results)
        return results_by_name

    def _snapshot(self, names: Iterable[str]) -> list[Result]:
        """The best results of queries now, best first."""
        at = self._when(self._engine.now)
        return [
            replace(result, snapshot=True, place=TopChange("enter", rank, at))
            for name in names
            for rank, result in enumerate(self._tops[name].alive(), 1)
        ]

    def _when(self, tick: int) -> float | None:
        if tick <= ALWAYS:
            return None
        time = self._times.get(tick) if by_position(self._window) else tick
        return None if time is None else time / MICROSECOND


def _instants(results: Iterable[Result], least: int) -> Iterator[list[Result]]:
    """Results in portions of at least ``least``, each of which ends with an instant."""
    portion: list[Result] = []
    for result in results:
        if len(portion) >= least and result.tick != portion[-1].tick:
            yield portion
            portion = []
        portion.append(result)
    if portion:
        yield portion


def _by_name(begins: Iterable[Begin]) -> dict[str, list[Begin]]:
    begins_by_name: defaultdict[str, list[Begin]] = defaultdict(list)
    for begin in begins:
        begins_by_name[begin.name].append(begin)
    return begins_by_name


def _plan(query: Query, stream: Stream) -> Plan:
    ranking = ranking_of(query.options) or RankingChoice()
    window_text = query.options.get(WINDOW)
    window = stream.window if window_text is None else parse_window(window_text)
    if isinstance(window, ExpressionWindow):
        raise UsageError(f"window {shown(window.text)}: the best results need a window of time or of tuples")
    if isinstance(window, CountWindow) != stream.by_count:
        raise UsageError(
            f"window {shown(window_text)}: the job has a window of {'tuples' if stream.by_count else 'time'}"
        )
    return keyword_plan(query, stream, window, ranking)
