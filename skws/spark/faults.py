"""Translates errors of Spark: our own to what was raised, others to one line; some are temporary.

Spark's messages are very long. The stack trace of an error shows which process failed: Java's own objects
have the chain of causes only while Java runs, and not for errors of tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from skws_schema import errors
from skws_schema.errors import NotYetError, SkwsError, SourceError

# The end of a Python traceback inside a message, up to Java's part of it.
_SKWS_ERROR: Final = re.compile(
    rf"^{re.escape(errors.__name__)}\.(\w+): (.*?)(?=\n\s*\n|\n\tat |\n\s*Traceback|\s+SQLSTATE: |\Z)",
    re.M | re.S,
)
_NOT_STARTED: Final = ("Could not parse Master URL", "JAVA_GATEWAY_EXITED", "All masters are unresponsive")
_STOPPED: Final = "stopped SparkContext"  # by Spark itself, as nothing is called after we have stopped it
_CALL_REFUSED: Final = "Trace:\n"  # Java refused the call itself, for instance if there is no such method
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")

# Spark or the machine lost a process, or had no time for it, whatever the data.
_TEMPORARY_SIGNS: Final = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "the server of a shard",
    "ExecutorLostFailure",
)
# The end of a traceback.
_TRACEBACK_END: Final = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.M)
_ADVICE: Final = " Consider setting"
_PLAN: Final = "=== Streaming Query ==="
_FAILED_PREFIX: Final = "SparkFailedError: Spark failed: "
_ERROR_LINE: Final = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*: .*", re.M)

# The last exception of Java in a line: that of a task follows Spark's own words.
_KIND: Final = re.compile(r".*(?<![\w.])((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error))\b(?:: (.*))?$", re.M)
# Frames between an exception and the class whose call failed.
_LIBRARY_FRAME: Final = re.compile(
    r"at (?:[\w.@]*/)?(?:java|javax|jdk|sun|scala|org\.apache\.arrow|io\.netty|org\.apache\.spark\.errors)\."
)
_IO: Final = re.compile(r"java\.(?:io|net|nio)\.")
_STARTER: Final = "PythonWorkerFactory"
_SOURCE: Final = "PythonStreamingSourceRunner"
_NO_PROGRAM: Final = "java.lang.ProcessBuilder.start("
_PROGRAM_ERROR: Final = re.compile(r'Cannot run program ".*')  # its cause does not name the program
_PYTHON_REASON: Final = "Error from python worker"

# Spark looks for these in the text of an error to recognise a requested stop.
_INTERRUPTED: Final = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
_INTERRUPTION: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
)


class SparkFailedError(SkwsError):
    """Spark or its system failed."""


class PassingError(SparkFailedError):
    """A temporary failure of the system, after which the query can resume."""


# As `brief_errors` raised it, after it has passed through Java.
_PASSING_ERROR: Final = re.compile(rf"^{re.escape(__name__)}\.{PassingError.__name__}: (.*)", re.M)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns errors of Spark into SkwsError."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionRefusedError) as error:
        raise (java_gone_error() if is_java_gone(error) else skws_error(str(error))) from error


@contextmanager
def brief_errors() -> Iterator[None]:
    """Shortens errors of Spark's Java within a batch.

    Spark searches the text of a Py4JJavaError for an interruption with a regular
    expression that needs stack for every character: a task's traceback
    overflows it, and the query ends without an error.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if any(name in text for name in _INTERRUPTED):
            raise RuntimeError(_INTERRUPTION) from None
        raise _fault(text, _stack_trace(error)) from None


def is_java_gone(error: Exception) -> bool:
    """True if a call to Java failed because Java has ended."""
    if isinstance(error, ConnectionError):
        return True
    has_answer = isinstance(error, Py4JJavaError) or _CALL_REFUSED in str(error)
    return isinstance(error, Py4JError) and not has_answer


def java_gone_error() -> SparkFailedError:
    return SparkFailedError("Spark failed: its Java process has gone")


def skws_error(text: str) -> SkwsError:
    """The SkwsError that a worker raised, if there is one; otherwise an error with Spark's message."""
    for name, message in _SKWS_ERROR.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SkwsError):
            return kind(message.strip())
    if any(sign in text for sign in _NOT_STARTED):
        return SourceError(f"Spark cannot start: {_reason(text)}")
    if _STOPPED in text:
        return SparkFailedError(
            "Spark has stopped: its master does not answer, or has ended the application"
            " (see its log or its web page)"
        )
    return SparkFailedError(f"Spark failed: {_reason(text)}")


def passing_error(error: Exception) -> PassingError | None:
    """The error to report if an error of Spark is temporary; None otherwise."""
    fault = _fault(str(error), _stack_trace(error))
    return fault if isinstance(fault, PassingError) else None


def streaming_fault(error: StreamingQueryException) -> SkwsError:
    """The SkwsError that a stage or the source raised, if there is one; otherwise the last error."""
    cause = getattr(error, "_cause", None)
    return _fault(str(error).partition(_PLAN)[0], "" if cause is None else _stack_trace(cause))


def lost_process(trace: str) -> str | None:
    """A message if Java's stack trace shows that Spark lost a Python process, running or starting.

    None for anything else: if the program does not exist, or Python gave the reason why it cannot start,
    another try would fail as well.
    """
    head: list[str] = []
    for are_frames, lines in groupby(map(str.strip, trace.splitlines()), lambda line: line.startswith("at ")):
        if not are_frames:
            head = list(lines)
            continue
        frames, text = list(lines), "\n".join(head)
        caller = next((frame for frame in frames if not _LIBRARY_FRAME.match(frame)), "")
        match = _KIND.search(text)
        if match is None:
            continue
        kind, message = match.groups("")
        if _IO.match(kind):
            is_lost = "Python" in caller and not any(_NO_PROGRAM in frame for frame in frames)
        else:
            is_lost = _STARTER in caller and _PYTHON_REASON not in text
        if is_lost and _SOURCE in caller:
            return "the process of the source has gone"
        if is_lost:
            return f"a Python process has gone ({message.strip(' .') or kind.rpartition('.')[2]})"
    return None


def _fault(text: str, trace: str) -> SkwsError:
    error = skws_error(text)
    if isinstance(error, NotYetError):  # raised when a micro-batch is read again
        return PassingError(str(error))
    if type(error) is not SparkFailedError:
        return error
    if match := _PASSING_ERROR.search(text):
        return PassingError(match[1])
    for sign in _TEMPORARY_SIGNS:
        if sign in text:
            line = next(line for line in text.splitlines() if sign in line)
            message = line[line.index(sign) :].partition(_ADVICE)[0]
            return PassingError(f"Spark failed: {message.strip(' .')}")
    if reason := lost_process(trace):
        return PassingError(f"Spark failed: {reason}")
    error_lines = _PROGRAM_ERROR.findall(trace)[:1] or _ERROR_LINE.findall(text)
    return (
        SparkFailedError(f"Spark failed: {error_lines[-1].rpartition(_FAILED_PREFIX)[2]}")
        if error_lines
        else error
    )


def _stack_trace(error: Exception) -> str:
    """An error from Java as Java prints it, with its causes."""
    return getattr(error, "_stackTrace", None) or str(error)


def _reason(text: str) -> str:
    """The most informative line: a missing program, what Python raised, the innermost cause, or the first."""
    if program := _PROGRAM_ERROR.search(text):
        return program[0]
    if python_errors := _TRACEBACK_END.findall(text):
        return str(python_errors[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    call_errors = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    reason = (causes[-1:] or call_errors[:1] or lines[:1] or ["no reason given"])[0]
    return _JAVA_CLASS.sub("", reason)
