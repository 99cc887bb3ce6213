"""The streaming query: source -> mesh, one stateful stage -> the driver.

LiveSource -> groupBy(shard).transformWithState(mesh) -> foreachBatch

Spark repeats a task whose process was killed, but only a few times, and it
allows a Python process ten seconds to start, however busy the machine is.
Such failures have nothing to do with the stream, so the query can continue.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import orjson
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from skws.durable import damaged, missing
from skws.index.index_cache import pinned
from skws.jobs.clock import StoppableClock
from skws.jobs.log import Log
from skws.jobs.standing_queries import StandingQueries
from skws.queries.partitioning.parts import Part
from skws.sources.addresses import parse_source
from skws.sources.feed import Offset
from skws.spark.faults import (
    PassingError,
    SparkFailedError,
    brief_errors,
    is_java_gone,
    java_gone_error,
    passing_error,
    streaming_fault,
)
from skws.spark.spark_session import live_master, stop_quietly
from skws.spark.streaming.layout import Layout, LayoutRequest, initial_state
from skws.spark.streaming.processor import LOCAL_FILES, OUTPUT, STATE_FILES, STATE_STORE, MeshProcessor
from skws.spark.streaming.reader import Reading, beginning
from skws.spark.streaming.run_directory import Output, RunDirectory, in_order
from skws.spark.streaming.shard_client import ShardClient, shut_down
from skws.spec.job import Job
from skws_schema.errors import SkwsError, quantity
from skws_schema.model import sourced
from skws_windows.window import MICROSECOND

if TYPE_CHECKING:
    from skws.spark.streaming.output_merger import OutputCommitter
    from skws.spark.streaming.reader import FeedReader

NAME: Final = "skws_live"
INPUT: Final = "shard int, sequence long, place int, blob binary"
STATE: Final = "spark.skws.stateLocation"
SETTINGS: Final = {
    **STATE_STORE,
    **STATE_FILES,
    # No batches without data, as only records move time.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A batch has few rows: compiling its plan would take longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Checks a plan after every rule, though the plan is the same in each batch.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # A row is a micro-batch of a shard here, so a few rows fill a batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


def source_of(reading: Reading) -> type[DataSource]:
    """The data source to register with Spark, pickled, as two processes create it but never read."""
    pickled, has_tasks = pickle.dumps(reading), reading.tasks > 0

    class LiveSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return INPUT

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            if not has_tasks:
                return super().streamReader(schema)  # Spark then asks for a simple reader
            return self.simpleStreamReader(schema).planning()

        def simpleStreamReader(self, schema: StructType) -> FeedReader:  # noqa: N802, ARG002 - Spark's names
            from skws.spark.streaming.reader import open_reader  # noqa: PLC0415 - in the reader's own process

            return open_reader(pickle.loads(pickled))  # noqa: S301 - just above

    return LiveSource


def reads_in_tasks(request: Job, layout: Layout) -> bool:
    """True if tasks read parts of a backlog.

    That takes a source that can be divided, whose records need not be in order of arrival. With one shard,
    Spark would read all parts in its task, one after the other (``shard_outputs``), which is slower than
    reading beside the driver.
    """
    return layout.shards > 1 and parse_source(request.source).divisible and not request.stream.by_count


def servers_ahead(run: str, request: Job, shares: Iterable[Part]) -> Thread:
    """Starts the servers of shards in a thread, if the master is local and runs its tasks on this machine.

    Otherwise a task starts its shard's server itself. Spark and the servers take seconds to start.
    """
    pickled = pickle.dumps(request)

    def start() -> None:
        local = (live_master(request.master) or "").startswith("local")
        # Tables with a source are pinned when the job starts.
        for share in shares if local and not sourced(request.schema) else ():
            # That of Spark's workers, which may be preloaded with the modules of a server.
            python = os.environ.get("PYSPARK_PYTHON", sys.executable)
            with suppress(OSError, RuntimeError):  # then tasks try, and report the reason
                ShardClient(run, pickled, share, os.getpid(), python).close()

    thread = Thread(target=start, name="servers")
    thread.start()
    return thread


@contextmanager
def quiet_workers(spark: SparkSession) -> Iterator[None]:
    """Inside, Python processes that Spark starts print nothing, as one reports its progress on stderr.

    Their errors are raised as exceptions, and Spark's own log is unaffected.
    """
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001
    old_stream = system.err
    system.setErr(spark.sparkContext._jvm.java.io.PrintStream(os.devnull))  # type: ignore[union-attr]  # noqa: SLF001
    try:
        yield
    finally:
        with suppress(Py4JError, OSError):  # Java may have ended
            system.setErr(old_stream)


def streaming_session(spark: SparkSession, shards: int, state: str) -> SparkSession:
    """A session of the same application with the settings of the job."""
    session = spark.newSession()
    for name, value in (SETTINGS | (LOCAL_FILES if state.startswith("file:") else {})).items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.shuffle.partitions", str(shards))
    return session


def shard_outputs(rows: DataFrame, reading: Reading, initial: GroupedData | None) -> DataFrame:
    """The output of the shards for each micro-batch, columns OUTPUT."""
    request, layout = reading.request, reading.layout
    if sourced(request.schema):  # all shards get the same rows
        request = replace(request, schema=pinned(request.schema))
    processor = MeshProcessor(reading.start, request, layout.shares)
    if layout.shards == 1:
        rows = rows.coalesce(1)  # Spark then needs no shuffle, and one stage less
    return rows.groupBy("shard").transformWithState(processor, OUTPUT, "Append", "none", initial)


def check_state(spark: SparkSession, state: str, last: int) -> None:
    """Raises StateError unless Spark's checkpoint at ``state`` has batch ``last``; 0 means none.

    Otherwise Spark would start from zero there, and reuse the numbers of earlier batches.
    """
    if last == 0:
        return
    # It keeps the offsets of the last ten, and counts from 0.
    path, files = _files(spark, f"{state}/offsets/{last - 1}")
    if not files.exists(path):
        raise missing(_name(path))


def last_planned(spark: SparkSession, state: str) -> int | None:
    """The number, from 0, of the last batch in Spark's checkpoint, done or not; None before the first."""
    return _last_number(spark, f"{state}/offsets")


