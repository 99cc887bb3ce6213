"""A search of replay files as a Spark job: session, progress and errors around the batch run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from skws.formats import Replay
from skws.keywords.plan import Plan
from skws.progress import Progress, ReportProgress
from skws.queries.kinds import plan_of, window_of
from skws.queries.ranked import top_of
from skws.ranking.top import Top, event_time, unknown
from skws.results.model import Result
from skws.spark.batch import BatchRun
from skws.spark.faults import told_plainly
from skws.spark.interrupts import interrupts_deferred
from skws.spark.replayed import DecodedReplay
from skws.spark.session import start_session
from skws.spark.stages import reported_stages
from skws.spec.query import PATTERN, SIZE, Query
from skws.spec.ranking import TopChoice
from skws.spec.stream import Stream
from skws_windows.window import ExpressionWindow


class BestRun(BatchRun):
    """The best results of a keyword query: what enters, and what leaves, up to the end of the stream."""

    def __init__(self, spark: SparkSession, plan: Plan, replay: Replay, top: TopChoice) -> None:
        super().__init__(spark, plan, replay)
        self._top = Top(top, plan.schema, unknown if plan.by_count else event_time)

    def results(self, limit: int | None = None) -> Iterator[Result]:
        yield from self._top.take(super().results(limit))
        if self.ended_at is not None:
            yield from self._top.advance(self.ended_at)


@contextmanager
def spark_run(
    standing: Query, stream: Stream, replay: Replay, master: str | None, report: ReportProgress
) -> Iterator[DecodedReplay]:
    """A run of any kind of query; the session is stopped at the end, unless it was there before.

    Raises SourceError if Spark cannot start, and what the job's own workers
    raise: SourceError, BadRecordsError.
    """
    with _running_spark(master, report) as spark, _run(spark, standing, stream, replay) as run:
        yield run


def _run(spark: SparkSession, standing: Query, stream: Stream, replay: Replay) -> DecodedReplay:
    plan = plan_of(standing, stream)
    top = top_of(standing.options) if SIZE in standing.options else None
    over_expression = isinstance(window_of(standing, stream), ExpressionWindow)
    if plan is not None and over_expression:
        from skws.spark.windowed import WindowedRun  # noqa: PLC0415 - z3 and more, for who has an expression

        return WindowedRun(spark, plan, replay, top)
    if plan is not None:
        return BatchRun(spark, plan, replay) if top is None else BestRun(spark, plan, replay, top)
    if standing.kind != PATTERN:
        from skws.spark.whole import WholeBatch  # noqa: PLC0415 - for who asks for such a query

        return WholeBatch(spark, standing, stream, replay)
    from skws.spark.patterns import PatternBatch  # noqa: PLC0415 - for who has a pattern
    from skws.spark.windowed_patterns import WindowedPatternBatch  # noqa: PLC0415

    kind = WindowedPatternBatch if over_expression else PatternBatch
    return kind(spark, standing.text, stream.schema, window_of(standing, stream), replay)


@contextmanager
def _running_spark(master: str | None, report: ReportProgress) -> Iterator[SparkSession]:
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
