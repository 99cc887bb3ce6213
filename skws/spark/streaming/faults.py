"""Why a streaming query ended, in one line: Spark's message goes on with its plan and offsets."""

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


def streaming_fault(error: StreamingQueryException) -> SkwsError:
    """The error of ours that a stage or the source raised, if it was one; else what was raised last."""
    return _fault(str(error).partition(_PLAN)[0])


def _fault(text: str) -> SkwsError:
    told = translated(Exception(text))
    raised = _RAISED.findall(text)
    if type(told) is not SparkFailedError or not raised:
        return told
    return SparkFailedError(f"Spark failed: {raised[-1].rpartition(_FAILED)[2]}")
