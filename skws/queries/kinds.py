"""The kinds of queries by name, each loaded on first use; results of all kinds in order, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from skws.extras import KINDS as ADDED
from skws.extras import extension
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.operator import QueryKind
from skws.queries.patterns.result import PatternResult
from skws.results.model import EncodedResult, LiveResult, Result, instant_of, parsed
from skws.spec.job import Job
from skws.spec.query import KEYWORDS, PATTERN, SQL, TOP, WINDOWED, Query, Stream
from skws_schema.errors import UsageError, nearest
from skws_windows.window import ExpressionWindow, Unbounded, Window


def _keywords() -> QueryKind:
    from skws.queries.keywords.kind import KeywordKind  # noqa: PLC0415 - loads the mesh, for keywords alone

    return KeywordKind()


def _top() -> QueryKind:
    from skws.queries.ranked import TopKind  # noqa: PLC0415 - as above

    return TopKind()


def _windowed() -> QueryKind:
    from skws.queries.windowed.kind import WindowedKind  # noqa: PLC0415 - z3, only for window expressions

    return WindowedKind()


def _pattern() -> QueryKind:
    from skws.queries.patterns.kind import PatternKind  # noqa: PLC0415 - only for patterns

    return PatternKind()


def _sql() -> QueryKind:
    from skws.queries.sql import SqlKind  # noqa: PLC0415 - as above

    return SqlKind()


KINDS: Final[dict[str, Callable[[], QueryKind]]] = {
    KEYWORDS: _keywords,
    PATTERN: _pattern,
    SQL: _sql,
    TOP: _top,
    WINDOWED: _windowed,
}


def kind_of(name: str) -> QueryKind:
    """The kind of a name, of skws or of another package. Raises UsageError if there is none."""
    made = KINDS.get(name) or extension(ADDED, name)
    if made is None:
        raise UsageError(f"kind of query {name!r}: expected one of {', '.join(KINDS)}{nearest(name, KINDS)}")
    kind: QueryKind = made()
    return kind


def notes(query: Query, stream: Stream) -> tuple[str, ...]:
    """What of a checked query is ignored, or written otherwise now, a line for each reason."""
    if query.kind == PATTERN:
        from skws.queries.patterns.text import pattern_notes  # noqa: PLC0415 - only for patterns

        found = pattern_notes(query.text, stream.schema)
    elif query.kind in (KEYWORDS, TOP, WINDOWED):
        found = parse_query(query.text, stream.schema, match_names=stream.match_names).notes
    else:
        return ()
    window = window_of(query, stream)
    if query.kind == PATTERN and isinstance(window, Unbounded) and not stream.finite:
        remedy = "within 10 minutes in its text, or --window, lets them expire"
        return (*found, f"the pattern has no window, so all tuples that it reads are kept: {remedy}")
    if not isinstance(window, ExpressionWindow):
        return found
    from skws.queries.windowed.plan import window_notes  # noqa: PLC0415 - z3, only for window expressions

    return (*found, *window_notes(stream.schema, window))


def checked(job: Job) -> dict[str, Query]:
    """The queries of a job by name. Raises QueryError, PatternError, UsageError."""
    named = job.named()
    for query in named.values():
        check(query, job.stream)
    return named


def check(query: Query, stream: Stream) -> str:
    """A warning; empty if there is none.

    Raises QueryError, PatternError, UsageError.
    """
    return kind_of(query.kind).check(query, stream)


def plan_of(query: Query, stream: Stream) -> Plan | None:
    """How keywords are searched; None for other kinds."""
    return kind_of(query.kind).plan(query, stream)


def window_of(query: Query, stream: Stream) -> Window:
    return kind_of(query.kind).window(query, stream)


def moment(result: LiveResult) -> float:
    """When a result is given, in seconds since the epoch; static results come first."""
    result = parsed(result)
    if isinstance(result, Result):
        time = instant_of(result) if result.place is None else result.place.at
    else:
        time = result.start if result.op == "+" else result.end
    return -1.0 if time is None else time


def in_order_of_time(parts: Sequence[list[LiveResult]]) -> list[LiveResult]:
    """The results of several operators, each in order, as one list."""
    found = [part for part in parts if part]
    if len(found) == 1:
        return found[0]
    return sorted((result for part in found for result in part), key=moment)


def read_result(line: bytes) -> LiveResult:
    """A result of any kind from its JSON form; for input that skws wrote itself."""
    shown = orjson.loads(line)
    if "network" in shown:
        return Result.from_dict(shown)
    if "count" in shown:
        from skws.queries.sql import SqlResult  # noqa: PLC0415 - only for SQL

        return SqlResult.from_dict(json.loads(line))  # counts may have more than 64 bits
    return PatternResult.from_dict(shown)


def encoded(line: bytes) -> EncodedResult:
    """As ``read_result``, when it is asked for."""
    return EncodedResult(line, read_result)


def written(result: LiveResult) -> bytes:
    """Inverse of ``read_result``."""
    return result.packed() if isinstance(result, Result) else result.to_json()
