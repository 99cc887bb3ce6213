"""Every error that skws shows to a user, by whose fault it is.

A message names the offender, where it stands, and what was expected. The exit
code is part of the command line's contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class SkwsError(Exception):
    """Base of all errors with a message for the user."""

    exit_code = 1


class UsageError(SkwsError):
    """The command line or a query cannot be understood."""

    exit_code = 2


class QueryError(UsageError):
    """A keyword query cannot be run as written."""


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
    """A schema (or other configuration) is wrong. Carries every problem found."""

    exit_code = 3

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        text = problems if isinstance(problems, str) else "\n".join(map(str, problems))
        super().__init__(text)


class SourceError(SkwsError):
    """A replay, a stream or a runtime that is needed is not available."""

    exit_code = 4


class BadRecordsError(SkwsError):
    """Records could not be read and the policy is to fail."""

    exit_code = 5


def nearest(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the candidate closest to ``name``, else the empty string."""
    found = get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
