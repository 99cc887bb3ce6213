"""Third stage: time cut into slices, each with its tuples and the window before it.

A slice reports the results whose youngest tuple lies in it, so slices are
independent. Its price is the window before it, read again; where windows are
too long for that, the results are shared out by their root tuple instead, and
a slice is run by several shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from skws.spark.lifespans import TUPLES
from skws_windows.window import TICKS_PER_ARRIVAL, ArrivalWindow, CountWindow, TimeWindow, Window

QUANTILES = 256
SEED = -3  # in place of a relation: makes sure that a slice is run even without tuples
SLICED = f"slice int, shard int, {TUPLES}"


@dataclass(frozen=True, slots=True)
class Slicing:
    """How the work is shared out.

    ``bounds`` are the first ticks of all slices but the first, which has no
    beginning; each slice is run by ``shards`` shards.
    """

    bounds: tuple[int, ...]
    shards: int

    @property
    def slices(self) -> int:
        return len(self.bounds) + 1


def quantiles(ticked: DataFrame) -> list[int]:
    """Quantiles of the ticks of insertions, the least and the greatest included; empty without any."""
    fractions = [float(f) for f in np.linspace(0, 1, QUANTILES + 1)]
    row = ticked.where(~sf.col("deletion")).select(sf.percentile_approx("tick", fractions, 10_000)).first()
    return list(row[0]) if row and row[0] else []


def plan_slices(window: Window, ticks: list[int], cores: int) -> Slicing:
    """Cut where the tuples are. ``ticks`` are quantiles of their starts, with both extremes.


    As many slices as keep the repeated windows below the work itself, at most
    four a core so that uneven ones even out; and shards for the cores left.
    """
    if len(ticks) < 2 or ticks[0] == ticks[-1]:
        return Slicing((), cores)
    span = ticks[-1] - ticks[0]
    match window:
        case TimeWindow(length):
            affordable = span // length
        case CountWindow(size):
            affordable = span // size
        case ArrivalWindow(size):
            affordable = span // (size * TICKS_PER_ARRIVAL)
        case _:
            affordable = 1
    slices = max(1, min(affordable, 4 * cores))
    places = np.linspace(0, len(ticks) - 1, slices + 1)[1:-1]
    bounds = sorted({ticks[int(place)] for place in places} - {ticks[0]})
    return Slicing(tuple(bounds), -(-cores // (len(bounds) + 1)))


def sliced(tuples: DataFrame, slicing: Slicing) -> DataFrame:
    """Each tuple once for every slice that it is alive in, and for every shard; columns SLICED.

    Rows come sorted within their partition by slice, shard and start.
    """
    spark = tuples.sparkSession
    parts = slicing.slices * slicing.shards
    blank = (SEED, 0, 0, 0, 0, 0, 0, 0, False, None, None)
    seeds = spark.createDataFrame(
        [(number, shard, *blank) for number in range(slicing.slices) for shard in range(slicing.shards)],
        SLICED,
    )
    return (
        tuples.mapInArrow(_slicer(slicing), SLICED)
        .unionAll(seeds)
        .repartitionById(parts, sf.expr(f"slice * {slicing.shards} + shard"))
        .sortWithinPartitions("slice", "shard", "start", "split", "place")
    )


def _slicer(slicing: Slicing) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    bounds = np.asarray(slicing.bounds, dtype=np.int64)

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            starts = batch.column("start").to_numpy(zero_copy_only=False)
            ends = batch.column("end").to_numpy(zero_copy_only=False)
            first = np.searchsorted(bounds, starts, side="right")
            last = np.maximum(first, np.searchsorted(bounds, ends, side="left"))
            for number in range(int(first.min(initial=0)), int(last.max(initial=-1)) + 1):
                inside = batch.filter(pa.array((first <= number) & (number <= last)))
                for shard in range(slicing.shards if inside.num_rows else 0):
                    yield _labelled(inside, number, shard)

    return cut


def _labelled(batch: pa.RecordBatch, number: int, shard: int) -> pa.RecordBatch:
    labels = [pa.array(np.full(batch.num_rows, value, dtype=np.int32)) for value in (number, shard)]
    names = ["slice", "shard", *batch.schema.names]
    return pa.RecordBatch.from_arrays([*labels, *batch.columns], names=names)
