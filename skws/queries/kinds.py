"""The kinds of queries by name, each loaded on first use; and the order of results of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from skws.extras import KINDS as ADDED
from skws.extras import extension
from skws.queries.operator import SHARED, Key, LiveOperator, QueryPlan, StreamState
from skws.results.result import LiveResult, Result, instant_of
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, PATTERN, SQL, TOP, WINDOWED, Query, Stream
from skws_schema.errors import UsageError, nearest, shown

Kind: TypeAlias = Callable[[Query, Stream], QueryPlan]
"""Plans a query of one kind: a subclass of ``QueryPlan``."""


def _keywords() -> Kind:
    from skws.queries.keywords.kind import KeywordPlan  # noqa: PLC0415 - loads the mesh, for keywords only

    return KeywordPlan


def _top() -> Kind:
    from skws.queries.keywords.top_queries import TopPlan  # noqa: PLC0415 - as above

    return TopPlan


def _windowed() -> Kind:
    from skws.queries.windowed.windowed_kind import WindowedPlan  # noqa: PLC0415 - z3, only for window expressions

    return WindowedPlan


def _pattern() -> Kind:
    from skws.queries.patterns.pattern_kind import PatternPlan  # noqa: PLC0415 - only for patterns

    return PatternPlan


def _sql() -> Kind:
    from skws.queries.sql import SqlPlan  # noqa: PLC0415 - as above

    return SqlPlan


KINDS: Final[dict[str, Callable[[], Kind]]] = {
    KEYWORDS: _keywords,
    PATTERN: _pattern,
    SQL: _sql,
    TOP: _top,
    WINDOWED: _windowed,
}


def kind_of(name: str) -> Kind:
    """The kind with a name, from skws or another package. Raises UsageError if there is none."""
    if name in KINDS:
        return KINDS[name]()
    kind: Kind | None = extension(ADDED, name)
    if kind is None:
        raise UsageError(
            f"kind of query {shown(name)}: expected one of {', '.join(KINDS)}{nearest(name, KINDS)}"
        )
    return kind


def live_tuples(state: StreamState) -> tuple[Key, LiveOperator]:
    """The operator that holds the live tuples of a stream, and its key: kind and group."""
    from skws.queries.keywords.kind import LiveKeywords  # noqa: PLC0415 - loads the mesh

    return (KEYWORDS, SHARED), LiveKeywords(state)


def plan_of(query: Query, stream: Stream) -> QueryPlan:
    """The query, checked and bound to a stream. Raises QueryError, PatternError, UsageError."""
    return kind_of(query.kind)(query, stream)


def plans_over(queries: Iterable[Query], stream: Stream) -> list[QueryPlan]:
    """As ``plan_of``, for several queries."""
    queries = list(queries)
    kinds = {name: kind_of(name) for name in {query.kind for query in queries}}
    return [kinds[query.kind](query, stream) for query in queries]


def plans_of(job: Job) -> dict[str, QueryPlan]:
    """The plans of a job's queries by name. Raises QueryError, PatternError, UsageError."""
    queries = job.named()
    return dict(zip(queries, plans_over(queries.values(), job.stream), strict=True))


def moment(result: LiveResult) -> float:
    """The time at which a result is emitted, in seconds since the epoch; static results come first."""
    parsed = result.parsed
    time = instant_of(parsed) if parsed.place is None else parsed.place.at
    return -1.0 if time is None else time


def in_order_of_time(parts: Sequence[list[Result]]) -> list[Result]:
    """The results of several operators, each in order, as one list."""
    nonempty = [part for part in parts if part]
    if len(nonempty) == 1:
        return nonempty[0]
    return sorted((result for part in nonempty for result in part), key=moment)
