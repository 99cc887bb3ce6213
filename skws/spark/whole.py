"""Queries in constant memory on Spark: one task puts the stream through their session, in order.

    decode -> sort by time in one partition, tables first -> session -> results

What the task holds does not grow with the stream; only the sort spills to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from skws.data.batch import RecordBatch, batched, whole_instants
from skws.data.record import Record
from skws.formats import Replay
from skws.memory import MemoryShare
from skws.queries.results import read_result, written
from skws.queries.session import Session
from skws.results.model import LiveResult
from skws.spark.decode import batched as arrow_batched
from skws.spark.decode import unbatched
from skws.spark.replayed import DecodedReplay
from skws.spark.worker_memory import of_a_worker
from skws.spec.query import Query
from skws.spec.stream import Stream

_READ: Final = ("relation", "time", "packed", "deletion")
_FOUND: Final = "result binary"
_ARROW_FOUND: Final = pa.schema([("result", pa.binary())])


class WholeBatch(DecodedReplay):
    """One query over one replay."""

    def __init__(self, spark: SparkSession, standing: Query, stream: Stream, replay: Replay) -> None:
        super().__init__(spark, stream.schema, replay)
        self._asked = standing, stream

    def results(self, limit: int | None = None) -> Iterator[LiveResult]:  # noqa: ARG002 - who reads stops
        """What the tuples of each time add, in order of time."""
        ordered = (
            self._decoded.where(sf.col("relation") >= 0)
            .withColumn("moving", ~sf.col("relation").isin(self._tables))
            .repartition(1)
            .sortWithinPartitions("moving", "time", "split", "place")
        )
        evaluate = _evaluator(*self._asked, of_a_worker(self._spark))
        for row in ordered.select(*_READ).mapInArrow(evaluate, _FOUND).toLocalIterator():
            yield read_result(bytes(row.result))


def _evaluator(
    standing: Query, stream: Stream, memory: MemoryShare
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with memory.kept():
            found = _results(map(_record, unbatched(batches)), standing, stream)
            yield from arrow_batched(((written(result),) for result in found), _ARROW_FOUND)

    return evaluate


def _record(row: tuple[Any, ...]) -> Record:
    relation, time, packed, deletion = row
    return Record(relation, time, tuple(orjson.loads(packed)), deletion)


def _results(records: Iterator[Record], standing: Query, stream: Stream) -> Iterator[LiveResult]:
    session = Session(stream, keywords=False)
    session.add(standing)
    first: list[Record] = []

    def static(record: Record) -> bool:
        if stream.schema.relations[record.relation].table:
            return True
        first.append(record)
        return False

    yield from session.load_tables(list(takewhile(static, records)))
    for batch in whole_instants(batched(chain(first, records))):
        yield from session.process(batch)
    yield from session.process(RecordBatch.of(()), ended=True)
