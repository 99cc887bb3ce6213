"""Why a streaming query ended, in one line, and whether that passes: Spark's message goes on and on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from schema.errors import SkwsError
from skws.spark.faults import SparkFailedError, translated

_PLAN: Final = "=== Streaming Query ==="
_FAILED: Final = "SparkFailedError: Spark failed: "
_RAISED: Final = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*: .*", re.M)


# Spark or the machine lost a process, or had no time for it; nothing of this comes from what was read.
_PASSING: Final = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "the keeper of a shard",
    "ExecutorLostFailure",
)
_SOURCE: Final = "PythonStreamingSourceRunner"


class PassingError(SparkFailedError):
    """A failure of what the query runs on, after which it may go on."""


# Spark looks for these in the text of an error, to know that it was told to stop.
_INTERRUPTED: Final = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
_AS_SPARK_KNOWS_IT: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
)


@contextmanager
def told_briefly() -> Iterator[None]:
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
        raise _fault(text) from None


def passing(error: Exception) -> bool:
    """Whether an error out of Spark is of a kind that passes."""
    return isinstance(_fault(str(error)), PassingError)


def streaming_fault(error: StreamingQueryException) -> SkwsError:
    """The error of ours that a stage or the source raised, if it was one; else what was raised last."""
    if _source_gone(error):
        return PassingError("Spark failed: the process of the source has gone")
    return _fault(str(error).partition(_PLAN)[0])


def _source_gone(error: StreamingQueryException) -> bool:
    """Java says only what became of the connection; what the source raises comes as an error of Spark's."""
    trace = getattr(getattr(error, "_cause", None), "_stackTrace", None) or ""
    return trace.startswith(("java.io.", "java.net.")) and _SOURCE in trace


def _fault(text: str) -> SkwsError:
    told = translated(Exception(text))
    if type(told) is not SparkFailedError:
        return told
    for sign in _PASSING:
        if sign in text:
            line = next(line for line in text.splitlines() if sign in line)
            return PassingError(f"Spark failed: {line[line.index(sign) :].strip(' .')}")
    raised = _RAISED.findall(text)
    return SparkFailedError(f"Spark failed: {raised[-1].rpartition(_FAILED)[2]}") if raised else told
