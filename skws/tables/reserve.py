"""Tables behind the live tuples: their rows are taken in when keywords or join values ask for them.

Results are those of tables that are loaded whole. A row without keywords
matters only to who joins it; whoever looks among the live tuples for partners
by a join value has all rows with that value taken in before (``demand``), and
so has seen them all. A row that is taken in later has therefore nobody who
waits for it, in any mesh.

Rows with keywords, which others wait for, are inserted into the meshes as
tuples of the stream are: all of a query's when it begins, or, where there are
many, those that a network can reach from the tuples that come (``carriers.py``,
``reach.py``), before these are inserted. ``demand`` leaves such rows alone: what
it could reach of them beyond that is in no result.

Rows go again once they can be in no result: those without keywords when nobody
refers to them - no waiting partial or live result has them as a member, and
they are next to no tuple that may close a network -, those that are taken in as
they are reached when nothing alive reaches them. They come anew when they are
asked for, or reached. So of the rows that the stream reaches only those stay
that something alive needs, and ROWS_KEPT more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from mesh.columnar.columns import NOTHING, Flags, Ints, distinct
from mesh.columnar.store import Table
from schema.graph import edges
from schema.model import Schema
from skws.blocks import ArrowBlock
from skws.keywords import Matcher
from skws.tables.carriers import Carriers
from skws.tables.index import TableIndex
from skws.tables.joined import Joined
from skws.tables.reach import Numbers, Reach, Tuples

ROWS_KEPT: Final = 1 << 17
"""Rows that are taken in before those that nobody needs are let go; more if there are many live tuples."""
LOOKED_AT: Final = 4
"""Live tuples for each row that has been taken in by then."""


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
        self.reach = Reach(schema, self.tables)
        self.carriers = Carriers(self.tables, self.reach)
        self._take = take
        self._here = {table.relation: np.zeros(table.size, dtype=bool) for table in tables}
        self._taken = Table((NOTHING, NOTHING, NOTHING))  # slot, relation, number of the row
        self._since = self._left = 0  # rows taken in since some were let go, and live tuples then
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
    def crowded(self) -> bool:
        """True if it is time to let rows go: a look at all of them is worth it."""
        return self._since > max(ROWS_KEPT, self._left // LOOKED_AT)

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
        self._taken.columns()[0][:] = moved[~gone]
        self._left = int((slots >= 0).sum())

    def taken(self, *parts: Numbers) -> Taken | None:
        """Rows that are to be taken in; None if all of them are here."""
        return self._new([(self.tables[r], numbers) for part in parts for r, numbers in part.items()])

    def reached(self, tuples: Tuples) -> Numbers:
        """The rows that are taken in as they are reached, and are not here, that tuples reach."""
        return self.reach.from_tuples(tuples, self.carriers.largest, self._absent)

    def seeded(self, matcher: Matcher, size: int) -> Numbers:
        """Those that results of rows alone may have, for a query that begins."""
        if not self.carriers.lazy:
            return {}
        return self.reach.from_rows(self.carriers.seeds(matcher, size), size, self._absent)

    def unreached(self, tuples: Tuples) -> Ints:
        """The slots of rows that are taken in as they are reached, and that none of the tuples reaches."""
        reached = self.reach.from_tuples(tuples, self.carriers.largest, self._present)
        slots, relation, number = self._taken.columns()
        gone = self._waiting()
        for table, numbers in reached.items():
            mine = np.flatnonzero(gone & (relation == table))
            gone[mine] = ~np.isin(number[mine], numbers)
        return slots[gone]

    def others(self) -> Ints:
        """The slots of rows that were taken in otherwise."""
        return self._taken.columns()[0][~self._waiting()]

    def _waiting(self) -> Flags:
        _, relation, number = self._taken.columns()
        found = np.zeros(len(number), dtype=bool)
        for table in self.tables:
            mine = np.flatnonzero(relation == table)
            found[mine] = self.carriers.waiting(table, number[mine])
        return found

    def missed(self, former: Numbers, edge: Ints, values: Ints) -> Numbers:
        """Of some rows those that ``demand`` was asked for by join values, and left alone."""
        found = {}
        for table, numbers in former.items():
            asked = [rows for other, rows in self._partners(edge, values) if other.relation == table]
            if asked:
                found[table] = np.intersect1d(numbers, np.concatenate(asked))
        return found

    def demand(self, edge: Ints, values: Ints) -> None:
        """See to it that rows that edges lead to by join values are among the live tuples.

        Not those that are taken in as they are reached.
        """
        parts = []
        for table, numbers in self._partners(edge, values):
            parts.append((table, numbers[~self.carriers.waiting(table.relation, numbers)]))
        taken = self._new(parts)
        if taken is not None:
            self._take(taken)

    def counted(self, edge: Ints, values: Ints) -> tuple[Flags, Ints]:
        """Which edges lead to rows of indexed tables, and to how many."""
        mine: Flags = self._leads_here[edge]
        counts = np.zeros(len(edge), dtype=np.int64)
        for number in distinct(edge[mine]).tolist():
            asked = edge == number
            counts[asked] = self._by_edge[number][1].counts(values[asked])
        return mine, counts

    def _partners(self, edge: Ints, values: Ints) -> Iterator[tuple[TableIndex, Ints]]:
        mine = np.flatnonzero(self._leads_here[edge])
        edge, values = edge[mine], values[mine]
        for number in distinct(edge).tolist():
            table, joined = self._by_edge[number]
            yield table, joined.partners(distinct(values[edge == number]))

    def _absent(self, table: int, numbers: Ints) -> Flags:
        return ~self._here[table][numbers] & self.carriers.waiting(table, numbers)

    def _present(self, table: int, numbers: Ints) -> Flags:
        return self._here[table][numbers] & self.carriers.waiting(table, numbers)

    def _new(self, parts: Sequence[tuple[TableIndex, Ints]]) -> Taken | None:
        new: list[tuple[TableIndex, Ints]] = []
        for table, numbers in parts:
            here = self._here[table.relation]
            fresh = numbers[~here[numbers]]
            if len(fresh):
                fresh = distinct(fresh)
                here[fresh] = True
                new.append((table, fresh))
        return Taken(new) if new else None
