"""A pattern over a stream that ends: by columns as long as that is fast, then by its automaton."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Evaluates a pattern; use either ``take`` or ``count``.

    The results that a tuple completes are given as they are found, unordered:
    they may exceed memory.
    """

    def __init__(self, query: PatternQuery, schema: Schema, window: Window) -> None:
        self._stream = PatternStream(query, schema, window)
        self.keeps = window
        plan = column_plan(query.pcea)
        self._labels = [frozenset({label}) for label in plan.labels] if plan else []
        self._columns = ColumnarEvaluator(plan, window) if plan else None

    def take(self, arrived: OrderedBatch) -> Iterator[PatternResult]:
        for batch in self._batches(arrived):
            found = self._found(batch)
            if found is None:
                for _ in self._stream.completing(batch):
                    yield from self._stream.results()
            else:
                yield from self._formed(batch, found)

    def count(self, arrived: OrderedBatch) -> int:
        """The number of results, which are not formed."""
        total = 0
        for batch in self._batches(arrived):
            found = self._found(batch)
            if found is None:
                total += sum(self._stream.how_many() for _ in self._stream.completing(batch, remember=False))
            else:
                total += len(found)
        return total

    def load(self) -> Load:
        return self._stream.load()

    def _batches(self, arrived: OrderedBatch) -> Iterator[list[ReadTuple]]:
        self._stream.seek(arrived.position)
        tuples = self._stream.tuples(arrived.batch, arrived.positions)
        while batch := [*islice(tuples, BATCH)]:
            yield batch

    def _found(self, batch: Sequence[ReadTuple]) -> Found | None:
        """The results that a batch completes; None if the automaton is to find them."""
        if self._columns is None:
            return None
        try:
            return self._columns.take(
                Tuples(
                    np.array([taken.position for taken in batch], dtype=np.int64),
                    np.array([taken.relation for taken in batch], dtype=np.int64),
                    np.array([self._stream.tick(taken) for taken in batch], dtype=np.int64),
                    [taken.row for taken in batch],
                )
            )
        except TooManyRunsError:
            self._stream.catch_up(self._columns.live())
            self._columns = None
            return None

    def _formed(self, batch: Sequence[ReadTuple], found: Found) -> Iterator[PatternResult]:
        valuations = self._valuations(found)
        last, valuation = next(valuations, (FOREVER, ()))
        for taken in batch:
            self._stream.remember(taken)
            while last == taken.position:
                yield self._stream.formed(valuation)
                last, valuation = next(valuations, (FOREVER, ()))

    def _valuations(self, found: Found) -> Iterator[tuple[int, Valuation]]:
        for at in range(0, len(found), _ROWS):
            chosen = slice(at, at + _ROWS)
            rows = zip(*found.marked[:, chosen].tolist(), strict=True)
            for last, row in zip(found.last[chosen].tolist(), rows, strict=True):
                yield last, tuple([m for m in zip(row, self._labels, strict=True) if m[0] >= 0])
