"""A pattern over a stream that ends: by columns as long as that is fast, then by its automaton."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from skws.data.batch import BATCH
from skws.queries.evaluator import Evaluator, Load, OrderedBatch
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.stream import PatternStream, ReadTuple
from skws.queries.patterns.text import PatternQuery
from skws_patterns.evaluation.columnar import ColumnarEvaluator, Found, TooManyRunsError, Tuples
from skws_patterns.evaluation.heap import Valuation
from skws_patterns.evaluation.runs import column_plan
from skws_schema.model import Schema
from skws_windows.window import FOREVER, Window

_ROWS: Final = 4096  # results converted to Python objects at a time


class ReplayedPattern(Evaluator):
    """Evaluates a pattern over tuples in order of time. ``window`` as for ``stream``, which reads batches.

    Use either ``results`` or ``counted``. The results that a tuple completes
    are given as they are found, unordered: they may exceed memory.
    """

    def __init__(self, query: PatternQuery, schema: Schema, window: Window | None = None) -> None:
        self.stream = PatternStream(query, schema, window)
        self.keeps = self.stream.window
        plan = column_plan(query.pcea)
        self._labels = [frozenset({label}) for label in plan.labels] if plan else []
        self._columns = ColumnarEvaluator(plan, self.stream.window) if plan else None

    def take(self, arrived: OrderedBatch) -> Iterator[PatternResult]:
        return (result for _, result in self.results(self._tuples(arrived)))

    def count(self, arrived: OrderedBatch) -> int:
        return sum(self.counted(self._tuples(arrived)))

    def load(self) -> Load:
        return self.stream.load()

    def _tuples(self, arrived: OrderedBatch) -> Iterator[ReadTuple]:
        self.stream.seek(arrived.position)
        return self.stream.tuples(arrived.batch, arrived.positions)

    def results(
        self, tuples: Iterable[ReadTuple], begin: int = -FOREVER
    ) -> Iterator[tuple[int, PatternResult]]:
        """Results in order, each with the position of its last tuple, which is at tick ``begin`` or later."""
        for batch in _batches(tuples):
            found = self._found(batch)
            if found is None:
                for last in self.stream.completing(batch, begin):
                    for result in self.stream.results():
                        yield last.position, result
            else:
                yield from self._formed(batch, found, begin)

    def counted(self, tuples: Iterable[ReadTuple], begin: int = -FOREVER) -> Iterator[int]:
        """The numbers of results, part by part; results are not formed."""
        for batch in _batches(tuples):
            found = self._found(batch)
            if found is None:
                for _ in self.stream.completing(batch, begin, remember=False):
                    yield self.stream.how_many()
            else:
                first = next((t.position for t in batch if self.stream.tick(t) >= begin), FOREVER)
                yield int((found.last >= first).sum())

    def _found(self, batch: Sequence[ReadTuple]) -> Found | None:
        """The results that a batch completes; None if the automaton is to find them."""
        if self._columns is None:
            return None
        try:
            return self._columns.take(
                Tuples(
                    np.array([taken.position for taken in batch], dtype=np.int64),
                    np.array([taken.relation for taken in batch], dtype=np.int64),
                    np.array([self.stream.tick(taken) for taken in batch], dtype=np.int64),
                    [taken.row for taken in batch],
                )
            )
        except TooManyRunsError:
            self.stream.catch_up(self._columns.live())
            self._columns = None
            return None

    def _formed(
        self, batch: Sequence[ReadTuple], found: Found, begin: int
    ) -> Iterator[tuple[int, PatternResult]]:
        valuations = self._valuations(found)
        last, valuation = next(valuations, (FOREVER, ()))
        for taken in batch:
            self.stream.remember(taken)
            while last == taken.position:
                if self.stream.tick(taken) >= begin:
                    yield last, self.stream.formed(valuation)
                last, valuation = next(valuations, (FOREVER, ()))

    def _valuations(self, found: Found) -> Iterator[tuple[int, Valuation]]:
        for at in range(0, len(found), _ROWS):
            chosen = slice(at, at + _ROWS)
            rows = zip(*found.marked[:, chosen].tolist(), strict=True)
            for last, row in zip(found.last[chosen].tolist(), rows, strict=True):
                yield last, tuple([m for m in zip(row, self._labels, strict=True) if m[0] >= 0])


def _batches(tuples: Iterable[ReadTuple]) -> Iterator[list[ReadTuple]]:
    waiting = iter(tuples)
    while batch := [*islice(waiting, BATCH)]:
        yield batch
