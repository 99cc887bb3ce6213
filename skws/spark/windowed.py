"""The batch job over the windows of an expression, equal to the in-process engine record for record.

decode -> positions -> one task finds the windows -> cut where none is open -> the engine over each slice
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from skws.data.batch import RecordBatch
from skws.formats import Replay
from skws.index import with_sources
from skws.keywords.plan import Plan
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.windowed.engine import WindowedEngine
from skws.ranking.top import BestOfWindows
from skws.results.model import Result
from skws.spark.batch import BatchRun
from skws.spark.decode import batched, unbatched
from skws.spark.evaluate import COUNTED, RESULTS, RESULTS_ARROW, result_row
from skws.spark.positions import with_positions
from skws.spark.window_cuts import SLICES, Cut, cut_at, find_cuts, records_of
from skws.spark.worker_memory import of_a_worker
from skws.spec.ranking import TopChoice
from skws_purging.lifespans import static_tuples
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_windows.window import ExpressionWindow

_OWN_COUNTS: Final = ("static", "excluded", "unmatched_deletions")


class WindowedRun(BatchRun):
    """One query over the windows of an expression. ``top``: the best of each window, None for all."""

    def __init__(self, spark: SparkSession, plan: Plan, replay: Replay, top: TopChoice | None = None) -> None:
        super().__init__(spark, plan, replay)
        self._best = None if top is None else BestOfWindows(top, plan.schema)

    def results(self, limit: int | None = None) -> Iterator[Result]:
        """Results in order of the ends of their windows, then by id."""
        parts = self._shuffled_into(self._parts)
        ticked = with_positions(self._stream(), parts).persist(StorageLevel.MEMORY_AND_DISK)
        cuts = self._cuts(ticked) if parts > 1 else []
        found = _evaluated(cut_at(ticked, cuts), self._plan, self._static(), cuts)
        try:
            results = islice(self._received(found), limit)
            yield from results if self._best is None else self._best.take(results)
        finally:
            ticked.unpersist()

    def _cuts(self, ticked: DataFrame) -> list[Cut]:
        window = self._plan.window
        assert isinstance(window, ExpressionWindow)  # noqa: S101 - who calls has looked
        return find_cuts(ticked, self._plan.schema, window, self._counted.records // (self._parts * SLICES))


def _evaluated(
    sliced: DataFrame, plan: Plan, static: Callable[[], list[StreamTuple]], cuts: list[Cut]
) -> DataFrame:
    memory = of_a_worker(sliced.sparkSession)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        with memory.kept():
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
            engine.go_on_from(orjson.loads(cuts[number - 1].state))
        else:
            yield from map(result_row, alone)
        before = {name: getattr(engine.counts, name) if number else 0 for name in _OWN_COUNTS}
        for records in records_of(group):
            yield from map(result_row, engine.events(RecordBatch.of(records)))
        for name in _OWN_COUNTS:
            yield ALWAYS - 1, COUNTED, getattr(engine.counts, name) - before[name], name, None
