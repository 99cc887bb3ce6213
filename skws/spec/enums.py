"""Choices of a job. They import no engine, so that clients of a job start fast."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from skws_schema.errors import UsageError, shown

DEFAULT_MAX_SIZE: Final = 5
"""The default maximum number of tuples of a result, T_max."""

_MASTER: Final = re.compile(r"yarn|(spark|k8s)://.+|local(\[(\*|[1-9]\d*)(,\d+)?\])?|local-cluster\[.+\]")


class EngineName(StrEnum):
    """Engines that can run a search over a replay."""

    SPARK = "spark"
    LOCAL = "local"


class EngineChoice(StrEnum):
    """An engine, or the one that fits: in process, unless a master or very large data asks for Spark."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class Sort(StrEnum):
    """The order of the results of a search."""

    TIME = "time"
    SCORE = "score"


class ToldUpdates(StrEnum):
    """How a result is reported when its rows are updated.

    ``tell``: as an update (``~``). ``replace``: as a retraction and a result with the same id, for programs
    without updates.
    """

    TELL = "tell"
    REPLACE = "replace"


class EvaluatorName(StrEnum):
    """Evaluators of candidate networks; results do not depend on them.

    ``mesh``: keeps partial results. ``delta``: joins each tuple with the live ones and keeps no partial
    results, where possible. ``auto``: the mesh, or delta joins for very many queries.
    """

    AUTO = "auto"
    MESH = "mesh"
    DELTA = "delta"


class OnError(StrEnum):
    """What to do about a bad record."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class OutputFormat(StrEnum):
    """Formats that results are written in."""

    TABLE = "table"
    TREE = "tree"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


SUFFIXES: Final = {
    ".txt": OutputFormat.TABLE,
    ".jsonl": OutputFormat.JSONL,
    ".ndjson": OutputFormat.JSONL,
    ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET,
}
"""Formats by the suffixes of files."""


def check_master(master: str | None) -> None:
    """Raises UsageError if a text is not a Spark master."""
    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {shown(master)}: expected local, local[N], local[*], yarn, spark://HOST:PORT or k8s://URL"
        )


class WindowsFormat(StrEnum):
    """Formats of windows; DOT and SVG show the automata that find them."""

    TABLE = "table"
    JSONL = "jsonl"
    DOT = "dot"
    SVG = "svg"
