"""Keyword queries of which only the best results are given.

One shard answers such a query with an engine of its own, so nothing is merged,
and all is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from skws.data.batch import Record
from skws.keywords.keyword_matching import ordered_by_sample
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Evaluator, Load, OrderedBatch
from skws.queries.keyword_plans import SearchPlan, keyword_plan, ranking_of, top_of
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.updates import Begin
from skws.queries.operator import SeparatePlan, StreamState
from skws.ranking.top import Top
from skws.results.model import Place, Result
from skws.spec.query import (
    WINDOW,
    Query,
    RankingChoice,
    Stream,
    TopChoice,
)
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import UsageError
from skws_schema.evolution import SchemaChange
from skws_windows.window import (
    MICROSECOND,
    CountWindow,
    ExpressionWindow,
    at_arrival,
    parse_window,
)


class TopPlan(SearchPlan, SeparatePlan):
    """Keywords, of which only the best results are given."""

    def __init__(self, query: Query, stream: Stream) -> None:
        self.choice = top_of(query.options)
        super().__init__(query, stream, _plan(query, stream))

    def check_change(self, before: Stream) -> None:
        """Results over what is gone leave: they must be allowed to."""
        gone = SchemaChange(before.schema, self.stream.schema).removed
        if any(gone) and self.choice.append_only:
            raise UsageError(
                "--append-only excludes retractions, and the new schema removes relations or joins"
            )

    def evaluator(self, state: StreamState) -> BestResults:
        return BestResults(ordered_by_sample(self._search, state.stream.sample), self.choice)


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
            for part in self._apart(run):
                yield from self._take(part)

    def _apart(self, run: OrderedBatch) -> Iterator[OrderedBatch]:
        """Deletions between two arrivals share a tick of a count window: those of each time by themselves."""
        batch, position = run.batch, run.position
        if not self._plan.by_count or batch.delete is None:
            yield run
            return
        deletes = batch.delete
        later = deletes[1:] & deletes[:-1] & (batch.time[1:] != batch.time[:-1])
        for first, end in pairwise([0, *(np.flatnonzero(later) + 1).tolist(), len(batch)]):
            yield OrderedBatch(batch.taken(slice(first, end)), position)
            position += int(np.count_nonzero(~deletes[first:end]))

    def advance(self, now: int) -> Iterable[Result]:
        """The changes as results expire."""
        return self._top.advance(now)

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

    def begins(self) -> list[Begin]:
        return self._engine.begins()

    def all_begins(self) -> list[Begin]:
        return self._engine.all_begins()

    def expect_begins(self, begins: Iterable[Begin]) -> None:
        self._engine.expect_begins(begins)

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
        return self._engine.load()

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
        raise UsageError(f"window {window.text!r}: the best are of a length of time or tuples")
    if isinstance(window, CountWindow) != stream.by_count:
        raise UsageError(f"window {own!r}: the job's is of {'a count' if stream.by_count else 'time'}")
    return keyword_plan(query, stream, window, ranking)
