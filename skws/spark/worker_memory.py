"""What a Python worker of Spark may take of the memory of its machine."""

from __future__ import annotations

from pyspark.sql import SparkSession

from skws import memory
from skws.spark.local_java import is_local


def of_a_worker(session: SparkSession) -> memory.MemoryShare:
    """The workers of one machine share what was asked for, one for each task that runs at a time."""
    context = session.sparkContext
    cores = context.getConf().get("spark.executor.cores", "1")
    return memory.MemoryShare(
        memory.asked(), context.defaultParallelism if is_local(context.master) else int(cores or 1)
    )
