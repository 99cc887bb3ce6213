"""Patterns on Spark: all results over a replay, equal to those of the in-process evaluation.

    decode -> positions -> share out -> evaluate each share -> sort

By the value of the root variable where there is one, with no replication;
else by time, each slice with the window before it.
Docs: ``patterns/README.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Partition
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.formats import Replay
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.patterns.replayed import ReplayedPattern
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.stream import ReadTuple
from skws.queries.patterns.text import PatternQuery, read_query
from skws.spark.decode import batched, unbatched
from skws.spark.positions import with_positions
from skws.spark.replayed import DecodedReplay, in_order
from skws.spark.slices import Slicing, plan_slices, quantiles
from skws.spark.worker_memory import of_a_worker
from skws_purging.tuples import ALWAYS
from skws_schema.model import Schema
from skws_windows.window import FOREVER, CountWindow, Unbounded, Window, parse_window

_SHARED = "share int, position bigint, relation smallint, time bigint, successor boolean, packed binary"
_ARROW_SHARED = pa.schema(
    [
        ("share", pa.int32()),
        ("position", pa.int64()),
        ("relation", pa.int16()),
        ("time", pa.int64()),
        ("successor", pa.bool_()),
        ("packed", pa.binary()),
    ]
)
FOUND = "position bigint, id string, result binary"
ARROW_FOUND = pa.schema([("position", pa.int64()), ("id", pa.string()), ("result", pa.binary())])

Evaluated = Callable[[ReplayedPattern, Iterable[ReadTuple], int], Iterator[tuple[Any, ...]]]


class PatternBatch(DecodedReplay):
    """One pattern over one replay."""

    def __init__(
        self, spark: SparkSession, text: str, schema: Schema, window: Window | None, replay: Replay
    ) -> None:
        super().__init__(spark, schema, replay)
        self.slicing = Slicing((), 1)
        self._text, self._given = text, window
        self._query = read_query(text, schema)
        self._window = window or self._query.window or parse_window(schema.window)

    def results(self, limit: int | None = None) -> Iterator[PatternResult]:
        """Results by the positions of their last tuples, at one by id."""
        found = self._evaluated(_results, FOUND, ARROW_FOUND)
        yield from islice(received(found, "position", "id"), limit)

    def count(self) -> int:
        """How many results there are; in texts, as they can be more than any column holds."""
        counted = self._evaluated(_count, "found string", pa.schema([("found", pa.string())]))
        return sum(int(row.found) for row in counted.collect())

    def _evaluated(self, run: Evaluated, columns: str, arrow: pa.Schema) -> DataFrame:
        parts = self._shuffled_into(self._parts)
        tuples = self._named(self._positioned(parts))
        shared, parts = self._shared_out(tuples, parts)
        ordered = shared.repartitionById(parts, "share").sortWithinPartitions("share", "position")
        return ordered.mapInArrow(self._evaluator(run, arrow), columns)

    def _insertions(self, parts: int) -> DataFrame:
        """The insertions of the stream; ``tick`` is the position of each among them."""
        return with_positions(self._stream(), parts).where(~sf.col("deletion"))

    def _positioned(self, parts: int) -> DataFrame:
        """The insertions that the pattern reads, with their positions among all."""
        read = sf.col("relation").isin(sorted(self._query.pcea.relations))
        placed = self._insertions(parts).where(read)
        return placed.withColumnRenamed("tick", "position").withColumn(
            "tick", sf.col("position" if isinstance(self._window, CountWindow) else "time")
        )

    def _named(self, tuples: DataFrame) -> DataFrame:
        """With whether a tuple follows one of its key within a window: they may be in different shares."""
        keyed = [i for i in self._query.pcea.relations if self._schema.relations[i].key]
        if not keyed:
            return tuples.withColumn("successor", sf.lit(False))
        former = sf.lag("tick").over(Partition.partitionBy("relation", "identity").orderBy("position"))
        span = self._window.end(0)
        close = former.isNotNull() & (sf.lit(span == FOREVER) | (sf.col("tick") - former < span))
        return tuples.withColumn("successor", close & sf.col("identity").isNotNull())

    def _shared_out(self, tuples: DataFrame, parts: int) -> tuple[DataFrame, int]:
        """Tuples with their shares, and how many shares there are."""
        if self._query.root is None and not isinstance(self._window, Unbounded) and parts > 1:
            kept = tuples.persist(StorageLevel.MEMORY_AND_DISK)
            bounds = plan_slices(self._window, quantiles(kept), parts).bounds
            self.slicing = Slicing(bounds, 1)
        if self._query.root is None:
            parts = self.slicing.slices
        columns = ["position", "relation", "time", "tick", "successor", "packed"]
        share = self._by_root(parts) if self._query.root else _by_time(self._window, self.slicing)
        return tuples.select(*columns).mapInArrow(_sharing(share), _SHARED), parts

    def _by_root(self, shards: int) -> Callable[[int, int, bytes], Iterable[int]]:
        root = self._query.root

        def share(relation: int, _: int, packed: bytes) -> Iterable[int]:
            shard = root.shard(relation, orjson.loads(packed), shards) if root else None
            return () if shard is None else (shard,)

        return share

    def _evaluator(
        self, run: Evaluated, arrow: pa.Schema
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        text, schema, window, bounds = self._text, self._schema, self._given, self.slicing.bounds
        memory = of_a_worker(self._spark)

        def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            expect_long_lived_objects()
            query = read_query(text, schema)
            with memory.kept():
                yield from batched(_run_shares(unbatched(batches), query, schema, window, bounds, run), arrow)

        return evaluate


def received(found: DataFrame, *order: str) -> Iterator[PatternResult]:
    """Results in an order of their columns."""
    for row in in_order(found, *order):
        yield PatternResult.from_json(bytes(row.result))


def _by_time(window: Window, slicing: Slicing) -> Callable[[int, int, bytes], Iterable[int]]:
    """A tuple belongs to its slice, and to those that begin while it is in the window."""
    bounds = np.asarray(slicing.bounds, dtype=np.int64)

    def share(_: int, tick: int, __: bytes) -> Iterable[int]:
        first = int(np.searchsorted(bounds, tick, side="right"))
        return range(first, max(first, int(np.searchsorted(bounds, window.end(tick), side="left"))) + 1)

    return share


def _sharing(
    share: Callable[[int, int, bytes], Iterable[int]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def shared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            (number, position, relation, time, successor, packed)
            for position, relation, time, tick, successor, packed in unbatched(batches)
            for number in share(relation, tick, packed)
        )
        yield from batched(rows, _ARROW_SHARED)

    return shared


def _run_shares(
    rows: Iterable[tuple[Any, ...]],
    query: PatternQuery,
    schema: Schema,
    window: Window | None,
    bounds: tuple[int, ...],
    run: Evaluated,
) -> Iterator[tuple[Any, ...]]:
    for share, group in groupby(rows, key=lambda row: row[0]):
        tuples = (
            ReadTuple(position, relation, tuple(orjson.loads(packed)), time, successor)
            for _, position, relation, time, successor, packed in group
        )
        begin = bounds[share - 1] if bounds and share else ALWAYS
        yield from run(ReplayedPattern(query, schema, window), tuples, begin)


def _results(pattern: ReplayedPattern, tuples: Iterable[ReadTuple], begin: int) -> Iterator[tuple[Any, ...]]:
    for position, result in pattern.results(tuples, begin):
        yield position, result.id, result.to_json()


def _count(pattern: ReplayedPattern, tuples: Iterable[ReadTuple], begin: int) -> Iterator[tuple[Any, ...]]:
    yield (str(sum(pattern.counted(tuples, begin))),)
