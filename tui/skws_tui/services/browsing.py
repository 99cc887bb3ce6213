"""Live rows: those of a relation, or those with a join value; and the places to which a row leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from skws.results.names import json_row
from skws.results.result import JsonRow
from skws.sinks.text import value_text
from skws_schema.model import Schema
from skws_tui.services.live_rows import LiveRows

MOST_ROWS: Final = 500
"""The maximum number of rows of a page; the filter finds the others."""


class RowPlace(NamedTuple):
    """Rows of a relation; ``on``: only those with these values, as texts by attribute."""

    relation: str
    on: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        conditions = [f"{self.relation}.{name} = {value}" for name, value in self.on]
        return " and ".join(conditions) or self.relation


class Page(NamedTuple):
    """The first rows of a place that have all words of a filter; ``row_count``: their number.

    ``attributes``: the names of their columns. ``latest``: the number of rows that were examined if there are
    more; 0 if all were.
    """

    rows: Sequence[JsonRow]
    row_count: int
    attributes: Sequence[str]
    latest: int = 0


def page_of(rows: LiveRows, place: RowPlace, words: str) -> Page:
    """The page of a place; empty if the job has no such relation yet, or no longer."""
    search_words = words.casefold().split()
    relation, latest = rows.relation_with_latest(place.relation)
    if relation is None:
        return Page([], 0, [])
    matches = [
        row
        for row in (json_row(relation, values) for values in latest)
        if all(_text(row.get(name)) == value for name, value in place.on) and _has(row, search_words)
    ]
    attributes = [attribute.name for attribute in relation.attributes]
    is_partial = rows.cut or rows.counts().get(place.relation, 0) > len(latest)
    return Page(matches[:MOST_ROWS], len(matches), attributes, len(latest) if is_partial else 0)


def _text(value: str | float | bool | None) -> str | None:
    return None if value is None else value_text(value)


def _has(row: JsonRow, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = " ".join(filter(None, map(_text, row.values()))).casefold()
    return all(word in text for word in words)


def joined_places(schema: Schema, relation: str, row: JsonRow) -> list[RowPlace]:
    """The places to which the joins of a row lead: rows of other relations and of its own, by its values."""
    places: dict[RowPlace, None] = {}
    for position, join in enumerate(schema.joins):
        if position in schema.evolution.removed_joins:
            continue
        pairs = (join.on, tuple((right, left) for left, right in join.on))
        for source, target, on in ((join.left, join.right, pairs[0]), (join.right, join.left, pairs[1])):
            texts = [
                text for text in (_text(row.get(own_column)) for own_column, _ in on) if text is not None
            ]
            if source == relation and len(texts) == len(on):
                for name, names in (
                    (target, [other_column for _, other_column in on]),
                    (source, [own_column for own_column, _ in on]),
                ):
                    places[RowPlace(name, tuple(zip(names, texts, strict=True)))] = None
    return list(places)
