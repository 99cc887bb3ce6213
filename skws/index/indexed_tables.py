"""Indexed tables: their rows become live tuples when keywords or join values need them.

Results equal those of tables loaded whole. A row without keywords only matters to
tuples that it joins. Before a mesh probes the live tuples by a join
value, all rows with that value are added (``demand``). So no partial result, in
any mesh, waits for a row that is added later.

Rows with keywords, which partial results wait for, are inserted into the meshes
as tuples of the stream are: all rows of a query when it begins or, if there are
many, those that a network can reach from arriving tuples (``reach.py``), before
these tuples are inserted. ``demand`` skips such rows: any others that it could
reach are in no result.

Rows are removed once they can be in no result. A row without keywords is
removed when no waiting partial or live result has it as a member and it joins
no tuple that may complete a network; a row that was added as it was reached,
when no live tuple reaches it any more. Both are added again on demand. So
memory holds the rows that live tuples need, and ROWS_KEPT more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from skws.data.blocks import ArrowBlock
from skws.index.reach import KeywordRows, Numbers, Reach, Tuples
from skws.index.table import Joined, TableIndex
from skws.keywords.match import Matcher
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct
from skws_mesh.columnar.store import Table
from skws_schema.graph import edges
from skws_schema.model import Schema

ROWS_KEPT: Final = 1 << 17
"""Rows added before unneeded ones are removed; more if there are many live tuples."""
LOOKED_AT: Final = 4
"""Live tuples for each row that has been added by then."""


class Taken:
    """Rows to be added to the live tuples, a block for each table, and their occurrences."""

    def __init__(self, parts: Sequence[tuple[TableIndex, Ints]]) -> None:
        self.blocks: list[ArrowBlock] = [index.rows(numbers) for index, numbers in parts]
        self.occurrences: dict[int, int] = {}
        self.numbers = [numbers for _, numbers in parts]
        first = 0
        for index, numbers in parts:
            self.occurrences |= {first + at: n for at, n in index.occurrence(numbers).items()}
            first += len(numbers)


class IndexedTables:
    """The rows of indexed tables; ``take`` adds some to the live tuples."""

    def __init__(self, schema: Schema, tables: Sequence[TableIndex], take: Callable[[Taken], None]) -> None:
        self.tables = {table.relation: table for table in tables}
        self.reach = Reach(schema, self.tables)
        self.keyword_rows = KeywordRows(self.tables, self.reach)
        self._take = take
        self._here = {table.relation: np.zeros(table.size, dtype=bool) for table in tables}
        self._taken = Table((NOTHING, NOTHING, NOTHING))  # slot, relation, number of the row
        self._since = self._left = 0  # rows added since the last removal, and live tuples then
        walked = edges(schema)
        self._by_edge: dict[int, tuple[TableIndex, Joined]] = {
            edge.id: (table, table.by(edge.target_columns))
            for edge in walked
            if (table := self.tables.get(edge.target)) is not None
        }
        self._leads_here: Flags = np.zeros(max((edge.id for edge in walked), default=0) + 1, dtype=bool)
        self._leads_here[list(self._by_edge)] = True

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))

    @property
    def crowded(self) -> bool:
        """True if so many rows were added that a search for unneeded ones pays."""
        return self._since > max(ROWS_KEPT, self._left // LOOKED_AT)

    def put(self, taken: Taken, first: int) -> None:
        """Note that rows have the slots from ``first`` on."""
        for block, numbers in zip(taken.blocks, taken.numbers, strict=True):
            slots = np.arange(first, first + len(numbers), dtype=np.int64)
            self._taken.append((slots, np.full(len(numbers), block.relation), numbers))
            first += len(numbers)
            self._since += len(numbers)

    def compact(self, slots: Ints) -> None:
        """Tuples have new slots; rows with a negative one were removed."""
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
        """The rows among some that are not live yet; None if all are."""
        return self._new([(self.tables[r], numbers) for part in parts for r, numbers in part.items()])

    def reached(self, tuples: Tuples) -> Numbers:
        """The rows that tuples reach, of those that are added as they are reached and are not live yet."""
        return self.reach.from_tuples(tuples, self.keyword_rows.largest, self._absent)

    def seeded(self, matcher: Matcher, size: int) -> Numbers:
        """Those that may be in results of rows alone, for a query that begins."""
        if not self.keyword_rows.lazy:
            return {}
        return self.reach.from_rows(self.keyword_rows.seeds(matcher, size), size, self._absent)

    def unreached(self, tuples: Tuples) -> Ints:
        """The slots of rows that were added as they were reached, and that no tuple reaches now."""
        reached = self.reach.from_tuples(tuples, self.keyword_rows.largest, self._present)
        slots, relation, number = self._taken.columns()
        gone = self._waiting()
        for table, numbers in reached.items():
            mine = np.flatnonzero(gone & (relation == table))
            gone[mine] = ~np.isin(number[mine], numbers)
        return slots[gone]

    def others(self) -> Ints:
        """The slots of all other rows."""
        return self._taken.columns()[0][~self._waiting()]

    def _waiting(self) -> Flags:
        _, relation, number = self._taken.columns()
        found = np.zeros(len(number), dtype=bool)
        for table in self.tables:
            mine = np.flatnonzero(relation == table)
            found[mine] = self.keyword_rows.waiting(table, number[mine])
        return found

    def missed(self, former: Numbers, edge: Ints, values: Ints) -> Numbers:
        """The rows among some that ``demand`` skipped for these join values."""
        found = {}
        for table, numbers in former.items():
            asked = [rows for other, rows in self._partners(edge, values) if other.relation == table]
            if asked:
                found[table] = np.intersect1d(numbers, np.concatenate(asked))
        return found

    def demand(self, edge: Ints, values: Ints) -> None:
        """Add the rows that edges lead to by join values to the live tuples.

        Skips rows that are added as they are reached.
        """
        parts = []
        for table, numbers in self._partners(edge, values):
            parts.append((table, numbers[~self.keyword_rows.waiting(table.relation, numbers)]))
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
        return ~self._here[table][numbers] & self.keyword_rows.waiting(table, numbers)

    def _present(self, table: int, numbers: Ints) -> Flags:
        return self._here[table][numbers] & self.keyword_rows.waiting(table, numbers)

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
