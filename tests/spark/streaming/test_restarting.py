"""Restarts of a streaming query: after which failures, how often, and the messages."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from skws.jobs.clock import StoppableClock
from skws.spark.faults import PassingError, SparkFailedError, brief_errors, passing_error, streaming_fault
from skws.spark.streaming.sharded_job import ATTEMPTS, RestartingStream
from skws_schema.errors import BadRecordsError
from tests.jobs.watching import Notes

BUSY = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.spark.Some"
BAD = "skws_schema.errors.BadRecordsError: in.jsonl:2: not JSON\n\n\tat org.apache.spark.Some"
IN_FACTORY = (
    "\n\tat java.base/java.io.A.b(A.java:1)\n\tat org.apache.spark.api.python.PythonWorkerFactory.c()"
)


class FailureError(Exception):
    """A failure as Spark reports it. ``trace``: the stack trace of its cause in Java."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self._cause = type("Cause", (), {"_stackTrace": trace})


class Query:
    """A query that runs until ``error`` is set."""

    def __init__(self) -> None:
        self.error: FailureError | None = None
        self.stopped = False

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self.error is None

    def exception(self) -> FailureError | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


class Clock(StoppableClock):
    """A clock that only sleeping advances."""

    at = 0

    def now(self) -> int:
        return self.at

    def sleep(self, micros: int) -> None:
        self.at += micros


class RestartedRun:
    """A restarting query, the queries that it has started, and the number of their completed batches."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.notes = Notes()
        self.queries: list[Query] = []
        self.done = 0
        self.refused: list[Exception] = []
        start: Any = self._start
        self.query = RestartingStream(start, lambda: self.done, nullcontext, self.clock, self.notes.log)

    def _start(self) -> Query:
        if self.refused:
            raise self.refused.pop()
        self.queries.append(Query())
        return self.queries[-1]

    def fail(self, text: str, trace: str = "") -> None:
        self.queries[-1].error = FailureError(text, trace)

    def pause_until_started(self) -> float:
        """Wait for the next start; returns the pause in seconds."""
        start, earlier_count = self.clock.at, len(self.queries)
        while len(self.queries) == earlier_count:
            assert self.query.keep_running()
            self.clock.sleep(500_000)
        return (self.clock.at - start) // 1_000_000


def test_pauses_grow_until_a_batch_is_done() -> None:
    run = RestartedRun()
    run.pause_until_started()
    pauses = []
    for batches in (0, 0, 0, 1, 0):
        run.done += batches
        run.fail(BUSY)
        pauses.append(run.pause_until_started())
    assert pauses == [1, 2, 4, 1, 2]
    assert run.query.restarts == 5
    assert run.notes.lines[0] == "Spark failed: Python worker failed to connect back; starting again in 1 s"


def test_advice_of_spark_for_developers_is_omitted() -> None:
    run = RestartedRun()
    run.pause_until_started()
    run.fail("Python worker exited unexpectedly (crashed). Consider setting 'spark.x' to 'true'")
    run.pause_until_started()
    assert run.notes.lines == [
        "Spark failed: Python worker exited unexpectedly (crashed); starting again in 1 s"
    ]


def test_restarts_end_after_a_limit() -> None:
    run = RestartedRun()
    run.pause_until_started()
    for _ in range(ATTEMPTS - 1):
        run.fail(BUSY)
        assert run.pause_until_started() <= 30
    run.fail(BUSY)
    with pytest.raises(SparkFailedError, match=rf"connect back \({ATTEMPTS} times without a completed"):
        run.query.keep_running()


def test_a_failed_start_is_retried() -> None:
    run = RestartedRun()
    run.refused = [FailureError(BUSY), FailureError(BUSY)]
    assert run.pause_until_started() == 3
    assert run.query.restarts == 2
    run = RestartedRun()
    run.refused = [FailureError(BAD)]
    with pytest.raises(FailureError, match=r"in\.jsonl:2"):
        run.query.keep_running()


def test_a_start_that_fails_because_of_a_killed_process_is_retried() -> None:
    run = RestartedRun()
    run.refused = [FailureError(f": java.io.IOException: Stream closed{IN_FACTORY}")]
    assert run.pause_until_started() == 1
    assert run.notes.lines == [
        "Spark failed: a Python process has gone (Stream closed); starting again in 1 s"
    ]


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer is empty"), ConnectionRefusedError(111, "refused")]
)
def test_a_start_without_java_is_an_error_or_an_interrupt(error: Exception) -> None:
    run = RestartedRun()
    run.refused = [error]
    with pytest.raises(SparkFailedError, match=r"^Spark failed: its Java process has gone$"):
        run.query.keep_running()
    run.refused = [error]
    run.clock.stopping.set()  # ending a service also sends signals to Java
    assert not run.query.keep_running()


def test_errors_marked_as_temporary_are_recognized() -> None:
    with pytest.raises(PassingError, match=r"a Python process has gone \(Stream closed\)$"), brief_errors():
        raise Py4JError(f"calling o1.collect.\n: java.io.IOException: Stream closed{IN_FACTORY}")


def test_permanent_errors_are_raised_at_once() -> None:
    run = RestartedRun()
    run.pause_until_started()
    run.fail(BAD)
    with pytest.raises(BadRecordsError, match=r"in.jsonl:2: not JSON$"):
        run.query.keep_running()
    run.fail("Traceback (most recent call last):\nValueError: of a bug")
    with pytest.raises(SparkFailedError, match=r"^Spark failed: of a bug|ValueError: of a bug$"):
        run.query.keep_running()
    assert run.query.restarts == 0


@pytest.mark.parametrize(
    ("text", "trace", "passes"),
    [
        (f"Job aborted: Lost a task in stage 5.0 (TID 23): {BUSY}", "", True),
        ("Python worker exited unexpectedly (crashed). Consider setting", "", True),
        ("RuntimeError: the server of a shard has gone", "", True),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", "", True),
        # The source's process is gone: Java only sees the end of the connection.
        ("", "java.io.EOFException\n\tat o.a.s.PythonStreamingSourceRunner.latestOffset(X.scala:2)", True),
        (
            "Connection reset",
            "java.net.SocketException: Connection reset\n\tat PythonStreamingSourceRunner",
            True,
        ),
        ("Connection reset", "java.net.SocketException: Connection reset\n\tat Somewhere", False),
        # Another process was killed: Spark starts and calls all of them in the same way.
        ("Stream closed", f"java.io.IOException: Stream closed{IN_FACTORY}", True),
        ("EOFException", f"org.apache.spark.SparkException: EOFException{IN_FACTORY}", True),
        # Raised by `brief_errors`, and passed through Java.
        ("Return Message: Traceback\nskws.spark.faults.PassingError: Spark failed: x\n", "", True),
        # Raised by the source, whose process is still running.
        ("x", f"org.apache.spark.SparkException: {BAD}\n\tat o.a.s.PythonStreamingSourceRunner", False),
        # An error of skws takes precedence over others in the text.
        (f"{BAD}\n{BUSY}", "", False),
        ("Caused by: java.lang.OutOfMemoryError: Java heap space", "", False),
    ],
)
def test_which_failures_are_temporary(text: str, trace: str, *, passes: bool) -> None:
    failure: Any = FailureError(text, trace)
    assert isinstance(streaming_fault(failure), PassingError) is passes
    if not trace:
        assert (passing_error(failure) is not None) is passes
