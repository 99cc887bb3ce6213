"""A search of replay files as a Spark job: the session, progress and errors around the batch run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from threading import Event, Thread
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from skws.formats import Replay, Split
from skws.formats.jsonl_order import TimedBlock
from skws.progress import Progress, ReportProgress, unreported
from skws.queries.kinds import plan_of
from skws.queries.partitioning.slice_tasks import SlicedRun, has_ranges
from skws.queries.partitioning.slices import SMALL, plan_slices
from skws.spark.faults import plain_errors
from skws.spark.local_java import is_local
from skws.spark.sliced_search import BatchRun, RangesRun, blocks_in_order, reading_blocks, replay_pieces
from skws.spark.spark_session import interrupts_deferred, start_session, worker_memory
from skws.spec.query_spec import Query, Stream

_INTERVAL: Final = 0.2  # seconds


@contextmanager
def spark_run(
    query: Query,
    stream: Stream,
    replay: Replay,
    master: str | None,
    report: ReportProgress,
    read: Callable[[int], None],
) -> Iterator[SlicedRun]:
    """A run of any kind of query; the session is stopped at the end, unless it was there before.

    ``report`` gets the progress of Spark's stages, ``read`` the number of bytes that tasks have read.

    Raises SourceError if Spark cannot start, and the errors of the job's own
    workers: SourceError, BadRecordsError.
    """
    with plain_errors(), ExitStack() as stack:
        report(Progress("starting Spark", unit="tasks"))
        is_own = SparkSession.getActiveSession() is None
        splits = replay.splits if _has_ranges(query, stream, replay) else ()
        with reading_blocks(splits) as blocks, interrupts_deferred():
            spark = start_session(master)
            if is_own:
                stack.callback(spark.stop)
        with reporting_stages(spark, report):
            run = stack.enter_context(
                replay_run(spark, query, stream, replay, read=read, first_blocks=blocks)
            )
        if isinstance(run, BatchRun):
            stack.enter_context(reporting_stages(spark, report))
        yield run


def replay_run(
    spark: SparkSession,
    query: Query,
    stream: Stream,
    replay: Replay,
    least: int = SMALL,
    read: Callable[[int], None] = lambda _: None,
    first_blocks: Sequence[list[TimedBlock] | None] = (),
) -> SlicedRun:
    """A run over replay files in an existing session. ``least``: the fewest records of a slice.

    ``first_blocks``: the blocks of the first splits, as far as they have been read.
    """
    memory = worker_memory(spark)
    context = spark.sparkContext
    tasks = context.defaultParallelism
    window = plan_of(query, stream).window
    splits = replay.splits if is_local(context.master) else _absolute_splits(replay.splits)
    if _has_ranges(query, stream, replay):
        blocks = blocks_in_order(context, splits, memory, first_blocks)
        if blocks is not None:
            pieces = [piece for piece, _ in blocks]
            slicing = plan_slices(pieces, [query], stream, window, tasks, least)
            if not slicing.reason:
                return RangesRun(context, [query], stream, memory, slicing, blocks, read)
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))  # Spark's own 200 take seconds
    packed_pieces = replay_pieces(spark, splits, stream.schema, memory)
    return BatchRun(packed_pieces, [query], stream, window, memory, tasks, least)


def _absolute_splits(splits: Sequence[Split]) -> list[Split]:
    """The splits with absolute paths, since executors have other working directories."""
    return [replace(split, path=split.path.absolute()) for split in splits]


def _has_ranges(query: Query, stream: Stream, replay: Replay) -> bool:
    splits = replay.splits
    return len(splits) > 1 and has_ranges(splits, [query], stream, plan_of(query, stream).window)


@contextmanager
def reporting_stages(spark: SparkSession, report: ReportProgress) -> Iterator[None]:
    """Call ``report``, from a thread, with the number of completed tasks of the running stages."""
    if report is unreported:
        yield
        return
    stop = Event()
    poller = Thread(target=_poll, args=(spark, report, stop), name="spark-stages", daemon=True)
    poller.start()
    try:
        yield
    finally:
        stop.set()
        poller.join()


def _poll(spark: SparkSession, report: ReportProgress, stop: Event) -> None:
    with suppress(Py4JError, OSError):  # Java has ended, which the search reports
        tracker = spark.sparkContext.statusTracker()
        while not stop.wait(_INTERVAL):
            stages = [s for i in tracker.getActiveStageIds() if (s := tracker.getStageInfo(i)) is not None]
            if stages:
                number = max(s.stageId for s in stages) + 1
                done, total = sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
                report(Progress(f"Spark stage {number}", done, total, "tasks"))
