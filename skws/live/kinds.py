"""The kinds of standing queries by name. Keyword queries are not among them: they share an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schema.errors import UsageError, nearest
from skws.bounded.guard import refuse_unbounded
from skws.keywords import parse_query
from skws.live.evaluator import Kind
from skws.live.ranked import TOP, TopKind, ranking_of
from skws.live.standing import KEYWORDS, PATTERN, SELECTED, SQL, WINDOWED, Standing
from skws.live.stream import Stream
from skws.plan import Plan


def _windowed() -> Kind:
    from skws.live.windowed import WindowedKind  # noqa: PLC0415 - z3 and more, for who has an expression

    return WindowedKind()


def _pattern() -> Kind:
    from skws.live.pattern import PatternKind  # noqa: PLC0415 - for who asks for a pattern

    return PatternKind()


def _sql() -> Kind:
    from skws.live.sql import SqlKind  # noqa: PLC0415 - the SQL parser takes a while to load

    return SqlKind()


def _selected() -> Kind:
    from skws.live.selected import SelectedKind  # noqa: PLC0415 - for who asks for a pattern

    return SelectedKind()


KINDS: Final[dict[str, Callable[[], Kind]]] = {
    PATTERN: _pattern,
    SELECTED: _selected,
    SQL: _sql,
    TOP: TopKind,
    WINDOWED: _windowed,
}


def kind_of(name: str) -> Kind:
    """The kind of a name. Raises UsageError if there is none."""
    if name not in KINDS:
        known = (KEYWORDS, *KINDS)
        raise UsageError(f"kind of query {name!r}: expected one of {', '.join(known)}{nearest(name, known)}")
    return KINDS[name]()


def keyword_plan(standing: Standing, stream: Stream) -> Plan:
    """What the columnar engine runs for a keyword query. Raises QueryError."""
    query = parse_query(standing.query, stream.schema, match_names=stream.match_names)
    return Plan(
        stream.schema,
        query,
        stream.window,
        standing.max_size,
        ranking=ranking_of(standing.options),
        evaluated_by=stream.evaluator,
    )


def notes(standing: Standing, stream: Stream) -> tuple[str, ...]:
    """What of the keywords of a query that was checked is not searched, a line for each reason."""
    if standing.kind not in (KEYWORDS, TOP, WINDOWED):
        return ()
    return parse_query(standing.query, stream.schema, match_names=stream.match_names).notes


def check(standing: Standing, stream: Stream) -> None:
    """Raises QueryError, PatternError; UsageError, too, if it would need unbounded memory unasked."""
    if standing.kind == KEYWORDS:
        plan = keyword_plan(standing, stream)
        if not stream.force_unbounded:
            refuse_unbounded(plan)
    else:
        kind_of(standing.kind).check(standing, stream)
