"""What queries mean over a schema: their plans, and where their keywords stand in values."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from schema.model import Schema
from skws.keywords import parse_query
from skws.live.kinds import check
from skws.live.ranked import ranking_of
from skws.live.standing import WINDOW
from skws.plan import Plan
from skws.results.writers.spans import KeywordSpans
from tui.services.asked import read_asked
from tui.services.request import UiRequest
from tui.services.watched import watch_request
from windows.window import parse_window

_REMEMBERED: Final = 256
"""Texts that were found in order: who presses Enter has most often waited for that."""


def plan_of(request: UiRequest, asked: str, schema: Schema) -> Plan:
    """The plan of keywords over ``schema``, that of the run by now. Raises QueryError, UsageError."""
    wanted = read_asked(asked).query()
    query = parse_query(wanted.text, schema, match_names=request.match_names)
    own = wanted.options.get(WINDOW)
    return Plan(
        schema,
        query,
        request.plan_window if own is None else parse_window(own),
        request.max_size,
        request.lateness,
        ranking=ranking_of(wanted.options),
    )


def check_standing(request: UiRequest, asked: str, schema: Schema) -> None:
    """Raises QueryError, PatternError, SchemaError, UsageError if what is asked for cannot stand."""
    wanted = read_asked(asked).query(allow_unbounded_windows=request.allow_unbounded_windows)
    watched = watch_request(request)
    check(watched.standing(asked, wanted), replace(watched.stream, schema=schema))


class Meanings:
    """Remembers them for one schema; any thread may ask."""

    def __init__(self, request: UiRequest, schema: Schema) -> None:
        self._request = request
        self._schema = schema
        self._plans: dict[str, Plan] = {}
        self._spans: dict[str, KeywordSpans] = {}
        self._can_stand = lru_cache(_REMEMBERED)(partial(check_standing, request, schema=schema))

    def plan(self, asked: str) -> Plan:
        """Of keywords, or of the text that results name. Raises QueryError, UsageError."""
        if asked not in self._plans:
            self._plans[asked] = plan_of(self._request, asked, self._schema)
        return self._plans[asked]

    def standing(self, text: str) -> None:
        """As ``check_standing``."""
        self._can_stand(text)

    def spans(self, query: str, relation: str, attribute: str, text: str) -> list[tuple[int, int, int]]:
        """Where the keywords of a query stand in a value; none where the relation is gone."""
        if query not in self._spans:
            self._spans[query] = KeywordSpans(self.plan(query).query, self._schema)
        known = self._schema.index.get(relation)
        if known is None or attribute not in self._schema.relations[known].columns:
            return []
        return self._spans[query].of(relation, attribute, text)