def last_done(spark: SparkSession, state: str) -> int | None:
    """The number of the last batch that Spark's checkpoint has as done; None before the first."""
    return _last_number(spark, f"{state}/commits")


def _last_number(spark: SparkSession, folder: str) -> int | None:
    """The highest number among files named after batches."""
    path, files = _files(spark, folder)
    if not files.exists(path):
        return None
    names = (status.getPath().getName() for status in files.listStatus(path))
    return max((int(name) for name in names if name.isdigit()), default=None)


def planned_offset(spark: SparkSession, state: str, batch: int) -> Offset:
    """The source's offset after a batch, from Spark's checkpoint at ``state``. Raises StateError."""
    check_state(spark, state, batch + 1)
    path, files = _files(spark, f"{state}/offsets/{batch}")
    file = files.open(path)
    try:
        offset: Offset = orjson.loads(bytes(file.readAllBytes()).splitlines()[-1])
    except (IndexError, orjson.JSONDecodeError):
        raise damaged(_name(path)) from None
    finally:
        file.close()
    return offset


def _name(path: Any) -> str:
    name: str = path.toString()
    return name.removeprefix("file:")


def _files(spark: SparkSession, url: str) -> tuple[Any, Any]:
    """A Hadoop path and its file system."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(url)  # noqa: SLF001
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001


class ShardedJob:
    """The streaming query of a run, restarted after failures; the layout of its shards may change.

    The servers of the shards start with it, at the same time as Spark. ``watched``: for a listener.
    """

    def __init__(
        self,
        run_directory: RunDirectory,
        layout_request: LayoutRequest,
        clock: StoppableClock,
        log: Log,
        *,
        watched: bool,
    ) -> None:
        self._run_directory = run_directory
        self._layout_request = layout_request
        self._clock = clock
        self._log = log
        self._watched = watched
        self._query: RestartingStream | None = None
        self.layout = run_directory.layout or self._first_layout()
        self._start_servers()

    @property
    def restarts(self) -> int:
        return 0 if self._query is None else self._query.restarts

    def request_layout(self, layout_request: LayoutRequest, spark: SparkSession) -> None:
        """Replace the request for a layout, and change the layout of a new run. Raises UsageError."""
        self._layout_request = layout_request
        self._spark = spark
        self._apply_layout(self._run_directory.layout or self._first_layout())

    def planned_end(self) -> Offset | None:
        """The source's offset after all batches that Spark has planned; None before. Raises StateError."""
        if self._run_directory.checkpoint.fresh:
            return None
        layout, previous = self.layout, self.layout.previous
        state = self._state(layout.generation)
        last = last_planned(self._spark, state)
        if last is None and previous is not None:  # this layout begins at the end of the previous one
            state, last = self._previous_end(previous)
        return None if last is None else planned_offset(self._spark, state, last)

    def last_batch(self) -> int:
        """The number of the last micro-batch in the outbox, by Spark's checkpoint and the layout."""
        last = last_done(self._spark, self._state(self.layout.generation))
        return self.layout.before + (0 if last is None else last + 1)

    def _previous_end(self, previous: Layout) -> tuple[str, int]:
        """The checkpoint of the layout before this one, and its last batch."""
        return self._state(previous.generation), self.layout.before - previous.before - 1

    def open(self, committer: OutputCommitter, done: Callable[[], int]) -> None:
        """``committer`` takes the output of micro-batches; ``done`` counts the completed ones."""
        spark = self._spark
        self._committer = committer
        self._query = RestartingStream(
            self._start, done, lambda: quiet_workers(spark), self._clock, self._log
        )

    def keep_running(self) -> bool:
        """Starts the query again if that is due, so call it often. False at its end. Raises SkwsError."""
        return self._open_query.keep_running()

    def make_ready(self, queries: StandingQueries, over: Callable[[], bool]) -> bool:
        """Change the layout if the shards cannot answer the queries, or the user has requested another one.

        False if the run is ``over`` before that. Raises UsageError if the user's settings forbid it.
        """
        if self._next_layout(queries) is self.layout:
            return True
        while True:
            while not self._is_complete():
                if over():  # which starts the query
                    return False
                self._committer.deliver()
            stopping = Thread(target=self._open_query.stop, name="stop")
            stopping.start()
            while stopping.is_alive():  # may have to wait until a batch is delivered
                self._committer.deliver()
            self._committer.deliver_rest()
            if self._is_complete():
                break
            self._open_query.reset()
        layout = self._next_layout(queries)
        self._run_directory.change_layout(layout)
        self._apply_layout(layout)
        self._open_query.reset()
        shards = quantity(layout.shards, "shard")
        self._log.info("layout", f"the state moves to {shards}, divided by {layout.spread}")
        return True

    def stop(self) -> None:
        """Stop the query, if it is running."""
        if self._query is not None:
            self._query.stop()

    def close(self) -> None:
        """Prevent further starts."""
        self._servers.join()
        shut_down(self._name)

    @property
    def _open_query(self) -> RestartingStream:
        assert self._query is not None  # noqa: S101 - open comes first
        return self._query

    def _first_layout(self) -> Layout:
        request = self._run_directory.request
        return self._layout_request.layout(
            list(request.named().values()), request.stream, request.plan_window
        )

    def _next_layout(self, standing_queries: StandingQueries) -> Layout:
        """The layout for queries after the last complete batch; usually the current one."""
        queries, window = list(standing_queries.all_queries()), self._run_directory.request.plan_window
        return self._layout_request.layout(
            queries, standing_queries.stream, window, self.layout, self._committer.last
        )

    def _start_servers(self) -> None:
        self._name = uuid4().hex[:12]  # distinguishes starts
        self._servers = servers_ahead(self._name, self._run_directory.request, self.layout.shares.values())

    def _apply_layout(self, layout: Layout) -> None:
        if layout.shares != self.layout.shares:
            self.close()
            self.layout = layout
            self._start_servers()
        self.layout = layout

    def _is_complete(self) -> bool:
        """True if the state can be read for another layout: Spark has recorded its last batch as done.

        A stop or kill can leave a batch in the output log that Spark has not recorded yet.
        """
        batches = self._committer.last - self.layout.before
        if batches <= 0:
            return True
        path, files = _files(self._spark, f"{self._state(self.layout.generation)}/commits/{batches - 1}")
        return bool(files.exists(path))

    def _state(self, generation: int) -> str:
        """The URL of Spark's checkpoint for a layout."""
        return self._run_directory.state(generation, self._spark.conf.get(STATE, None))

    def _start(self) -> StreamingQuery:
        """Raises StateError if Spark's checkpoint lacks the last micro-batch that was done."""
        spark, last = self._spark, self._committer.last
        run_directory, layout, previous = self._run_directory, self.layout, self.layout.previous
        state = self._state(layout.generation)
        session = streaming_session(spark, layout.shards, state)
        first, initial, generations = beginning(run_directory.checkpoint.start()), None, {layout.generation}
        # Spark repeats its first micro-batch until it has begun the second.
        if previous is not None and last < layout.before + 2:
            old_state, batch = self._previous_end(previous)
            first = planned_offset(spark, old_state, batch)
            initial = initial_state(
                session, old_state, batch, previous, layout, run_directory.request.stream.lateness
            )
            generations = {layout.generation, previous.generation}
        for generation in set(range(layout.generation)) - generations:
            path, files = _files(spark, self._state(generation))
            files.delete(path, True)
        check_state(spark, state, last - layout.before)
        run, watched = run_directory.checkpoint.id, self._watched
        request = run_directory.request
        tasks = spark.sparkContext.defaultParallelism if reads_in_tasks(request, layout) else 0
        reading = Reading(request, run_directory.folder, self._name, layout, first, run, watched, tasks)
        session.dataSource.register(source_of(reading))

        def collect(outputs: DataFrame, batch: int) -> None:
            with brief_errors():
                columns = (
                    column.to_pylist() for column in outputs.toArrow()
                )  # Java would pickle rows byte by byte
                rows = list(zip(*columns, strict=True))
            self._committer.put(Output(layout.before + batch + 1, in_order(rows)))

        return (
            session.readStream.format(NAME)
            .load()
            .transform(shard_outputs, reading, initial)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", state)
            .outputMode("append")
            .queryName("skws")
            .start()
        )


