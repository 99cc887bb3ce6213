"""Patterns over the windows of an expression on Spark, equal to the in-process evaluation record for record.

decode -> positions -> one task finds the windows -> cut where none is open -> evaluate each slice -> sort
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from skws.data.batch import RecordBatch
from skws.memory import MemoryShare
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.text import read_query
from skws.queries.windowed.pattern import WindowedPattern
from skws.spark.decode import batched, unbatched
from skws.spark.patterns import ARROW_FOUND, FOUND, PatternBatch, received
from skws.spark.window_cuts import SLICES, Cut, cut_at, find_cuts, records_of
from skws.spark.worker_memory import of_a_worker
from skws_schema.model import Schema
from skws_windows.window import ExpressionWindow

_ENDED: Final = f"ended bigint, {FOUND}"
_ARROW_ENDED: Final = pa.schema([("ended", pa.int64()), *ARROW_FOUND])
_COUNTED: Final = "found bigint"
_ARROW_COUNTED: Final = pa.schema([("found", pa.int64())])

Given: TypeAlias = Callable[[WindowedPattern, RecordBatch], Iterable[tuple[Any, ...]]]
"""What a slice gives of each of its batches: rows."""


class WindowedPatternBatch(PatternBatch):
    """One pattern over one replay, the tuples of a result all in one window of an expression."""

    def results(self, limit: int | None = None) -> Iterator[PatternResult]:
        """Results by the ends of their windows, then by the positions of their last tuples, then by id."""
        with self._sliced(_ended, _ENDED, _ARROW_ENDED) as found:
            yield from islice(received(found, "ended", "position", "id"), limit)

    def count(self) -> int:
        """How many results there are."""
        with self._sliced(_count, _COUNTED, _ARROW_COUNTED) as found:
            return sum(row.found for row in found.collect())

    @contextmanager
    def _sliced(self, give: Given, columns: str, arrow: pa.Schema) -> Iterator[DataFrame]:
        """What the slices of the stream give."""
        assert isinstance(self._window, ExpressionWindow)  # noqa: S101 - who makes one has looked
        parts = self._shuffled_into(self._parts)
        ticked = self._insertions(parts).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            least = self._counted.records // (parts * SLICES)
            cuts = find_cuts(ticked, self._schema, self._window, least) if parts > 1 else []
            memory = of_a_worker(self._spark)
            evaluate = _evaluator(self._text, self._schema, self._window, cuts, give, arrow, memory)
            yield cut_at(ticked, cuts).mapInArrow(evaluate, columns)
        finally:
            ticked.unpersist()


def _evaluator(
    text: str,
    schema: Schema,
    window: ExpressionWindow,
    cuts: list[Cut],
    give: Given,
    arrow: pa.Schema,
    memory: MemoryShare,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def given(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        query = read_query(text, schema)
        for number, rows in groupby(unbatched(batches), key=itemgetter(0)):
            pattern = WindowedPattern(query, schema, window)
            if number:
                pattern.go_on_from(orjson.loads(cuts[number - 1].state))
            for records in records_of(rows):
                yield from give(pattern, RecordBatch.of(records))

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        with memory.kept():
            yield from batched(given(batches), arrow)

    return evaluate


def _ended(pattern: WindowedPattern, batch: RecordBatch) -> Iterator[tuple[Any, ...]]:
    for end, last, name, result in pattern.ended(batch):
        yield end, last, name, result.to_json()


def _count(pattern: WindowedPattern, batch: RecordBatch) -> Iterator[tuple[Any, ...]]:
    yield (len(pattern.ended(batch)),)
