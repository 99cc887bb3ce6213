"""The batch job: all results over a replay, equal to those of the in-process engine, record for record.

    decode -> settle lifespans -> cut into slices -> mesh over each slice -> sort

Docs: ``docs/architecture/spark.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.formats import Replay
from skws.keywords.plan import Plan
from skws.queries.keywords.result_emitter import COMPLETED, RETRACTED
from skws.results.model import Result
from skws.spark.evaluate import COUNTED, evaluated
from skws.spark.lifespans import TUPLES, settled
from skws.spark.positions import with_positions
from skws.spark.replayed import DecodedReplay, in_order
from skws.spark.slices import Slicing, plan_slices, quantiles, sliced
from skws_purging.lifespans import static_tuples
from skws_purging.tuples import StreamTuple
from skws_windows.window import FOREVER, TICKS_PER_ARRIVAL


class BatchRun(DecodedReplay):
    """One keyword query over one replay on Spark."""

    def __init__(self, spark: SparkSession, plan: Plan, replay: Replay) -> None:
        super().__init__(spark, plan.schema, replay, plan.matcher)
        self.ended_at: int | None = None  # the last tick of the stream, if its results are ranked
        self.slicing = Slicing((), 1)  # unless there is enough to share out
        self._plan = plan
        self._keyed = frozenset(i for i, r in enumerate(plan.schema.relations) if r.key)

    def results(self, limit: int | None = None) -> Iterator[Result]:
        """Results in order of time; at one time retractions first, then by id."""
        parts = self._shuffled_into(self._parts)
        ticked = self._ticked(self._stream())
        if self._plan.ranking is not None:
            row = ticked.select(sf.max("tick")).first()
            self.ended_at = row[0] if row else None
        if parts > 1:
            self.slicing = plan_slices(self._plan.lifespans, quantiles(ticked), parts)
        tuples = self._with_lifespans(ticked, self._keyed | self._counted.deleting)
        found = evaluated(sliced(tuples, self.slicing), self._plan, self._static(), self.slicing)
        try:
            yield from islice(self._received(found), limit)
        finally:
            ticked.unpersist()

    def _received(self, found: DataFrame) -> Iterator[Result]:
        for row in in_order(found, "tick", "kind", "time", "id"):
            if row.kind == COUNTED:
                setattr(self.counts, row.id, getattr(self.counts, row.id) + row.time)
                continue
            self.counts.results += row.kind == COMPLETED
            self.counts.retractions += row.kind == RETRACTED
            yield Result.from_json(bytes(row.result))

    def _ticked(self, stream: DataFrame) -> DataFrame:
        """With the tick of each record. Positions are kept; times are those of the records, which are."""
        if self._plan.by_count:
            placed = with_positions(stream, self._parts).persist(StorageLevel.MEMORY_AND_DISK)
            at = sf.col("tick") * TICKS_PER_ARRIVAL
            return placed.withColumn("tick", at - sf.col("deletion").cast("long"))
        return stream.withColumn("tick", sf.col("time"))

    def _with_lifespans(self, ticked: DataFrame, settle: frozenset[int]) -> DataFrame:
        """Tuples with lifespans: settled where tuples may end each other, else by the window alone."""
        chosen = sf.col("relation").isin(sorted(settle))
        parts = [self._natural(ticked.where(~chosen))]
        if settle:
            parts.append(settled(ticked.where(chosen), self._plan.lifespans, self._parts))
        return reduce(DataFrame.unionAll, parts)

    def _natural(self, ticked: DataFrame) -> DataFrame:
        none = sf.lit(None)
        columns = {
            "start": sf.col("tick"),
            "end": self._natural_end(),
            "occurrence": none,
            "successor": sf.lit(False),
            "ended_at": none,
        }
        shaped = ticked.withColumns(columns)
        return shaped.select(
            *(sf.col(name).cast(kind).alias(name) for name, kind in (c.split() for c in TUPLES.split(", ")))
        )

    def _natural_end(self) -> Column:
        first_end = self._plan.lifespans.end(0)
        return sf.lit(FOREVER) if first_end == FOREVER else sf.col("tick") + sf.lit(first_end)

    def _static(self) -> Callable[[], list[StreamTuple]]:
        """The static tables, broadcast as packed rows; a worker makes its tuples from them."""
        if not self._tables:
            return list
        rows = self._decoded.where(sf.col("relation").isin(self._tables)).orderBy("split", "place")
        packed = rows.select("relation", "packed").toArrow()
        shipped = self._spark.sparkContext.broadcast(
            list(zip(packed.column(0).to_pylist(), packed.column(1).to_pylist(), strict=True))
        )
        plan = self._plan

        def unpack() -> list[StreamTuple]:
            found = static_tuples(plan.schema, ((r, tuple(orjson.loads(row))) for r, row in shipped.value))
            for static in found:
                static.keywords = plan.matcher.bitmap(static.relation, static.row)
            return found

        return unpack
