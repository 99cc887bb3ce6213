"""Where a stream is cut: no window of an expression is open there, so a tracker's state is all that goes on.

Where windows begin depends on all that came before, so one task reads the
whole stream, for windows alone. It hands its state on to each slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from skws.data.record import Record
from skws.queries.windowed.plan import WindowPlan
from skws.spark.decode import batched, unbatched
from skws.spark.slices import SEED
from skws_schema.model import Schema
from skws_windows.guards.columns import RowSource
from skws_windows.processor.spans import Tracker
from skws_windows.window import ExpressionWindow

_CUTS: Final = "position bigint, state binary"
_CUTS_ARROW: Final = pa.schema([("position", pa.int64()), ("state", pa.binary())])
_SLICED: Final = (
    "slice int, relation smallint, time bigint, deletion boolean, packed binary, split int, place bigint"
)
_LOOK: Final = 500
"""So often, in records, the tracker looks whether no window is open."""
SLICES: Final = 3
"""For each task: they take unequal time."""


class Cut(NamedTuple):
    """No window is open before the record at ``position``; ``state`` is the tracker's there, in JSON."""

    position: int
    state: bytes


def find_cuts(ticked: DataFrame, schema: Schema, window: ExpressionWindow, least: int) -> list[Cut]:
    """Where to cut the stream, at least so many records apart; ``tick`` is the position among insertions."""
    request = WindowPlan.of_text(schema, window.text)
    expression, alphabet, look = request.compiled(), request.alphabet, _LOOK

    def track(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batched(
            _tracked(Tracker(expression, alphabet), unbatched(batches), least, look), _CUTS_ARROW
        )

    whole = ticked.where(~sf.col("deletion")).select("relation", "time", "packed", "tick")
    one = whole.repartition(1).sortWithinPartitions("tick").select("relation", "time", "packed")
    return [Cut(row.position, bytes(row.state)) for row in one.mapInArrow(track, _CUTS).collect()]


def _tracked(
    tracker: Tracker, rows: Iterator[tuple[Any, ...]], least: int, look: int
) -> Iterator[tuple[int, bytes]]:
    last = 0
    while chunk := list(islice(rows, look)):
        relation, time, packed = zip(*chunk, strict=True)
        own = [tuple(orjson.loads(row)) for row in packed]
        tracker.feed(RowSource(np.array(relation, dtype=np.int64), np.array(time, dtype=np.int64), own))
        if not tracker.open and tracker.position - last >= least:
            last = tracker.position
            yield last, orjson.dumps(tracker.state())


def cut_at(ticked: DataFrame, cuts: list[Cut]) -> DataFrame:
    """The records by slice, each in its order; a deletion goes with the insertion after it.

    The first slice is there even without records.
    """
    bounds = [cut.position for cut in cuts]
    number = sum((sf.when(sf.col("tick") >= bound, 1).otherwise(0) for bound in bounds), sf.lit(0))
    seed = ticked.sparkSession.createDataFrame([(0, SEED, 0, False, None, 0, 0)], _SLICED)
    return (
        ticked.withColumn("slice", number.cast("int"))
        .select(*seed.columns)
        .unionAll(seed)
        .repartitionById(len(bounds) + 1, sf.col("slice"))
        .sortWithinPartitions("slice", "time", "split", "place")
        .select("slice", "relation", "time", "deletion", "packed")
    )


def records_of(rows: Iterator[tuple[Any, ...]], size: int = 10_000) -> Iterator[list[Record]]:
    """The rows of one slice of ``cut_at`` as records, some at a time."""
    own = (row for row in rows if row[1] != SEED)
    while chunk := list(islice(own, size)):
        yield [Record(r, time, tuple(orjson.loads(packed)), gone) for _, r, time, gone, packed in chunk]
