"""A live search on Spark: the job, with its commands, sinks and metrics on the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from skws.formats.dead_letters import BadRecordLog
from skws.index import tell_missing
from skws.jobs.clock import ending_on_signals, name_at_rate, name_with_pace
from skws.jobs.control import JobCommand, JobListener, RunControl
from skws.jobs.fanout import SinkFanout
from skws.jobs.intake import leave_nothing
from skws.jobs.log import Log
from skws.jobs.metrics import Gauges, Metrics, State
from skws.jobs.publishing import Publishing
from skws.jobs.standing_queries import CommandQueue
from skws.memory import expect_long_lived_objects, warn_by
from skws.queries.evaluator import Load
from skws.queries.kinds import plans_of
from skws.queries.operator import QueryPlan
from skws.sinks.base import Sink, SinkRun
from skws.sinks.sink_addresses import open_sinks
from skws.sources.addresses import parse_source
from skws.sources.retry import retry
from skws.spark.faults import plain_errors
from skws.spark.spark_session import Ahead, interrupts_deferred, live_master, start_session, stop_quietly
from skws.spark.streaming.layout import LayoutRequest
from skws.spark.streaming.output_merger import OutputCommitter, OutputMerger
from skws.spark.streaming.run_directory import CommandLog, ReplayControl, RunDirectory
from skws.spark.streaming.sharded_job import ShardedJob
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_mesh.backend import OperatorState
from skws_mesh.candidate_networks import Prefix
from skws_schema.errors import SkwsError, UsageError
from skws_schema.model import Schema
from skws_windows.window import MICROSECOND

if TYPE_CHECKING:
    from skws.queries.keywords.diagnosis import EmptyResult
    from skws.queries.windowed.stream_windows import WindowSpan


class SparkWatch:
    """A live search of ``request``. Threads other than that of ``run`` use its ``control``.

    ``sinks``: those of the request unless given. ``each_step`` is called in the
    thread of the run, ten times a second; ``job_listener`` sees the records there.
    ``layout_request``: how the shards are laid out; None for Spark's settings ``spark.skws.shards`` and
    ``spark.skws.partitioning``.
    ``ahead``: a session for it that is already starting. Raises QueryError,
    UsageError, SourceError before anything is opened.
    """

    def __init__(
        self,
        request: Job,
        log: Log,
        *,
        sinks: Sequence[Sink] | None = None,
        layout_request: LayoutRequest | None = None,
        each_step: Callable[[], None] = lambda: None,
        job_listener: JobListener | None = None,
        ahead: Ahead | None = None,
        control: RunControl | None = None,
        plans: Mapping[str, QueryPlan] | None = None,
    ) -> None:
        self.request = request
        self._ahead = ahead
        self.control = control or RunControl(request)
        self.clock = self.control.clock
        self._log = log
        self._plans = plans_of(request) if plans is None else plans
        self._start_queries = {name: plan.query for name, plan in self._plans.items()}
        warn_by(partial(log.warning, "memory"))
        self._source = parse_source(request.source)
        if self._source.local_only:
            raise UsageError(f"{self._source.name} cannot be re-read after a failure; use --engine local")
        self._sinks = open_sinks(request.sinks) if sinks is None else sinks
        self._layout_request = layout_request
        self._command_queue = CommandQueue(log, self.control)
        self._each_step = each_step
        self._job_listener = job_listener
        self._start = self.clock.now()
        self._state: State = "starting"
        gauges = self._gauges = Gauges(request, self._start)
        self._merger = OutputMerger(request, log, gauges, self._finish_commands, job_listener)
        self._replay_control: ReplayControl | None = None
        self._command_log: CommandLog | None = None
        self._job: ShardedJob | None = None
        self._sink_run: SinkRun | None = None

    @property
    def source_name(self) -> str:
        """The source without its password; a replay with its speed."""
        return name_at_rate(self._source.name, self.control.pace.rate)

    @property
    def event_time(self) -> int | None:
        """The latest event time, in microseconds."""
        return self._gauges.event_time

    @property
    def ended(self) -> bool:
        """True if the source ended, or the limit is reached."""
        return self._merger.ended or self._merger.full

    @property
    def standing_queries(self) -> tuple[Query, ...]:
        """The standing queries; none before it runs."""
        return () if self._command_log is None else self._command_log.queries()

    @property
    def schema(self) -> Schema:
        return self._gauges.schema

    @property
    def silent_queries(self) -> list[Query]:
        return self._gauges.silent_queries(self.standing_queries)

    def windows_of(self, name: str) -> Sequence[WindowSpan]:
        return self._merger.shard_stats.window_spans.get(name, ())

    def operators(self, name: str) -> Mapping[Prefix, OperatorState]:  # noqa: ARG002 - shards always report all
        return self._merger.shard_stats.operators

    def why_nothing(self, name: str) -> EmptyResult | None:  # noqa: ARG002 - shards have the tuples
        return None

    def bad_reason(self) -> str:
        return ""

    def forget(self, name: str) -> None:
        """Does nothing: counts of results are kept."""

    def record_queries(self, names: Collection[str]) -> None:
        if self._command_log is not None:
            self._command_log.record_queries(names)

    def metrics(self) -> Metrics:
        """The current state of the run. Only for the thread that runs it."""
        state = "paused" if self.control.pace.paused and self._state == "running" else self._state
        shards = self._merger
        return self._gauges.metrics(
            self.clock.now(),
            state=state,
            source=self.source_name,
            backlog=shards.backlog,
            bad=shards.bad,
            load=Load(shards.live, shards.operators, shards.waiting),
            queries=self.standing_queries,
            log_bytes=shards.log_bytes,
            restarts=0 if self._job is None else self._job.restarts,
        )

    def run(self) -> None:
        """Runs until the source ends, the limit is reached, ``stop``, or a signal, raised at the end.

        Raises SkwsError, KeyboardInterrupt.
        """
        expect_long_lived_objects()  # results that wait for sinks
        with (
            Publishing(self.request, self._log, self.control) as publishing,
            ending_on_signals(self.control.stop) as signals,
        ):
            try:
                with plain_errors(), ExitStack() as stack:
                    self._run(stack, publishing)
            finally:
                self._state = "ended"
                self.control.end("the job has ended: restart it to change queries")
                if self._merger.bad:
                    self._log.warning("bad records", self._merger.bad_summary(), bad=self._merger.bad)
                publishing.publish(self.metrics)
        metrics = self.metrics()
        seconds = (self.clock.now() - self._start) / MICROSECOND
        self._log.info("ended", metrics.summary(seconds), **metrics.totals())
        if signals:
            raise KeyboardInterrupt

    def _run(self, stack: ExitStack, publishing: Publishing) -> None:
        run_directory = stack.enter_context(RunDirectory(self.request))
        self._send_control(run_directory)
        job = self._job = ShardedJob(
            run_directory,
            self._layout_request or LayoutRequest(),
            self.clock,
            self._log,
            watched=self._job_listener is not None,
        )
        stack.callback(job.close)
        spark = self._session(stack)
        job.request_layout(
            self._layout_request or LayoutRequest.by(lambda name: spark.conf.get(name, None)), spark
        )
        begin, report = partial(run_directory.first_offset, job.layout), partial(self._log.warning, "source")
        if retry(begin, self.clock, self.control.wait, report) is None:
            return
        if self.request.checkpoint is None:
            stack.callback(leave_nothing, self._source, self._log)
        if self._job_listener is not None:
            self._job_listener.load_tables(list(run_directory.checkpoint.tables()))
        run_directory.expect_commands(job.planned_end())
        command_log = self._command_log = CommandLog(
            self.request, run_directory, self._command_queue, self._start_queries
        )
        self._gauges.schema = command_log.stream.schema
        committer = self._open_sinks(stack, run_directory, job.last_batch())
        job.open(committer, lambda: self._gauges.batches)
        stack.callback(job.stop)
        is_over = partial(self._is_over, job, committer)
        make_ready = partial(job.make_ready, over=is_over)
        command_log.begin(make_ready)
        self._show_schema(command_log)
        self._state = "running"
        self._log.info(
            "started",
            f"watching {name_with_pace(self.source_name, self.request)}",
            source=self.source_name,
            shards=job.layout.shards,
            **({"partitioning": str(job.layout.spread)} if job.layout.shards > 1 else {}),
        )
        tell_missing(command_log.stream.schema, BadRecordLog(), report)
        while not is_over():
            self._send_control(run_directory)
            command_log.take(make_ready)
            if committer.deliver():
                self._show_schema(command_log)
            committer.commit_if_due()
            self._gauges.sample(self.clock.now())
            self._each_step()
            publishing.each_second(self.clock.now(), self.metrics)
        committer.stop_waiting()
        job.stop()
        committer.deliver_rest()
        committer.commit()

    def _send_control(self, run_directory: RunDirectory) -> None:
        """Sends the pause flag and the speed to the reader."""
        pace = self.control.pace
        control = ReplayControl(pace.paused, pace.rate)
        if control != self._replay_control:
            self._replay_control = control
            control.put(run_directory.folder)

    def _session(self, stack: ExitStack) -> SparkSession:
        request, ahead = self.request, self._ahead
        is_own = ahead is not None or SparkContext._active_spark_context is None  # noqa: SLF001 - of any thread
        with interrupts_deferred():
            if ahead is None:
                spark = start_session(live_master(request.master), packages=request.packages)
            else:
                spark = ahead.result()
            if is_own:
                stack.callback(stop_quietly, spark)
        return spark

    def _open_sinks(self, stack: ExitStack, run_directory: RunDirectory, last_done: int) -> OutputCommitter:
        """Passes the batches that an earlier process left to the sinks. ``last_done``: see ``ShardedJob``."""
        run = self._sink_run = SinkRun(
            **run_directory.checkpoint.run_fields(),
            schema=self._gauges.schema,
            match_names=self.request.match_names,
            wait=self.control.wait,
            tell=partial(self._log.warning, "sink"),
            repeating=True,
        )
        with run_directory.checkpoint.committing():
            delivery = SinkFanout(self._sinks, self.request.dead_letters, run)
        stack.push(lambda kind, _error, _trace: delivery.close(failed=kind is not None))
        self._merger.deliver_to(delivery)
        self._merger.table_dead_letters = run_directory.dead_letters
        committer = OutputCommitter(run_directory, self._merger, self.clock, max(run.held, last_done))
        run.end_repetition()
        stack.callback(committer.close)
        return committer

    def _is_over(self, job: ShardedJob, committer: OutputCommitter) -> bool:
        if self.clock.stopping.is_set() or self.ended:
            return True
        try:
            if job.keep_running():
                return False
        except SkwsError:
            committer.deliver_rest()
            if not self.ended:  # batches that were just delivered may end the run
                raise
        return True

    def _finish_commands(self, commands: tuple[JobCommand, ...]) -> None:
        if self._command_log is not None:
            self._show_schema(self._command_log)
            self._command_log.finish(commands)

    def _show_schema(self, command_log: CommandLog) -> None:
        """Passes the current schema to metrics and sinks; it includes relations of earlier ones."""
        self._gauges.schema = command_log.stream.schema
        if self._sink_run is not None:
            self._sink_run.schema = self._gauges.schema
