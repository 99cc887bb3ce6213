"""Computes the keyword bitmap of a tuple: the keywords that it contains (S-KWS paper, Section 4).

Row by row, or on whole columns, for batch and stream alike. Every
searched column has a table of what its words mean to the query; here they are
put together, with exclusions and with the keywords in relations' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np

from skws.data.blocks import Block
from skws.data.texts import Column
from skws.keywords.conditions import satisfied, satisfying
from skws.keywords.query import Alternative, Condition, KeywordQuery
from skws.keywords.table import Bitmaps, ChunkTable, Numbered
from skws_schema.model import Analyzer, Row, Schema

EXCLUDED: Final = -1
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def torn(query: KeywordQuery) -> frozenset[int]:
    """The bitmaps with keywords of which some come before others: no tuple comes before itself."""
    if not query.sequence:
        return frozenset()
    return frozenset(found for found in range(1 << len(query.slots)) if not query.sequence.allows(found))


class Matcher:
    """The keyword bitmaps of a query's tuples. Pickles as its query and schema.

    Excluded are also tuples with keywords that are to come one after the other.
    """

    def __init__(self, query: KeywordQuery, schema: Schema) -> None:
        self.query = query
        self.schema = schema
        self._excluded = 1 << len(query.slots)
        self._torn = torn(query)
        # Columns with the same alternatives share a table and its memory.
        table = cache(ChunkTable)
        self._columns = tuple(
            tuple(
                (column, table(self._numbered(relation, column), described.attributes[column].analyzer))
                for column in described.search_columns
            )
            for relation, described in enumerate(schema.relations)
        )
        self._conditions = tuple(
            tuple(
                (bit, each)
                for bit, each in self.alternatives()
                if isinstance(each, Condition) and each.relation == relation
            )
            for relation in range(len(schema.relations))
        )
        names = table(self._unscoped() if query.match_names else (), Analyzer.ENGLISH)
        self._names = tuple(
            0
            if relation in query.without
            else names.find(described.name) | names.find(_CAMEL.sub(" ", described.name))
            for relation, described in enumerate(schema.relations)
        )

    def __reduce__(self) -> tuple[type[Matcher], tuple[KeywordQuery, Schema]]:
        return Matcher, (self.query, self.schema)

    def bitmap(self, relation: int, row: Row) -> int:
        """The slots that a row of a relation (its position in the schema) satisfies; -1 if it is excluded."""
        found = self._names[relation]
        for column, table in self._columns[relation]:
            value = row[column]
            if value is not None:
                found |= table.find(value if value.__class__ is str else str(value))
        for bit, condition in self._conditions[relation]:
            if satisfied(condition, row):
                found |= bit
        return EXCLUDED if found & self._excluded or found in self._torn else found

    def bitmaps(self, relation: int, columns: Sequence[Column], *, rows: int = 0) -> Bitmaps:
        """The bitmap of each row, given the relation's search columns in order.

        ``rows`` is the number of rows if the relation has no search column.
        Raises ValueError if the query has conditions on other columns of the relation.
        """
        if self._conditions[relation]:
            raise ValueError("a query with conditions needs whole rows")
        return self._settled(self._of_texts([(relation, columns, rows)]))[0]

    def bitmaps_of(self, blocks: Sequence[Block]) -> list[Bitmaps]:
        """The bitmap of each row of some blocks; columns that mean the same are searched as one."""
        searched = [self.schema.relations[block.relation].search_columns for block in blocks]
        parts = [
            (block.relation, [block.texts(column) for column in columns], len(block))
            for block, columns in zip(blocks, searched, strict=True)
        ]
        found = self._of_texts(parts)
        for block, bitmaps in zip(blocks, found, strict=True):
            for bit, condition in self._conditions[block.relation]:
                bitmaps[satisfying(condition, block)] |= bit
        return self._settled(found)

    def _of_texts(self, batches: Sequence[tuple[int, Sequence[Column], int]]) -> list[Bitmaps]:
        by_table: dict[int, tuple[ChunkTable, list[tuple[Column, Bitmaps]]]] = {}
        found = []
        for relation, columns, rows in batches:
            tables = self._columns[relation]
            if len(columns) != len(tables):
                raise ValueError(f"{len(tables)} search columns expected, {len(columns)} given")
            bitmaps: Bitmaps = np.full(len(columns[0]) if columns else rows, self._names[relation], np.int16)
            found.append(bitmaps)
            for (_, table), column in zip(tables, columns, strict=True):
                by_table.setdefault(id(table), (table, []))[1].append((column, bitmaps))
        for table, parts in by_table.values():
            table.find_in(parts)
        return found

    def _settled(self, found: list[Bitmaps]) -> list[Bitmaps]:
        """The bitmaps with those that exclude a tuple in one form."""
        for bitmaps in found:
            bitmaps[(bitmaps & self._excluded) != 0] = EXCLUDED
            if self._torn:
                bitmaps[np.isin(bitmaps, list(self._torn))] = EXCLUDED
        return found

    def searchable(self, relation: int) -> int:
        """The slots that some tuple of the relation could satisfy."""
        found = self._names[relation]
        for _, table in self._columns[relation]:
            found |= table.possible
        for bit, _ in self._conditions[relation]:
            found |= bit
        return found & (self._excluded - 1)

    def _numbered(self, relation: int, column: int) -> Numbered:
        """What values of one column can satisfy."""
        return tuple(pair for pair in self.alternatives() if pair[1].applies(relation, column))

    def _unscoped(self) -> Numbered:
        """What the names of relations can satisfy; exclusions are about content."""
        return tuple(
            (bit, alternative)
            for bit, alternative in self.alternatives()
            if bit != self._excluded
            and alternative.scope is None
            and alternative.analyzer is Analyzer.ENGLISH
        )

    @property
    def excluding(self) -> int:
        """The bit that exclusions set."""
        return self._excluded

    @property
    def torn(self) -> frozenset[int]:
        """The bitmaps that exclude a tuple because of the order of keywords."""
        return self._torn

    def named(self, relation: int) -> int:
        """What the relation's name satisfies."""
        return self._names[relation]

    def alternatives(self) -> Iterator[tuple[int, Alternative]]:
        """All that texts and values can satisfy, each with the bit it sets."""
        bits = [(1 << i, slot) for i, slot in enumerate(self.query.slots)]
        bits += [(self._excluded, slot) for slot in self.query.exclusions]
        return ((bit, alternative) for bit, slot in bits for alternative in slot.alternatives)
