"""Progress of Spark's stages, polled beside the job, which blocks until its rows are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from pyspark.sql import SparkSession

from skws.progress import Progress, ReportProgress, unreported

INTERVAL: Final = 0.2  # seconds


@contextmanager
def reported_stages(spark: SparkSession, report: ReportProgress) -> Iterator[None]:
    """Call ``report``, from a thread, with the number of tasks done of the running stages."""
    if report is unreported:
        yield
        return
    over = Event()
    poller = Thread(target=_poll, args=(spark, report, over), name="spark-stages", daemon=True)
    poller.start()
    try:
        yield
    finally:
        over.set()
        poller.join()


def _poll(spark: SparkSession, report: ReportProgress, over: Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(INTERVAL):
        stages = [s for i in tracker.getActiveStageIds() if (s := tracker.getStageInfo(i)) is not None]
        if stages:
            number = max(s.stageId for s in stages) + 1
            done = sum(s.numCompletedTasks for s in stages)
            report(Progress(f"Spark stage {number}", done, sum(s.numTasks for s in stages), "tasks"))
