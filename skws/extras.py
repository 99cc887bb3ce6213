"""Packages that an extra of skws installs, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skws_schema.errors import SourceError

_SPARK: Final = ("Spark", "spark", "; --engine local does without")
_EXTRAS: Final = {
    "pyspark": _SPARK,
    "py4j": _SPARK,
    "textual": ("the terminal UI", "tui", ""),
    "textual_serve": ("the terminal UI in a browser", "tui", ""),
    "z3": ("the check of window expressions", "windows", ""),
    "networkx": ("the check of window expressions", "windows", ""),
    "psycopg2": ("PostgreSQL", "postgres", ""),
    "fastapi": ("skws serve", "serve", ""),
    "starlette": ("skws serve", "serve", ""),
    "uvicorn": ("skws serve", "serve", ""),
    "confluent_kafka": ("Kafka", "kafka", ""),
    "pandas": ("a data frame of pandas", "spark", ""),
}
"""By module: what needs it, the extra that installs it, and advice."""


def missing_extra(error: ImportError) -> SourceError | None:
    """What to install for a module that was not found; None if no extra installs it."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS or not isinstance(error, ModuleNotFoundError):
        return None
    what, extra, advice = _EXTRAS[module]
    return SourceError(f"{what} needs {module}: pip install 'skws[{extra}]'{advice}")


@contextmanager
def installed() -> Iterator[None]:
    """For imports of packages that an extra installs. Raises SourceError that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
