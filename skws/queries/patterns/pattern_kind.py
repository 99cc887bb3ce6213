"""Patterns as queries of a session: the order of tuples matters, deletions do not.

A pattern's own window (``within ...``) applies, or else the window of the stream. If all tuples of a result
share a value, shards divide the results by it; else one shard has the whole pattern. A finite stream is
matched by columns as long as that is fast, then by the automaton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from skws.data.batch import BATCH
from skws.queries.evaluator import Evaluator, Load, OrderedBatch
from skws.queries.operator import SeparatePlan, StreamState, check_stays
from skws.queries.partitioning.parts import Part
from skws.queries.patterns.pattern_text import PatternQuery, pattern_notes, read_query
from skws.queries.patterns.stream import PatternStream, ReadTuple
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_patterns.columnar_evaluator import (
    MOST_RESULTS,
    ColumnarEvaluator,
    StreamTuples,
    TooManyRunsError,
    Valuations,
    column_plan,
)
from skws_patterns.tuple_evaluator import Valuation
from skws_schema.errors import UsageError, shown
from skws_schema.evolution import nameable
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, ExpressionWindow, Unbounded, Window

_ROWS: Final = 4096  # results converted to Python objects at a time


class ReplayedPattern(Evaluator):
    """Evaluates a pattern; use either ``take`` or ``count``.

    The results that a tuple completes are yielded as they are found, unordered,
    since they may exceed memory. If a batch has more than ``most_results``, the automaton
    finds them one by one.
    """

    def __init__(
        self,
        query: PatternQuery,
        schema: Schema,
        window: Window,
        most_results: int = MOST_RESULTS,
        name: str = "",
    ) -> None:
        self._stream = PatternStream(query, schema, window, name=name)
        self.keeps = window
        plan = column_plan(query.pcea)
        self._labels = [frozenset({label}) for label in plan.labels] if plan else []
        self._columns = ColumnarEvaluator(plan, window, most_results) if plan else None

    def take(self, arrived: OrderedBatch) -> Iterator[Result]:
        for batch in self._batches(arrived):
            results = self._matches(batch)
            if results is None:
                for _ in self._stream.completing(batch):
                    yield from self._stream.results()
            else:
                yield from self._results_of(batch, results)

    def count(self, arrived: OrderedBatch) -> int:
        """The number of results, without forming them."""
        total = 0
        for batch in self._batches(arrived):
            matches = self._matches(batch)
            if matches is None:
                total += sum(
                    self._stream.result_count() for _ in self._stream.completing(batch, remember=False)
                )
            else:
                total += len(matches)
        return total

    def load(self) -> Load:
        return self._stream.load()

    def _batches(self, arrived: OrderedBatch) -> Iterator[list[ReadTuple]]:
        self._stream.seek(arrived.position)
        tuples = self._stream.tuples(arrived.batch, arrived.given_positions)
        while batch := [*islice(tuples, BATCH)]:
            yield batch

    def _matches(self, batch: Sequence[ReadTuple]) -> Valuations | None:
        """The results that a batch completes; None if the automaton is to find them."""
        if self._columns is None:
            return None
        try:
            return self._columns.take(
                StreamTuples(
                    np.array([arrival.position for arrival in batch], dtype=np.int64),
                    np.array([arrival.relation for arrival in batch], dtype=np.int64),
                    np.array([self._stream.tick(arrival) for arrival in batch], dtype=np.int64),
                    [arrival.row for arrival in batch],
                )
            )
        except TooManyRunsError:
            self._stream.catch_up(self._columns.live())
            self._columns = None
            return None

    def _results_of(self, batch: Sequence[ReadTuple], all_valuations: Valuations) -> Iterator[Result]:
        valuations = self._valuations(all_valuations)
        last, valuation = next(valuations, (FOREVER, ()))
        for arrival in batch:
            self._stream.remember(arrival)
            while last == arrival.position:
                yield self._stream.result_of(valuation)
                last, valuation = next(valuations, (FOREVER, ()))

    def _valuations(self, valuations: Valuations) -> Iterator[tuple[int, Valuation]]:
        for first in range(0, len(valuations), _ROWS):
            rows_slice = slice(first, first + _ROWS)
            rows = zip(*valuations.marked[:, rows_slice].tolist(), strict=True)
            for last, row in zip(valuations.last[rows_slice].tolist(), rows, strict=True):
                yield last, tuple([m for m in zip(row, self._labels, strict=True) if m[0] >= 0])


class PatternPlan(SeparatePlan):
    """Patterns in both forms."""

    def __init__(self, query: Query, stream: Stream) -> None:
        super().__init__(query, stream)
        self._pattern = read_query(query.text, nameable(stream.schema))
        pattern_window = None if stream.overrides else self._pattern.window
        self._window = pattern_window or stream.window
        if isinstance(self._window, ExpressionWindow):
            raise UsageError(
                f"pattern {shown(query.text)}: a window expression is for keywords; "
                "expected a window in the pattern, such as: within 10 minutes"
            )

    @property
    def window(self) -> Window:
        return self._window

    @property
    def notes(self) -> tuple[str, ...]:
        text_notes = pattern_notes(self.query.text, self.stream.schema)
        if self.stream.finite or not isinstance(self._window, Unbounded):
            return text_notes
        remedy = "use --window, or within 10 minutes in its text, to let them expire"
        return (*text_notes, f"the pattern has no window, so all tuples that it reads are kept: {remedy}")

    @property
    def reads(self) -> frozenset[int] | None:
        """The relations that the pattern reads, including those read by ``*``."""
        return frozenset(self._pattern.pcea.relations)

    def check_change(self, before: Stream) -> None:
        """A pattern is rebuilt from the log, without the tuples of removed relations that ``*`` read."""
        schema = self.stream.schema
        reads = [schema.relations[i].name for i in self._pattern.pcea.relations]
        check_stays(reads, before.schema, schema)

    def owns(self, part: Part) -> bool:
        """True for all parts if the pattern's tuples share a value; else for one part."""
        return part.whole or self._pattern.root is not None or super().owns(part)

    def evaluator(self, state: StreamState) -> Evaluator:
        stream = self.stream
        if stream.finite:
            return ReplayedPattern(self._pattern, stream.schema, self._window, name=self.query.name)
        owns = _owned_by(self._pattern, state.share)
        return PatternStream(
            self._pattern, nameable(stream.schema), self._window, own=owns, name=self.query.name
        )


def _owned_by(query: PatternQuery, part: Part) -> Callable[[int, Row], bool] | None:
    root = query.root
    if root is None or part.whole:
        return None
    return lambda relation, row: root.shard(relation, row, part.shards) == part.number
