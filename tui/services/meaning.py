"""What queries mean over a schema: their plans, and where their keywords stand in values."""

from __future__ import annotations

from schema.model import Schema
from skws.keywords import parse_query
from skws.live.kinds import check
from skws.live.standing import KEYWORDS, Standing
from skws.live.stream import Stream
from skws.plan import Plan
from skws.results.writers.spans import KeywordSpans
from tui.services.asked import PATTERN, is_pattern, query_of
from tui.services.request import UiRequest


def plan_of(request: UiRequest, text: str, schema: Schema) -> Plan:
    """The plan of a query over ``schema``, that of the run by now. Raises QueryError."""
    query = parse_query(text, schema, match_names=request.match_names)
    return Plan(schema, query, request.plan_window, request.max_size, request.lateness)


def check_standing(request: UiRequest, asked: str, schema: Schema) -> None:
    """Raises QueryError, PatternError, UsageError if what is asked for cannot stand."""
    kind = PATTERN if is_pattern(asked) else KEYWORDS
    stream = Stream(
        schema,
        request.plan_window,
        request.lateness,
        request.max_size,
        request.match_names,
        request.force_unbounded,
    )
    check(Standing(asked, query_of(asked), request.max_size, kind), stream)


class Meanings:
    """Remembers them for one schema."""

    def __init__(self, request: UiRequest, schema: Schema) -> None:
        self._request = request
        self._schema = schema
        self._plans: dict[str, Plan] = {}
        self._spans: dict[str, KeywordSpans] = {}

    def plan(self, text: str) -> Plan:
        """Raises QueryError."""
        if text not in self._plans:
            self._plans[text] = plan_of(self._request, text, self._schema)
        return self._plans[text]

    def standing(self, text: str) -> None:
        """Raises QueryError, PatternError, UsageError if what is asked for cannot stand."""
        check_standing(self._request, text, self._schema)

    def spans(self, query: str, relation: str, attribute: str, text: str) -> list[tuple[int, int, int]]:
        """Where the keywords of a query stand in a value; none where the relation is gone."""
        if query not in self._spans:
            self._spans[query] = KeywordSpans(self.plan(query).query, self._schema)
        known = self._schema.index.get(relation)
        if known is None or attribute not in self._schema.relations[known].columns:
            return []
        return self._spans[query].of(relation, attribute, text)
