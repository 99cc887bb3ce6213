"""The streaming query: source -> mesh, one stateful stage -> the driver.

LiveSource -> groupBy(shard).transformWithState(mesh) -> foreachBatch
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skws.durable.files import missing
from skws.index.cache import pinned
from skws.spark.streaming.faults import told_briefly
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.live_source import NAME, source_of
from skws.spark.streaming.output_log import Told, in_order
from skws.spark.streaming.processor import OUTPUT, STATE_STORE, MeshProcessor
from skws.spark.streaming.reader import Reading
from skws_schema.model import sourced

SETTINGS: Final = {
    **STATE_STORE,
    # A batch writes what it changed.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To count rows it would read each before it is written or goes, and those here are large.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Nothing happens without data: time passes with records.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A batch is a few rows: to compile its plan would take longer than to work through it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # It checks a plan behind every rule; it is the same plan in each batch.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # A row is a parcel here, so few fill a batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


@contextmanager
def workers_unheard(spark: SparkSession) -> Iterator[None]:
    """Python processes that Spark starts meanwhile print nothing: one tells of its progress on stderr.

    Their errors come as exceptions, and Spark's own log goes on.
    """
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001
    former = system.err
    system.setErr(spark.sparkContext._jvm.java.io.PrintStream(os.devnull))  # type: ignore[union-attr]  # noqa: SLF001
    try:
        yield
    finally:
        with suppress(Py4JError, OSError):  # Java may have gone
            system.setErr(former)


# Spark's usual one sets the permissions of every file by a process of its own (chmod): a batch took
# 0.5 s with that, 0.4 s without, on a busy machine. The checkpoint's lock keeps other writers out.
_LOCAL_FILES: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


def streaming_session(spark: SparkSession, shards: int, state: str) -> SparkSession:
    """A session of the same application with the settings of the job."""
    session = spark.newSession()
    for name, value in (SETTINGS | (_LOCAL_FILES if state.startswith("file:") else {})).items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.shuffle.partitions", str(shards))
    return session


def meshed(parcels: DataFrame, reading: Reading, layout: Layout) -> DataFrame:
    """What the shards tell of each parcel, columns OUTPUT."""
    request = reading.request
    if sourced(request.schema):  # all shards are to see the same rows
        request = replace(request, schema=pinned(request.schema))
    processor = MeshProcessor(reading.start, request, layout.shares)
    if layout.shards == 1:
        parcels = parcels.coalesce(1)  # which Spark knows to need no shuffle: a stage less
    return parcels.groupBy("shard").transformWithState(processor, OUTPUT, "Append", "none")


def check_state(spark: SparkSession, state: str, last: int) -> None:
    """Raises StateError unless Spark's checkpoint at ``state`` knows the last batch that came from it.

    Spark would begin anew there, with batches whose numbers are those of others.
    """
    if last == 0:
        return
    # It keeps the offsets of the last ten, and counts from 0.
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"{state}/offsets/{last - 1}")  # type: ignore[union-attr]  # noqa: SLF001
    if not path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path):  # noqa: SLF001
        raise missing(path.toString().removeprefix("file:"))


def start_job(
    spark: SparkSession, reading: Reading, layout: Layout, state: str, take: Callable[[Told], None]
) -> StreamingQuery:
    """Start the job; ``take`` gets what each batch came to, from a thread, and raises to end it.

    Batches are numbered from 1. ``state``: where Spark keeps its checkpoint.
    """
    session = streaming_session(spark, layout.shards, state)
    session.dataSource.register(source_of(reading))

    def collect(told: DataFrame, batch: int) -> None:
        with told_briefly():
            rows = [(row.shard, row.part, bytes(row.told)) for row in told.collect()]
        take(Told(batch + 1, in_order(rows)))

    return (
        session.readStream.format(NAME)
        .load()
        .transform(meshed, reading, layout)
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", state)
        .outputMode("append")
        .queryName("skws")
        .start()
    )
