"""Sessions for streaming: which master; and ends of what may have gone by itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skws.spark.local_java import LocalJava
from skws.spark.session import start_session

# A task whose Python worker was killed is run again, as it is on a cluster.
_MASTER: Final = "local[*,4]"

Ahead: TypeAlias = Future[SparkSession]
"""A session that is being started."""


def stopped(started: StreamingQuery | SparkSession) -> None:
    """Stop what may have gone by itself: who ends a service sends signals to Java, too."""
    with suppress(Py4JError, OSError):
        started.stop()


def master_of(master: str | None) -> str | None:
    """The one that is asked for, or the usual one. None: that of spark-submit."""
    return master or (None if "SPARK_ENV_LOADED" in os.environ else _MASTER)


def live_session(
    master: str | None,
    packages: Sequence[str] = (),
    java: LocalJava | None = None,
) -> SparkSession:
    """For a live search. Raises SourceError if there is no Java."""
    return start_session(master_of(master), packages=packages, ahead=java)


def session_ahead(master: str | None, java: LocalJava | None = None) -> Ahead:
    """One that starts in a thread while the rest is loaded. ``java``: one that is starting."""
    thread = ThreadPoolExecutor(1, "spark")
    started = thread.submit(live_session, master, java=java)
    thread.shutdown(wait=False)
    return started
