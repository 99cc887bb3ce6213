"""Every error that skws shows to a user, one class for each exit code or kind of remedy.

A message names the offender, its position, and what was expected. The exit code is part of the command
line's contract.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final


def quantity(count: int, noun: str, *, at_least: bool = False) -> str:
    """A number with its noun: ``1 network``, ``1,120 networks``, ``at least 7 networks``."""
    return f"{'at least ' if at_least else ''}{count:,} {noun}{'' if count == 1 else 's'}"


TOO_DEEP: Final = "a deeply nested value"
_MOST_SHOWN: Final = 80
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """``value`` as messages show it: quoted, at most ``_MOST_SHOWN`` characters."""
    text = ""
    try:
        for part in _repr_parts(value):
            text += part
            if len(text) > _MOST_SHOWN:  # aliases of YAML make lists of which no one reads the end
                break
    except RecursionError:
        return TOO_DEEP
    except ValueError:  # Python does not convert integers of more than 4,300 digits
        return "a number with thousands of digits"
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _repr_parts(value: object) -> Iterator[str]:
    """``repr(value)`` in parts, and only of the start of long texts."""
    if type(value) is list:
        for number, item in enumerate(value):
            yield ", " if number else "["
            yield from _repr_parts(item)
        yield "]" if value else "[]"
    elif type(value) is dict:
        for number, (key, item) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{key!r}: "
            yield from _repr_parts(item)
        yield "}" if value else "{}"
    else:
        yield repr(value[:_MOST_SHOWN] if isinstance(value, str | bytes) else value)


class SkwsError(Exception):
    """Base of all errors with a message for the user."""

    exit_code = 1


class UsageError(SkwsError):
    """The command line or a query cannot be understood."""

    exit_code = 2


class ConfigurationError(UsageError):
    """A file that configures a run, such as a file of queries, is wrong. The message lists every problem."""

    exit_code = 3


class QueryError(UsageError):
    """A keyword query cannot be run as written."""


class PatternError(UsageError):
    """A pattern or a conjunctive query cannot be run as written."""

    @classmethod
    def at(cls, text: str, start: int, end: int, message: str) -> PatternError:
        """A fault at ``text[start:end]``: the message, the line, and carets below the fault."""
        return cls(f"{message}\n{_with_carets(text, start, end)}")


class SqlError(UsageError):
    """A query in SQL cannot be read, or is not select-project-join."""

    @classmethod
    def at(cls, text: str, start: int, end: int, message: str) -> SqlError:
        """A fault at ``text[start:end]``: line and column from 1, the message, the line with carets below."""
        line = text.count("\n", 0, start) + 1
        column = start - text.rfind("\n", 0, start)
        return cls(f"line {line}, column {column}: {message}\n{_with_carets(text, start, end)}")


def _with_carets(text: str, start: int, end: int) -> str:
    """The line of ``text`` that contains ``start``, and carets below ``text[start:end]``."""
    line_start = text.rfind("\n", 0, start) + 1
    line = text[line_start:].split("\n", 1)[0]
    column = start - line_start
    carets = "^" * max(1, min(end, line_start + len(line)) - start)
    return f"  {line}\n  {' ' * column}{carets}"


_TEXT_WIDTH = 72
"""Characters of a text in a message."""


def pointed(message: str, text: str, position: int) -> str:
    """A message about a position in a text of one line: the text around it, and a caret below."""
    start = max(0, position - _TEXT_WIDTH // 2)
    # Unprintable characters would move the caret, or the cursor.
    return f"{message}\n  {printable(text[start : start + _TEXT_WIDTH])}\n  {' ' * (position - start)}^"


def printable(text: str) -> str:
    """The text with blanks in place of unprintable characters."""
    return "".join(char if char.isprintable() else " " for char in text)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a configuration file; ``line`` and ``column`` count from 1."""

    source: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}: {self.message}"


class SchemaError(SkwsError):
    """A schema (or other configuration) is wrong. Holds every problem."""

    exit_code = 3

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        text = problems if isinstance(problems, str) else "\n".join(map(str, problems))
        super().__init__(text)


class SourceError(SkwsError):
    """A replay, a stream or a runtime is not available."""

    exit_code = 4


class NotYetError(SourceError):
    """A server is unreachable or busy; a retry may help."""


class NotReadyError(SkwsError):
    """The job of a server is starting or has ended."""


class MemoryBudgetError(SkwsError):
    """A run needs more memory than its budget, or than the system has."""


class BadRecordsError(SkwsError):
    """Records could not be read and the policy is to fail."""

    exit_code = 5


class StateError(SkwsError):
    """The state of a run cannot be written or read."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the candidate closest to ``name`` in any case, else the empty string."""
    folded: dict[str, str] = {}
    for candidate in candidates:
        folded.setdefault(candidate.casefold(), candidate)
    matches = get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {str(folded[matches[0]])!r}?" if matches else ""


def not_utf8(error: UnicodeDecodeError) -> str:
    """The reason of a decoding error, with the byte."""
    return f"byte 0x{error.object[error.start]:02X} is not UTF-8"


def nearest_file(path: Path) -> str:
    """``"; did you mean X?"`` for the file beside ``path`` with the closest name, else the empty string."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return ""
    matches = get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def without_picture(message: str) -> str:
    """A message without the text and carets at its end, for displays of one line."""
    lines = message.splitlines()
    has_picture = len(lines) > 2 and set(lines[-1].strip()) == {"^"}
    return "\n".join(lines[:-2]) if has_picture else message
