"""The best results of each of several queries, told apart by the texts of the queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from schema.model import Schema
from skws.ranking.top import Top, TopChoice, event_time, unknown
from skws.results.model import Result


class Changelog:
    """Replaces the results of some queries by the changes of their best ones; others pass.

    ``choices``: by the text of the query. ``timed``: ticks are microseconds.
    """

    def __init__(self, choices: Mapping[str, TopChoice], schema: Schema, *, timed: bool) -> None:
        self._schema = schema
        self._when = event_time if timed else unknown
        self._tops = {query: self._top(choice) for query, choice in choices.items()}

    def add(self, query: str, choice: TopChoice) -> None:
        """Rank another query from now on."""
        self._tops[query] = self._top(choice)

    def remove(self, query: str) -> None:
        self._tops.pop(query, None)

    def take(self, results: Iterable[Result]) -> Iterator[Result]:
        """Results in order, of any queries. What is found at one instant changes the best ones at once."""
        for _, together in groupby(results, key=lambda result: result.tick):
            by_query: dict[str, list[Result]] = {}
            for result in together:
                by_query.setdefault(result.query, []).append(result)
            for query, found in by_query.items():
                top = self._tops.get(query)
                yield from found if top is None else top.take(found)

    def advance(self, tick: int) -> Iterator[Result]:
        """Time has passed up to a tick."""
        for top in self._tops.values():
            yield from top.advance(tick)

    def _top(self, choice: TopChoice) -> Top:
        return Top(choice, self._schema, self._when)
