"""Which keywords a tuple contains: its keyword bitmap (S-KWS paper, Section 4).

Row by row, or on whole Arrow columns, for batch and stream alike. Every
searched column has a table of what its words mean to the query; here they are
put together, with exclusions and with the keywords in relations' names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from schema.model import Row, Schema
from skws.keywords.query import Alternative, KeywordQuery
from skws.keywords.table import Bitmaps, ChunkTable, Column, Numbered

EXCLUDED: Final = -1
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Matcher:
    """The keyword bitmaps of a query's tuples. Pickles as its query and schema."""

    def __init__(self, query: KeywordQuery, schema: Schema) -> None:
        self.query = query
        self.schema = schema
        self._excluded = 1 << len(query.slots)
        tables: dict[Numbered, ChunkTable] = {}
        self._columns = tuple(
            tuple((column, self._table(relation, column, tables)) for column in described.search_columns)
            for relation, described in enumerate(schema.relations)
        )
        self._names = tuple(self._name(described.name, tables) for described in schema.relations)

    def __reduce__(self) -> tuple[type[Matcher], tuple[KeywordQuery, Schema]]:
        return Matcher, (self.query, self.schema)

    def bitmap(self, relation: int, row: Row) -> int:
        """The slots that a row of a relation (its position in the schema) satisfies; -1 if it is excluded."""
        found = self._names[relation]
        for column, table in self._columns[relation]:
            value = row[column]
            if value is not None:
                found |= table.find(value if value.__class__ is str else str(value))
        return EXCLUDED if found & self._excluded else found

    def bitmaps(self, relation: int, columns: Sequence[Column], *, rows: int = 0) -> Bitmaps:
        """The bitmap of each row of an Arrow batch, given the relation's search columns in order.

        ``rows`` is the length of the batch if the relation has no search column.
        """
        if len(columns) != len(self._columns[relation]):
            raise ValueError(f"{len(self._columns[relation])} search columns expected, {len(columns)} given")
        size = len(columns[0]) if columns else rows
        found: Bitmaps = np.full(size, self._names[relation], dtype=np.int16)
        for (_, table), column in zip(self._columns[relation], columns, strict=True):
            table.find_all(column, found)
        found[(found & self._excluded) != 0] = EXCLUDED
        return found

    def searchable(self, relation: int) -> int:
        """The slots that some tuple of the relation could satisfy."""
        found = self._names[relation]
        for _, table in self._columns[relation]:
            found |= table.possible
        return found & (self._excluded - 1)

    def _table(self, relation: int, column: int, tables: dict[Numbered, ChunkTable]) -> ChunkTable:
        """The table for one column; columns that the same alternatives apply to share one."""
        numbered = tuple(
            (bit, alternative)
            for bit, alternative in self._alternatives()
            if alternative.applies(relation, column)
        )
        return tables.setdefault(numbered, ChunkTable(numbered))

    def _alternatives(self) -> list[tuple[int, Alternative]]:
        bits = [(1 << i, slot) for i, slot in enumerate(self.query.slots)]
        bits += [(self._excluded, slot) for slot in self.query.exclusions]
        return [(bit, alternative) for bit, slot in bits for alternative in slot.alternatives]

    def _name(self, name: str, tables: dict[Numbered, ChunkTable]) -> int:
        """The slots that a relation's name matches: unscoped ones; exclusions are about content."""
        if not self.query.match_names:
            return 0
        numbered = tuple(
            (bit, alternative)
            for bit, alternative in self._alternatives()
            if bit != self._excluded and alternative.scope is None
        )
        table = tables.setdefault(numbered, ChunkTable(numbered))
        return table.find(name) | table.find(_CAMEL.sub(" ", name))
