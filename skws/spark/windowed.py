"""The batch job over the windows of an expression, equal to the in-process engine record for record.

    decode -> positions -> one task finds the windows -> cut where none is open -> the engine over each slice

Where windows begin depends on all that came before, so one task reads the
whole stream, for windows alone. It hands its state on to each slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.batches import RecordBatch
from skws.engine.collector import expect_long_lived_objects
from skws.engine.events import Event
from skws.plan import Plan
from skws.records import Record
from skws.results.model import Result
from skws.spark.batch import BatchRun
from skws.spark.decode import batched, unbatched
from skws.spark.evaluate import COUNTED, RESULTS, RESULTS_ARROW, result_row
from skws.spark.positions import with_positions
from skws.tables.whole import with_sources
from skws.windowing.engine import WindowedEngine
from skws.windowing.request import WindowsRequest
from windows.expressions.source import RowSource
from windows.expressions.spans import Tracker
from windows.lifespans import static_tuples
from windows.tuples import ALWAYS, StreamTuple
from windows.window import ExpressionWindow

_CUTS: Final = "position bigint, state binary"
_CUTS_ARROW: Final = pa.schema([("position", pa.int64()), ("state", pa.binary())])
_SLICED: Final = "slice int, relation smallint, time bigint, deletion boolean, packed binary"
_LOOK: Final = 500
"""So often, in records, the tracker looks whether no window is open."""
_SLICES: Final = 3
"""For each task: they take unequal time."""
_OWN_COUNTS: Final = ("static", "excluded", "unmatched_deletions")


class Cut(NamedTuple):
    """No window is open before the record at ``position``; ``state`` is the tracker's there, in JSON."""

    position: int
    state: bytes


class WindowedRun(BatchRun):
    """One query over the windows of an expression."""

    def results(self, limit: int | None = None) -> Iterator[Result]:
        """Results in order of the ends of their windows, then by id."""
        parts = self._parts
        self._spark.conf.set("spark.sql.shuffle.partitions", str(parts))
        stream = self._decoded.where((sf.col("relation") >= 0) & ~sf.col("relation").isin(self._tables))
        ticked = with_positions(stream, parts).persist(StorageLevel.MEMORY_AND_DISK)
        cuts = _cuts(ticked, self._plan, self._counted.records // (parts * _SLICES)) if parts > 1 else []
        found = _evaluated(_sliced(ticked, cuts), self._plan, self._static(), cuts)
        found = found.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield from islice(self._received(found.sort("tick", "kind", "time", "id")), limit)
        finally:
            found.unpersist()
            ticked.unpersist()


def _cuts(ticked: DataFrame, plan: Plan, least: int) -> list[Cut]:
    """Where to cut the stream, at least so many records apart."""
    assert isinstance(plan.window, ExpressionWindow)  # noqa: S101 - who calls has looked
    request = WindowsRequest(plan.schema, plan.window.text)
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


def _sliced(ticked: DataFrame, cuts: list[Cut]) -> DataFrame:
    """The records by slice, each in its order; a deletion goes with the insertion after it."""
    bounds = [cut.position for cut in cuts]
    number = sum((sf.when(sf.col("tick") >= bound, 1).otherwise(0) for bound in bounds), sf.lit(0))
    return (
        ticked.withColumn("slice", number.cast("int"))
        .repartitionById(len(bounds) + 1, sf.col("slice"))
        .sortWithinPartitions("slice", "time", "split", "place")
        .select("slice", "relation", "time", "deletion", "packed")
    )


def _evaluated(
    sliced: DataFrame, plan: Plan, static: Callable[[], list[StreamTuple]], cuts: list[Cut]
) -> DataFrame:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        yield from batched(_run_slices(unbatched(batches), plan, static, cuts), RESULTS_ARROW)

    return sliced.mapInArrow(run, RESULTS)


def _run_slices(
    rows: Iterator[tuple[Any, ...]],
    plan: Plan,
    static: Callable[[], list[StreamTuple]],
    cuts: list[Cut],
) -> Iterator[tuple[Any, ...]]:
    for number, group in groupby(rows, key=lambda row: row[0]):
        engine = WindowedEngine.of(plan)
        sources = ((r.relation, r.row) for r in with_sources(plan.schema, ()))
        alone = engine.load([*static(), *static_tuples(plan.schema, sources)])
        if number:
            engine.stand_at(orjson.loads(cuts[number - 1].state))
        else:
            yield from map(result_row, alone)
        before = {name: getattr(engine.counts, name) if number else 0 for name in _OWN_COUNTS}
        yield from map(result_row, _events(engine, group))
        for name in _OWN_COUNTS:
            yield ALWAYS - 1, COUNTED, getattr(engine.counts, name) - before[name], name, None


def _events(engine: WindowedEngine, rows: Iterator[tuple[Any, ...]]) -> Iterator[Event]:
    while chunk := list(islice(rows, 10_000)):
        records = [Record(r, time, tuple(orjson.loads(packed)), gone) for _, r, time, gone, packed in chunk]
        yield from engine.events(RecordBatch.of(records))
