"""Why a streaming query ended, in one line: Spark's message goes on with its plan and offsets."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import StreamingQueryException

from schema.errors import SkwsError
from skws.spark.faults import SparkFailedError, translated

_PLAN: Final = "=== Streaming Query ==="
_RAISED: Final = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*: .*", re.M)


def streaming_fault(error: StreamingQueryException) -> SkwsError:
    """The error of ours that a stage or the source raised, if it was one; else what was raised last."""
    text = str(error).partition(_PLAN)[0]
    told = translated(Exception(text))
    raised = _RAISED.findall(text)
    if type(told) is not SparkFailedError or not raised:
        return told
    return SparkFailedError(f"Spark failed: {raised[-1]}")
