"""A search as a Spark job: session, progress and errors around the batch run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from pyspark.sql import SparkSession

from skws.engine.engine import Counts
from skws.plan import Plan
from skws.progress import Progress, ReportProgress
from skws.replay import BadRecordLog, Replay
from skws.results.model import Result
from skws.spark.batch import BatchRun
from skws.spark.faults import told_plainly
from skws.spark.interrupts import interrupts_deferred
from skws.spark.session import start_session
from skws.spark.stages import reported_stages
from skws.spark.windowed import WindowedRun
from windows.window import ExpressionWindow


class SparkSearch:
    """Runs one plan over one replay; stops the session at the end, unless it was there before.

    Raises SourceError if Spark cannot start, and what the job's own workers
    raise: SourceError, BadRecordsError.
    """

    def __init__(self, plan: Plan, replay: Replay, master: str | None, report: ReportProgress) -> None:
        self._plan = plan
        self._replay = replay
        self._master = master
        self._report = report
        self._stack = ExitStack()
        self._run: BatchRun | None = None

    def __enter__(self) -> SparkSearch:
        with ExitStack() as stack:
            spark = stack.enter_context(running_spark(self._master, self._report))
            kind = WindowedRun if isinstance(self._plan.window, ExpressionWindow) else BatchRun
            self._run = stack.enter_context(kind(spark, self._plan, self._replay))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    @property
    def counts(self) -> Counts:
        return self._started.counts

    def results(self, bad: BadRecordLog) -> Iterator[Result]:
        """Deal with the bad records, then give the results in order of time."""
        for record in self._started.bad_records():
            bad.add(record)
        yield from self._started.results()

    @property
    def ended_at(self) -> int | None:
        """The last tick of the stream, while its results are being read; None if it is empty."""
        return self._started.ended_at

    @property
    def _started(self) -> BatchRun:
        if self._run is None:
            raise RuntimeError("a search runs inside its `with`")
        return self._run


@contextmanager
def running_spark(master: str | None, report: ReportProgress) -> Iterator[SparkSession]:
    """A session, stopped at the end unless it was there before; its stages and errors are told plainly."""
    with ExitStack() as stack:
        stack.enter_context(told_plainly())
        report(Progress("starting Spark", unit="tasks"))
        own = SparkSession.getActiveSession() is None
        with interrupts_deferred():
            spark = start_session(master)
            if own:
                stack.callback(spark.stop)
        stack.enter_context(reported_stages(spark, report))
        yield spark
