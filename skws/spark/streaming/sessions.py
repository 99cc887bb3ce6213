"""Sessions for streaming: which master, how many shards; and ends of what may have gone by itself."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schema.errors import UsageError
from skws.watch.request import WatchRequest

# A task whose Python worker was killed is run again, as it is on a cluster.
_MASTER: Final = "local[*,4]"
_SHARDS: Final = "spark.skws.shards"


def stopped(started: StreamingQuery | SparkSession) -> None:
    """Stop what may have gone by itself: who ends a service sends signals to Java, too."""
    with suppress(Py4JError, OSError):
        started.stop()


def told_shards(spark: SparkSession) -> int | None:
    """By Spark's setting. Raises UsageError."""
    told = spark.conf.get(_SHARDS, None)
    if told is not None and not told.isdecimal():
        raise UsageError(f"{_SHARDS} {told}: expected a number")
    return None if told is None else int(told)


def master_of(request: WatchRequest) -> str | None:
    """None: that of spark-submit."""
    return request.master or (None if "SPARK_ENV_LOADED" in os.environ else _MASTER)
