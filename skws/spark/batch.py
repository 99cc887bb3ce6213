"""The batch job: all results over a replay, equal to those of the in-process engine, record for record.

    decode -> settle lifespans -> cut into slices -> mesh over each slice -> sort

Docs: ``docs/architecture/spark.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, reduce
from itertools import islice
from typing import NamedTuple

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.engine.engine import Counts
from skws.engine.events import COMPLETED, RETRACTED
from skws.plan import Plan
from skws.records import BadRecord
from skws.replay import Replay
from skws.results.model import Result
from skws.spark.decode import BAD, decoded, unpack_bad
from skws.spark.evaluate import COUNTED, evaluated
from skws.spark.lifespans import TUPLES, settled
from skws.spark.positions import with_positions
from skws.spark.slices import Slicing, plan_slices, quantiles, sliced
from windows.lifespans import static_tuples
from windows.tuples import StreamTuple
from windows.window import FOREVER

SMALL = 20_000  # records


class Counted(NamedTuple):
    """Records of a replay, bad ones included; the relations with deletions; how many are bad."""

    records: int
    deleting: frozenset[int]
    bad: int


class BatchRun:
    """One query over one replay on Spark. ``counts`` are complete when the results have been read."""

    def __init__(self, spark: SparkSession, plan: Plan, replay: Replay) -> None:
        self.counts = Counts()
        self.ended_at: int | None = None  # the last tick of the stream, if its results are ranked
        self.slicing = Slicing((), 1)  # unless there is enough to share out
        self._spark = spark
        self._plan = plan
        found = decoded(spark, plan.schema, replay.splits, plan.matcher)
        self._decoded = found.persist(StorageLevel.MEMORY_AND_DISK)
        relations = plan.schema.relations
        self._tables = [i for i, r in enumerate(relations) if r.table]
        self._keyed = frozenset(i for i, r in enumerate(relations) if r.key)

    def __enter__(self) -> BatchRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoded.unpersist()

    def bad_records(self) -> Iterator[BadRecord]:
        """What was no record, in order of arrival. To be read before ``results``."""
        if not self._counted.bad:
            return
        bad = self._decoded.where(sf.col("relation") == BAD).orderBy("split", "place").select("packed")
        for row in bad.toLocalIterator():
            yield unpack_bad(bytes(row.packed))

    def results(self, limit: int | None = None) -> Iterator[Result]:
        """Results in order of time; at one time retractions first, then by id."""
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._parts))
        stream = self._decoded.where((sf.col("relation") >= 0) & ~sf.col("relation").isin(self._tables))
        ticked = self._ticked(stream).persist(StorageLevel.MEMORY_AND_DISK)
        if self._plan.ranking is not None:
            row = ticked.select(sf.max("tick")).first()
            self.ended_at = row[0] if row else None
        if self._parts > 1:
            self.slicing = plan_slices(self._plan.window, quantiles(ticked), self._parts)
        tuples = self._with_lifespans(ticked, self._keyed | self._counted.deleting)
        found = evaluated(sliced(tuples, self.slicing), self._plan, self._static(), self.slicing)
        # Sorting looks at its input twice, first to find out where to cut it.
        found = found.persist(StorageLevel.MEMORY_AND_DISK)
        ordered = found.sort("tick", "kind", "time", "id")
        try:
            yield from islice(self._received(ordered), limit)
        finally:
            found.unpersist()
            ticked.unpersist()

    def _received(self, ordered: DataFrame) -> Iterator[Result]:
        for row in ordered.toLocalIterator(prefetchPartitions=True):
            if row.kind == COUNTED:
                setattr(self.counts, row.id, getattr(self.counts, row.id) + row.time)
                continue
            self.counts.results += row.kind == COMPLETED
            self.counts.retractions += row.kind == RETRACTED
            yield Result.from_json(bytes(row.result))

    @cached_property
    def _counted(self) -> Counted:
        """What the replay holds. Decodes it."""
        records, deleting, bad = 0, set(), 0
        grouped = self._decoded.groupBy("relation", "deletion").agg(sf.count("*").alias("records"))
        for row in grouped.collect():
            records += row.records
            if row.relation == BAD:
                bad = row.records
            elif row.deletion:
                deleting.add(int(row.relation))
                self.counts.deletions += row.records
            elif row.relation not in self._tables:
                self.counts.tuples += row.records
        return Counted(records, frozenset(deleting), bad)

    @property
    def _parts(self) -> int:
        """Tasks to share the work out to: one where starting more costs more than the work."""
        return 1 if self._counted.records < SMALL else self._spark.sparkContext.defaultParallelism

    def _ticked(self, stream: DataFrame) -> DataFrame:
        if self._plan.by_count:
            return with_positions(stream, self._parts)
        return stream.withColumn("tick", sf.col("time"))

    def _with_lifespans(self, ticked: DataFrame, settle: frozenset[int]) -> DataFrame:
        """Tuples with lifespans: settled where tuples may end each other, else by the window alone."""
        chosen = sf.col("relation").isin(sorted(settle))
        parts = [self._natural(ticked.where(~chosen))]
        if settle:
            parts.append(settled(ticked.where(chosen), self._plan.window, self._keyed, self._parts))
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
        first_end = self._plan.window.end(0)
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
