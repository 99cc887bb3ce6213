"""Why a streaming query ended, in one line, and whether that passes: Spark's message goes on and on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from skws.spark.faults import SparkFailedError, translated
from skws.spark.java_causes import JavaCause, java_causes
from skws_schema.errors import NotYetError, SkwsError

_PLAN: Final = "=== Streaming Query ==="
_FAILED: Final = "SparkFailedError: Spark failed: "
_RAISED: Final = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*: .*", re.M)
# By `brief_errors`, through Java.
_PASSED_ON: Final = re.compile(r"^skws\.spark\.streaming\.faults\.PassingError: (.*)", re.M)

# Spark or the machine lost a process, or had no time for it; nothing of this comes from what was read.
_PASSING: Final = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "the server of a shard",
    "ExecutorLostFailure",
)
_ADVICE: Final = " Consider setting"
_SOURCE: Final = "PythonStreamingSourceRunner"


class PassingError(SparkFailedError):
    """A failure of what the query runs on, after which it may go on."""


# Spark looks for these in the text of an error, to know that it was asked to stop.
_INTERRUPTED: Final = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
_AS_SPARK_KNOWS_IT: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
)


@contextmanager
def brief_errors() -> Iterator[None]:
    """Errors out of Spark's Java, within a batch, as short ones.

    Spark looks for an interruption behind a Py4JJavaError by a regular
    expression that needs stack for every character: a task's traceback
    overflows it, and the query ends as if nothing had been wrong.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if any(name in text for name in _INTERRUPTED):
            raise RuntimeError(_AS_SPARK_KNOWS_IT) from None
        raise _fault(text, printed(error)) from None


def passing(error: Exception) -> PassingError | None:
    """What an error out of Spark says, if it is of a kind that passes."""
    fault = _fault(str(error), printed(error))
    return fault if isinstance(fault, PassingError) else None


def streaming_fault(error: StreamingQueryException) -> SkwsError:
    """The error of ours that a stage or the source raised, if it was one; else what was raised last."""
    cause = getattr(error, "_cause", None)
    return _fault(str(error).partition(_PLAN)[0], "" if cause is None else printed(cause))


def printed(error: Exception) -> str:
    """An error out of Java as Java prints it, with its causes."""
    return getattr(error, "_stackTrace", None) or str(error)


def _fault(text: str, trace: str) -> SkwsError:
    found = translated(Exception(text))
    if isinstance(found, NotYetError):  # raised where a micro-batch is read again
        return PassingError(str(found))
    if type(found) is not SparkFailedError:
        return found
    if passed_on := _PASSED_ON.search(text):
        return PassingError(passed_on[1])
    for sign in _PASSING:
        if sign in text:
            line = next(line for line in text.splitlines() if sign in line)
            said = line[line.index(sign) :].partition(_ADVICE)[0]
            return PassingError(f"Spark failed: {said.strip(' .')}")
    for cause in java_causes(trace):
        if cause.is_lost_process:
            return PassingError(f"Spark failed: {_gone(cause)}")
    raised = _RAISED.findall(text)
    return SparkFailedError(f"Spark failed: {raised[-1].rpartition(_FAILED)[2]}") if raised else found


def _gone(cause: JavaCause) -> str:
    if _SOURCE in cause.maker:
        return "the process of the source has gone"
    return f"a Python process has gone ({cause.message.strip(' .') or cause.kind.rpartition('.')[2]})"