ATTEMPTS: Final = 12  # more than five minutes, as sources wait for their servers
"""The number of failures without a completed batch in between that ends the run."""
_PAUSE: Final = MICROSECOND  # doubled with each failure
_LONGEST_PAUSE: Final = 30 * MICROSECOND
_JAVA_GONE: Final = MICROSECOND  # the longest delay of a signal


class RestartingStream:
    """Restarts a query after failures. ``keep_running`` does not wait for the next start.

    ``start`` starts the query; ``done`` counts its completed micro-batches. ``quiet``: a context from each
    start to the first completed micro-batch. ``restarts``: the number of restarts.
    """

    def __init__(
        self,
        start: Callable[[], StreamingQuery],
        done: Callable[[], int],
        quiet: Callable[[], AbstractContextManager[None]],
        clock: StoppableClock,
        log: Log,
    ) -> None:
        self._start = start
        self._done = done
        self._quiet = quiet
        self._start_context = ExitStack()
        self._clock = clock
        self._log = log
        self._query: StreamingQuery | None = None
        self._start_time = clock.now()
        self._failures = 0
        self._done_before = done()
        self.restarts = 0

    def keep_running(self) -> bool:
        """Starts the query again if that is due, so call it often. False at its end. Raises SkwsError."""
        if self._query is None:
            return self._start_if_due()
        if self._done() > self._done_before:
            self._start_context.close()
        try:
            if self._query.isActive:
                return True
            error = self._query.exception()
        except (Py4JError, OSError):
            return self._without_java()
        if error is not None:
            self._handle_failure(streaming_fault(error))
            return True
        if self._is_stopping():
            return False
        raise SparkFailedError("Spark failed: it ended the query without a reason")

    def reset(self) -> None:
        """Let the next ``keep_running`` start the query; call it after ``stop``."""
        self._query, self._start_time = None, self._clock.now()

    def stop(self) -> None:
        if self._query is not None:
            stop_quietly(self._query)
        self._start_context.close()

    def _start_if_due(self) -> bool:
        if self._clock.now() < self._start_time:
            return True
        self._start_context.close()
        try:
            self._start_context.enter_context(self._quiet())
            self._query = self._start()
        except Exception as error:
            if is_java_gone(error):
                return self._without_java()
            fault = passing_error(error)
            if fault is None:
                raise
            self._handle_failure(fault)
        return True

    def _without_java(self) -> bool:
        """Raises SparkFailedError, as Java has ended; False if a signal ended Java, and so this run."""
        if self._is_stopping():
            return False
        raise java_gone_error() from None

    def _handle_failure(self, error: SkwsError) -> None:
        """Schedule the next start if that can help; otherwise raise the error."""
        if not isinstance(error, PassingError):
            raise error
        self._query = None
        self._failures = 1 if self._done() > self._done_before else self._failures + 1
        self._done_before = self._done()
        if self._failures == ATTEMPTS:
            raise SparkFailedError(f"{error} ({ATTEMPTS} times without a completed batch)")
        pause = min(_PAUSE << self._failures - 1, _LONGEST_PAUSE)
        self._start_time = self._clock.now() + pause
        self.restarts += 1
        seconds = pause // MICROSECOND
        self._log.warning("restart", f"{error}; starting again in {seconds} s", restarts=self.restarts)

    def _is_stopping(self) -> bool:
        self._clock.sleep(_JAVA_GONE)
        return self._clock.stopping.is_set()
