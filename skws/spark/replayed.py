"""A replay decoded on Spark, for what evaluates it whole: its bad records first, then how much it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import NamedTuple, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.data.record import BadRecord
from skws.formats import Replay
from skws.keywords import Matcher
from skws.queries.evaluator import Counts, matches
from skws.results.model import LiveResult
from skws.spark.decode import BAD, decoded, unpack_bad
from skws_schema.model import Schema

SMALL = 20_000  # records


class Counted(NamedTuple):
    """Records of a replay: all, bad ones included; bad ones.

    ``deleting``: the relations with deletions.
    """

    records: int
    bad: int
    deleting: frozenset[int]


class DecodedReplay(ABC):
    """One query over one replay. ``matcher``: None to look for no keywords."""

    def __init__(
        self, spark: SparkSession, schema: Schema, replay: Replay, matcher: Matcher | None = None
    ) -> None:
        self.counts = Counts()  # complete when the results have been read
        self._spark = spark
        self._schema = schema
        self._tables = [i for i, relation in enumerate(schema.relations) if relation.table]
        found = decoded(spark, schema, replay.splits, matcher)
        self._decoded = found.persist(StorageLevel.MEMORY_AND_DISK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decoded.unpersist()

    @abstractmethod
    def results(self, limit: int | None = None) -> Iterator[LiveResult]:
        """In order of time."""

    def count(self) -> int:
        """How many results there are; of patterns none is formed."""
        return sum(map(matches, self.results()))

    def bad_records(self) -> Iterator[BadRecord]:
        """What was no record, in order of arrival. To be read before anything else."""
        if not self._counted.bad:
            return
        bad = self._decoded.where(sf.col("relation") == BAD).orderBy("split", "place").select("packed")
        for row in bad.toLocalIterator():
            yield unpack_bad(bytes(row.packed))

    @cached_property
    def _counted(self) -> Counted:
        return self._count()

    def _count(self) -> Counted:
        """What the replay holds. Decodes it."""
        records = tuples = deletions = bad = 0
        deleting = set()
        self._shuffled_into(self._spark.sparkContext.defaultParallelism)  # Spark's own 200 take seconds
        grouped = self._decoded.groupBy("relation", "deletion").agg(sf.count("*").alias("records"))
        for row in grouped.collect():
            records += row.records
            if row.relation == BAD:
                bad = row.records
            elif row.deletion:
                deletions += row.records
                deleting.add(int(row.relation))
            elif row.relation not in self._tables:
                tuples += row.records
        self.counts.tuples, self.counts.deletions = tuples, deletions
        return Counted(records, bad, frozenset(deleting))

    @property
    def _parts(self) -> int:
        """Tasks to share the work out to: one where starting more costs more than the work."""
        return 1 if self._counted.records < SMALL else self._spark.sparkContext.defaultParallelism

    def _shuffled_into(self, parts: int) -> int:
        """Have Spark's shuffles make so many parts; gives their number."""
        self._spark.conf.set("spark.sql.shuffle.partitions", str(parts))
        return parts

    def _stream(self) -> DataFrame:
        """The records that are not of tables."""
        return self._decoded.where((sf.col("relation") >= 0) & ~sf.col("relation").isin(self._tables))


def in_order(found: DataFrame, *columns: str) -> Iterator[Row]:
    """Rows in order of some columns."""
    # Sorting looks at its input twice, first to find out where to cut it.
    kept = found.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield from kept.sort(*columns).toLocalIterator(prefetchPartitions=True)
    finally:
        kept.unpersist()
