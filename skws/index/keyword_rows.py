"""The rows of tables that carry keywords: whether all of a query's are taken in, or each as it is reached.

Of few rows all are among the live tuples while their query stands. Of many,
those alone that a network of live tuples can reach: the others can be in no
result but one of rows alone, and those are looked for once, when a query
begins (``seeds``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from skws.data.blocks import ArrowBlock
from skws.index.reach import Numbers, Reach
from skws.index.rows import PART
from skws.index.table import ALL, TableIndex
from skws.keywords import EXCLUDED, Matcher
from skws_mesh.columnar.columns import Flags, Ints
from skws_schema.model import Row

FEW: Final = 1 << 17
"""The most rows of one query that are all inserted at its start; these take 40 MB."""


class KeywordRows:
    """The rows with keywords of standing queries in ``tables``, by the queries' numbers."""

    def __init__(self, tables: Mapping[int, TableIndex], reach: Reach) -> None:
        self._tables = tables
        self._reach = reach
        self._sizes: dict[int, int] = {}
        self._lazy: dict[int, Matcher] = {}
        # By row: the number of queries that insert it as it is reached. Other tables take no memory.
        self._waiting: dict[int, npt.NDArray[np.uint16]] = {}

    @property
    def lazy(self) -> frozenset[int]:
        """The queries whose rows are inserted as they are reached."""
        return frozenset(self._lazy)

    @property
    def largest(self) -> int:
        """The nodes of the largest network of a query."""
        return max(self._sizes.values(), default=1)

    def waiting(self, table: int, numbers: Ints) -> Flags:
        """Which rows are inserted as they are reached."""
        counts = self._waiting.get(table)
        found: Flags = np.zeros(len(numbers), dtype=bool) if counts is None else counts[numbers] > 0
        return found

    def add(self, query: int, matcher: Matcher, size: int) -> Numbers:
        """Add a query with networks of at most ``size`` nodes; gives the rows to insert now."""
        self._sizes[query] = size
        if sum(table.bound(matcher) for table in self._tables.values()) <= FEW:
            return {r: np.flatnonzero(table.carrying(matcher)) for r, table in self._tables.items()}
        self._lazy[query] = matcher
        for relation, table in self._tables.items():
            if table.bound(matcher):
                counts = self._waiting.setdefault(relation, np.zeros(table.size, dtype=np.uint16))
                counts += table.carrying(matcher)
        self._reach.want(self._waiting)
        return {}

    def remove(self, query: int) -> Numbers:
        """Remove a query; gives the rows that are no longer inserted as they are reached."""
        del self._sizes[query]
        matcher = self._lazy.pop(query, None)
        former: Numbers = {}
        if matcher is None:
            return former
        for relation, counts in list(self._waiting.items()):
            carrying = self._tables[relation].carrying(matcher)
            np.subtract(counts, carrying, out=counts)
            former[relation] = np.flatnonzero(carrying & (counts == 0))
            if not counts.any():
                del self._waiting[relation]
        self._reach.want(self._waiting)
        return former

    def seeds(self, matcher: Matcher, size: int) -> Numbers:
        """Rows with the rarest keyword: each result of rows alone contains one of them."""
        slots = [1 << slot for slot in range(len(matcher.query.slots))]
        counts = [sum(table.bound(matcher, slot) for table in self._tables.values()) for slot in slots]
        if not all(counts):
            return {}
        rarest = slots[counts.index(min(counts))]
        found = {}
        for relation, table in self._tables.items():
            carrying = table.carrying(matcher, rarest)
            if not self._reach.leads_on(relation, size - 1):  # a row without neighbours needs all keywords
                for slot in slots:
                    if slot != rarest:
                        carrying &= table.carrying(matcher, slot)
            found[relation] = np.flatnonzero(carrying)
        return found

    def carried(self, matcher: Matcher) -> int:
        """The keywords of a query that rows contain; stops early once all are found."""
        found = 0
        for slot in range(len(matcher.query.slots)):
            for _, _, bitmaps in self._bitmaps(matcher, 1 << slot):
                if found >> slot & 1:
                    break
                found |= int(np.bitwise_or.reduce(bitmaps[bitmaps != EXCLUDED], initial=0))
        return found

    def excluded(self, matcher: Matcher) -> int:
        """How many rows take no part in a query."""
        bits = ALL if matcher.torn else matcher.excluding
        return sum(int((bitmaps == EXCLUDED).sum()) for _, _, bitmaps in self._bitmaps(matcher, bits))

    def with_keywords(self, matcher: Matcher) -> Iterator[tuple[int, list[Row]]]:
        """All rows that contain keywords of a query: their relation, and a part of them at a time."""
        for relation, block, bitmaps in self._bitmaps(matcher, ALL):
            yield relation, block.rows(np.flatnonzero(bitmaps > 0))

    def _bitmaps(self, matcher: Matcher, bits: int) -> Iterator[tuple[int, ArrowBlock, Ints]]:
        """The rows that may have some keywords of a query, a part at a time, with the bitmaps of all."""
        for relation, table in self._tables.items():
            numbers = np.flatnonzero(table.carrying(matcher, bits))
            searched = matcher.schema.relations[relation].search_columns
            for first in range(0, len(numbers), PART):
                block = table.rows(numbers[first : first + PART])
                texts = [block.texts(column) for column in searched]
                yield relation, block, matcher.bitmaps(relation, texts, rows=len(block)).astype(np.int64)
