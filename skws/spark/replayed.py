"""A replay decoded on Spark, for what evaluates it whole: its bad records first, then how much it holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from schema.model import Schema
from skws.records import BadRecord
from skws.replay import Replay
from skws.spark.decode import BAD, decoded, unpack_bad


class DecodedReplay:
    """``tuples`` and ``deletions`` of its streams are known once the bad records are read."""

    def __init__(self, spark: SparkSession, schema: Schema, replay: Replay) -> None:
        self.tuples = self.deletions = 0
        self._spark = spark
        self._schema = schema
        self._decoded = decoded(spark, schema, replay.splits).persist(StorageLevel.MEMORY_AND_DISK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decoded.unpersist()

    def bad_records(self) -> Iterator[BadRecord]:
        """What was no record, in order of arrival. To be read before anything else."""
        bad = self._decoded.where(sf.col("relation") == BAD).orderBy("split", "place").select("packed")
        for row in bad.toLocalIterator() if self._records else ():
            yield unpack_bad(bytes(row.packed))

    @property
    def _tables(self) -> list[int]:
        return [i for i, relation in enumerate(self._schema.relations) if relation.table]

    @cached_property
    def _records(self) -> int:
        """How many records the replay holds. Decodes it."""
        records = 0
        tables = set(self._tables)
        for row in self._decoded.groupBy("relation", "deletion").agg(sf.count("*").alias("n")).collect():
            records += row.n
            if row.relation >= 0 and row.relation not in tables:
                self.deletions += row.n if row.deletion else 0
                self.tuples += 0 if row.deletion else row.n
        return records
