"""A pattern over tuples that are all there: by columns as long as that is quick, then by its automaton."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from skws.data.batch import BATCH
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.stream import PatternStream, ReadTuple
from skws.queries.patterns.text import PatternQuery
from skws_patterns.evaluation.columnar import ColumnarEvaluator, Found, TooManyRunsError, Tuples
from skws_patterns.evaluation.heap import Valuation
from skws_patterns.evaluation.runs import column_plan
from skws_schema.model import Schema
from skws_windows.window import FOREVER, Window

_ROWS: Final = 4096  # of results, made Python's at a time


class ReplayedPattern:
    """Evaluates a pattern over tuples in order of time. ``stream`` takes batches of records apart.

    ``window`` as for a ``PatternStream``. One of ``results`` and ``count`` is to be asked, again and again.
    """

    def __init__(self, query: PatternQuery, schema: Schema, window: Window | None = None) -> None:
        self.stream = PatternStream(query, schema, window)
        plan = column_plan(query.pcea)
        self._labels = [frozenset({label}) for label in plan.labels] if plan else []
        self._columns = ColumnarEvaluator(plan, self.stream.window) if plan else None

    def results(
        self, tuples: Iterable[ReadTuple], begin: int = -FOREVER
    ) -> Iterator[tuple[int, PatternResult]]:
        """Results with the positions of their last tuples, of those from tick ``begin`` on, in order."""
        for batch in _batches(tuples):
            found = self._found(batch)
            if found is None:
                for last in self.stream.completing(batch, begin):
                    for result in self.stream.results():
                        yield last.position, result
            else:
                yield from self._formed(batch, found, begin)

    def count(self, tuples: Iterable[ReadTuple], begin: int = -FOREVER) -> Iterator[int]:
        """How many results there are, told bit by bit, none of them formed."""
        for batch in _batches(tuples):
            found = self._found(batch)
            if found is None:
                for _ in self.stream.completing(batch, begin, remember=False):
                    yield self.stream.how_many()
            else:
                first = next((t.position for t in batch if self.stream.tick(t) >= begin), FOREVER)
                yield int((found.last >= first).sum())

    def _found(self, batch: Sequence[ReadTuple]) -> Found | None:
        """The results that a batch completes; None where they are for the automaton."""
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
