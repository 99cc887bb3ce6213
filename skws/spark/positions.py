"""Positions in the stream, for count windows: a global order without a single partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.spark.decode import DECODED

TICKED = f"{DECODED}, tick bigint"


def with_positions(stream: DataFrame, partitions: int) -> DataFrame:
    """Add ``tick``: how many insertions come before, by time, then by order of arrival.

    A range partition knows where it begins once all partitions are counted.
    """
    order = ("time", "split", "place")
    ordered = (
        stream.repartitionByRange(partitions, *order)
        .sortWithinPartitions(*order)
        .withColumn("part", sf.spark_partition_id())
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    counted = ordered.groupBy("part").agg(sf.sum((~sf.col("deletion")).cast("long")).alias("insertions"))
    counts = {row.part: row.insertions for row in counted.collect()}
    parts = sorted(counts)
    offsets = dict(zip(parts, accumulate((counts[p] for p in parts), initial=0), strict=False))
    return ordered.mapInArrow(_numberer(offsets), TICKED)


def _numberer(offsets: dict[int, int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if before is None:
                before = offsets[batch.column("part")[0].as_py()]
            inserted = ~batch.column("deletion").to_numpy(zero_copy_only=False)
            reached = before + np.cumsum(inserted)
            ticks = pa.array((reached - inserted).astype(np.int64))
            before = int(reached[-1])
            yield pa.RecordBatch.from_arrays(
                [*batch.columns[:-1], ticks], names=[*batch.schema.names[:-1], "tick"]
            )

    return number
