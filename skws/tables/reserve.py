"""Tables behind the live tuples: their rows are taken in when keywords or join values ask for them.

Results are those of tables that are loaded whole. A row without keywords
matters only to who joins it; whoever looks among the live tuples for partners
by a join value has all rows with that value taken in before (``demand``), and
so has seen them all. A row that is taken in later has therefore nobody who
waits for it, in any mesh. Rows with keywords, which others wait for, are
there from the beginning of a query (``carriers``).

For the same reason a row without keywords may go again, once nobody refers to
it: no waiting partial or live result has it as a member, and it is next to no
tuple that may close a network. It comes anew when it is asked for. So of the
rows that the stream reaches only those stay that something alive needs, and
ROWS_KEPT more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from mesh.columnar.columns import NOTHING, Flags, Ints
from mesh.columnar.store import Table
from schema.graph import edges
from schema.model import Schema
from skws.blocks import ArrowBlock
from skws.keywords import Matcher
from skws.tables.index import TableIndex
from skws.tables.joined import Joined

ROWS_KEPT: Final = 1 << 17
"""Rows that are taken in before those that nobody refers to are let go; more where more are referred to."""


class Taken:
    """Rows of tables that are to be taken in, each table's as a block; and their occurrences."""

    def __init__(self, parts: Sequence[tuple[TableIndex, Ints]]) -> None:
        self.blocks: list[ArrowBlock] = [index.rows(numbers) for index, numbers in parts]
        self.occurrences: dict[int, int] = {}
        self.numbers = [numbers for _, numbers in parts]
        first = 0
        for index, numbers in parts:
            self.occurrences |= {first + at: n for at, n in index.occurrence(numbers).items()}
            first += len(numbers)


class TableReserve:
    """The rows of indexed tables; ``take`` puts some among the live tuples."""

    def __init__(self, schema: Schema, tables: Sequence[TableIndex], take: Callable[[Taken], None]) -> None:
        self.tables = {table.relation: table for table in tables}
        self._take = take
        self._here = {table.relation: np.zeros(table.size, dtype=bool) for table in tables}
        self._taken = Table((NOTHING, NOTHING, NOTHING))  # slot, relation, number of the row
        self._since = self._left = 0  # rows taken in since some were let go, and rows that stayed then
        walked = edges(schema)
        self._by_edge: dict[int, tuple[TableIndex, Joined]] = {
            edge.id: (table, table.by(edge.target_columns))
            for edge in walked
            if (table := self.tables.get(edge.target)) is not None
        }
        self._leads_here: Flags = np.zeros(max((edge.id for edge in walked), default=0) + 1, dtype=bool)
        self._leads_here[list(self._by_edge)] = True

    def __len__(self) -> int:
        """Rows of all tables."""
        return sum(map(len, self.tables.values()))

    @property
    def slots(self) -> Ints:
        """Where the rows are that were taken in."""
        return self._taken.columns()[0]

    @property
    def crowded(self) -> bool:
        """True if it is time to let rows go: a look at all of them is worth it."""
        return self._since > max(ROWS_KEPT, self._left // 4)

    def put(self, taken: Taken, first: int) -> None:
        """Rows have got the slots from ``first`` on."""
        for block, numbers in zip(taken.blocks, taken.numbers, strict=True):
            slots = np.arange(first, first + len(numbers), dtype=np.int64)
            self._taken.append((slots, np.full(len(numbers), block.relation), numbers))
            first += len(numbers)
            self._since += len(numbers)

    def compact(self, slots: Ints) -> None:
        """Tuples have got new slots; rows whose number is negative are gone, till they are asked for."""
        if self.crowded:
            self._since = 0
        old, relation, number = self._taken.columns()
        moved = slots[old]
        gone = moved < 0
        for table in self.tables:
            self._here[table][number[gone & (relation == table)]] = False
        self._taken.keep(~gone)
        self.slots[:] = moved[~gone]
        self._left = self._taken.size

    def carriers(self, matcher: Matcher) -> Taken | None:
        """The rows that a query's keywords are in, or that it excludes; those that are not here yet."""
        return self._new([(table, table.carrying(matcher)) for table in self.tables.values()])

    def demand(self, edge: Ints, values: Ints) -> None:
        """See to it that all rows that edges lead to by join values are among the live tuples."""
        mine = np.flatnonzero(self._leads_here[edge])
        if not len(mine):
            return
        edge, values = edge[mine], values[mine]
        parts = []
        for number in np.unique(edge).tolist():
            table, joined = self._by_edge[number]
            parts.append((table, joined.partners(np.unique(values[edge == number]))))
        taken = self._new(parts)
        if taken is not None:
            self._take(taken)

    def counted(self, edge: Ints, values: Ints) -> tuple[Flags, Ints]:
        """Which edges lead to rows of indexed tables, and to how many."""
        mine: Flags = self._leads_here[edge]
        counts = np.zeros(len(edge), dtype=np.int64)
        for number in np.unique(edge[mine]).tolist():
            asked = edge == number
            counts[asked] = self._by_edge[number][1].counts(values[asked])
        return mine, counts

    def _new(self, parts: Sequence[tuple[TableIndex, Ints]]) -> Taken | None:
        new: list[tuple[TableIndex, Ints]] = []
        for table, numbers in parts:
            here = self._here[table.relation]
            fresh = numbers[~here[numbers]]
            if len(fresh):
                fresh = np.unique(fresh)
                here[fresh] = True
                new.append((table, fresh))
        return Taken(new) if new else None
