"""Plans of keyword queries, with the ranking and the number of best results in their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.operator import QueryPlan
from skws.ranking.rankings import known_ranking
from skws.spec.enums import EvaluatorName
from skws.spec.query_spec import (
    ALLOWED,
    APPEND_ONLY,
    DEFAULT,
    EXPLAIN,
    GROUP,
    HALF_LIFE,
    RANK,
    SCORED,
    SIZE,
    WINDOW,
    Query,
    RankingChoice,
    Stream,
    TopChoice,
)
from skws_mesh.paper import check_networks
from skws_schema.errors import UsageError, nearest, shown
from skws_windows.window import (
    Window,
    parse_duration,
)

_OPTIONS: Final = (*SCORED, SIZE, GROUP, APPEND_ONLY, WINDOW, ALLOWED)


class SearchPlan(QueryPlan):
    """The plan of a query that searches keywords."""

    def __init__(self, query: Query, stream: Stream, search: Plan) -> None:
        super().__init__(query, stream)
        self._search = search

    @property
    def window(self) -> Window:
        return self._search.window

    @property
    def notes(self) -> tuple[str, ...]:
        return self._search.query.notes

    @property
    def search(self) -> Plan:
        return self._search


def ranking_of(options: Mapping[str, str]) -> RankingChoice | None:
    """The ranking in the options of a query; None if there is none. Raises UsageError."""
    if not any(name in options for name in SCORED):
        return None
    length = options.get(HALF_LIFE)
    half_life = None if length is None else parse_duration(length, what="half-life")
    return RankingChoice(known_ranking(options.get(RANK, DEFAULT)), half_life, EXPLAIN in options)


def top_of(options: Mapping[str, str]) -> TopChoice:
    """The number of best results in the options of a query. Raises UsageError."""
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(f"no option {shown(name)} of a query{nearest(name, _OPTIONS)}")
    size = options.get(SIZE, "")
    if not size.isdecimal():
        raise UsageError(f"top {shown(size)}: expected a number above 0")
    return TopChoice(int(size), GROUP in options, APPEND_ONLY in options)


def keyword_plan(
    query: Query,
    stream: Stream,
    window: Window,
    ranking: RankingChoice | None,
    evaluated_by: str = EvaluatorName.AUTO,
) -> Plan:
    """The plan of a keyword search. Raises QueryError; UsageError if a mesh would have too many networks."""
    parsed = parse_query(query.text, stream.schema, match_names=stream.match_names)
    size = query.max_size or stream.max_size
    plan = Plan(
        stream.schema,
        parsed,
        window,
        size,
        ranking=ranking,
        mesh=stream.mesh,
        evaluated_by=evaluated_by,
        updates=stream.updates,
        name=query.name,
    )
    if plan.mesh is not None:
        check_networks(plan.generator(), plan.mesh)
    return plan
