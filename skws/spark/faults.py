"""Errors out of Spark as users should read them: our own as they were raised, others in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from skws_schema import errors
from skws_schema.errors import SkwsError, SourceError

# The end of a Python traceback inside a message, up to Java's part of it.
_RAISED: Final = re.compile(
    rf"^{re.escape(errors.__name__)}\.(\w+): (.*?)(?=\n\s*\n|\n\tat |\n\s*Traceback|\s+SQLSTATE: |\Z)",
    re.M | re.S,
)
_NOT_STARTED: Final = ("Could not parse Master URL", "JAVA_GATEWAY_EXITED", "All masters are unresponsive")
_ANSWERED: Final = "Trace:\n"  # Java refused the call itself, as where there is no such method
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")


class SparkFailedError(SkwsError):
    """Spark, or what it runs on, gave up."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raises inside, coming from Spark, leave as SkwsError."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionRefusedError) as error:
        raise (java_gone() if without_java(error) else translated(error)) from error


def without_java(error: Exception) -> bool:
    """Whether a call to Java failed because there is none any more."""
    if isinstance(error, ConnectionError):
        return True
    answered = isinstance(error, Py4JJavaError) or _ANSWERED in str(error)
    return isinstance(error, Py4JError) and not answered


def java_gone() -> SparkFailedError:
    return SparkFailedError("Spark failed: its Java process has gone")


def translated(error: Exception) -> SkwsError:
    """The error of ours that a worker raised, if it was one; else one that says what Spark says."""
    text = str(error)
    for name, message in _RAISED.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SkwsError):
            return kind(message.strip())
    if any(sign in text for sign in _NOT_STARTED):
        return SourceError(f"Spark cannot start: {_reason(text)}")
    return SparkFailedError(f"Spark failed: {_reason(text)}")


def _reason(text: str) -> str:
    """The most informative line: the innermost cause if Java names one, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    chosen = (causes[-1:] or raised[:1] or lines[:1] or ["no reason given"])[0]
    return _JAVA_CLASS.sub("", chosen)
