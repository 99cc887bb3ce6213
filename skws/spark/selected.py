"""Patterns that show attributes on Spark: one task puts the stream through the synopses, in order.

    decode -> sort by time in one partition, tables first -> synopses -> rows by time

What the task holds does not grow with the stream; only the sort spills to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from schema.model import Schema
from skws.bounded.result import SqlResult
from skws.bounded.selected import SelectedRun, selected, told
from skws.live.results import read_result
from skws.memory import MemoryShare
from skws.records import Record
from skws.replay import Replay
from skws.spark.decode import batched, unbatched
from skws.spark.replayed import DecodedReplay
from skws.spark.worker_memory import of_a_worker
from skws.tables.whole import with_sources

_READ: Final = ("relation", "time", "packed")
_FOUND: Final = "result binary"
_ARROW_FOUND: Final = pa.schema([("result", pa.binary())])


class SelectedBatch(DecodedReplay):
    """One pattern over one replay, showing the attributes of ``shown``."""

    def __init__(
        self, spark: SparkSession, text: str, shown: tuple[str, ...], schema: Schema, replay: Replay
    ) -> None:
        super().__init__(spark, schema, replay)
        self._text, self._shown = text, shown
        self._read = sorted(selected(text, schema, shown).feeds)

    def results(self) -> Iterator[SqlResult]:
        """What the tuples of each time add, in order of time."""
        read = self._decoded.where(sf.col("relation").isin(self._read) & ~sf.col("deletion"))
        ordered = (
            read.withColumn("moving", ~sf.col("relation").isin(self._tables))
            .repartition(1)
            .sortWithinPartitions("moving", "time", "split", "place")
        )
        evaluate = _evaluator(self._text, self._shown, self._schema, of_a_worker(self._spark))
        for row in ordered.select(*_READ).mapInArrow(evaluate, _FOUND).toLocalIterator():
            result = read_result(bytes(row.result))
            assert isinstance(result, SqlResult)  # noqa: S101 - the task writes these
            yield result


def _evaluator(
    text: str, shown: tuple[str, ...], schema: Schema, memory: MemoryShare
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with memory.kept():
            yield from batched(_results(unbatched(batches), text, shown, schema), _ARROW_FOUND)

    return evaluate


def _results(
    rows: Iterator[tuple[Any, ...]], text: str, shown: tuple[str, ...], schema: Schema
) -> Iterator[tuple[bytes]]:
    pattern = selected(text, schema, shown)
    tables = list(with_sources(schema, ()))
    run: SelectedRun | None = None
    for relation, time, packed in rows:
        row = tuple(orjson.loads(packed))
        if schema.relations[relation].table:
            tables.append(Record(relation, time, row))
            continue
        run = run or SelectedRun(pattern, tables)
        for added in run.take(relation, time, row):
            yield (told(pattern, added).to_json(),)
    for added in run.end() if run else ():
        yield (told(pattern, added).to_json(),)
