"""Where keywords stand in results, by the one analysis by which tuples match."""

from __future__ import annotations

from schema.model import Schema
from skws.keywords import KeywordQuery, highlight
from skws.keywords.highlight import Span
from skws.results.model import JsonRow


class KeywordSpans:
    """Where the keywords of one query stand in the rows of its results."""

    def __init__(self, query: KeywordQuery, schema: Schema) -> None:
        self._query = query
        self._schema = schema

    def of(self, relation: str, attribute: str, text: str) -> list[Span]:
        """Spans in the text of an attribute's value."""
        position = self._schema.index[relation]
        column = self._schema.relations[position].columns[attribute]
        return highlight(self._query, self._schema, position, column, text)

    def searched(self, relation: str, row: JsonRow) -> list[str]:
        """The attributes that keywords are looked for in and that are not NULL."""
        return [name for name in self._schema.relation(relation).search if row[name] is not None]
