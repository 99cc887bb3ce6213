"""Indexed tables: their rows become live tuples when keywords or join values need them.

The module is loaded only if there are such tables, as an index needs Arrow. Results equal those of tables
that are loaded whole. A row without keywords only matters to tuples that it joins. Before a mesh probes the
live tuples by a join value, all rows with that value are added (``demand``). So no partial result, in any
mesh, waits for a row that is added later.

Partial results do wait for rows with keywords, which are inserted into the meshes like tuples of the stream:
all rows of a query when it begins or, if there are many, those that a network can reach from arriving tuples
(``reach.py``), before these tuples are inserted. ``demand`` skips such rows: the others that it could reach
are in no result.

Rows are removed when they can no longer be in a result. A row without keywords is removed when no waiting
partial or live result has it as a member and it joins no tuple that may complete a network. A row that was
added when it was reached is removed when no live tuple reaches it any more. Both are added again on demand.
So memory contains the rows that live tuples need, and at most ``Sizes.rows_kept`` others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from skws.data.arrow_blocks import ArrowBlock
from skws.index.database import StoredTuples
from skws.index.index_cache import open_tables, stored_tuples
from skws.index.reach import Numbers, Reach, StandingKeywordRows, Tuples
from skws.index.table import JoinIndex, TableIndex
from skws.keywords.match import Matcher
from skws.keywords.plan import Plan
from skws.queries.keywords.meshes import Meshes
from skws.ranking.scoring import Scoring
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials, Table
from skws_purging.lifespans import ALWAYS
from skws_schema.graph import edges
from skws_schema.model import Schema

TUPLES_PER_ROW: Final = 4
"""The number of live tuples per added row at which unneeded rows are removed."""


class AddedRows:
    """Rows to be added to the live tuples, a block for each table, and their occurrences."""

    def __init__(self, parts: Sequence[tuple[TableIndex, Ints]]) -> None:
        self.blocks: list[ArrowBlock] = [index.rows(numbers) for index, numbers in parts]
        self.occurrences: dict[int, int] = {}
        self.numbers = [numbers for _, numbers in parts]
        first = 0
        for index, numbers in parts:
            self.occurrences |= {first + position: n for position, n in index.occurrence(numbers).items()}
            first += len(numbers)


class IndexedTables:
    """The rows of indexed tables; ``add_rows`` adds some to the live tuples."""

    def __init__(
        self,
        schema: Schema,
        tables: Sequence[TableIndex],
        add_rows: Callable[[AddedRows], None],
        keyword_rows: int,
        rows_kept: int,
    ) -> None:
        self.tables = {table.relation: table for table in tables}
        self.reach = Reach(schema, self.tables)
        self.keyword_rows = StandingKeywordRows(self.tables, self.reach, keyword_rows)
        self._add_rows = add_rows
        self._rows_kept = rows_kept
        self._is_live = {table.relation: np.zeros(table.size, dtype=bool) for table in tables}
        self._live_rows = Table((NOTHING, NOTHING, NOTHING))  # slot, relation, number of the row
        self._rows_added = self._tuples_left = 0  # rows added since the last removal, and live tuples then
        all_edges = edges(schema)
        self._by_edge: dict[int, tuple[TableIndex, JoinIndex]] = {
            edge.id: (table, table.join_index(edge.target_columns))
            for edge in all_edges
            if (table := self.tables.get(edge.target)) is not None
        }
        self._leads_to_table: Flags = np.zeros(
            max((edge.id for edge in all_edges), default=0) + 1, dtype=bool
        )
        self._leads_to_table[list(self._by_edge)] = True

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))

    @property
    def crowded(self) -> bool:
        """True if enough rows were added to make a search for unneeded ones worthwhile."""
        return self._rows_added > max(self._rows_kept, self._tuples_left // TUPLES_PER_ROW)

    def put(self, added_rows: AddedRows, first: int) -> None:
        """Note that rows have the slots from ``first`` on."""
        for block, numbers in zip(added_rows.blocks, added_rows.numbers, strict=True):
            slots = np.arange(first, first + len(numbers), dtype=np.int64)
            self._live_rows.append((slots, np.full(len(numbers), block.relation), numbers))
            first += len(numbers)
            self._rows_added += len(numbers)

    def compact(self, slots: Ints) -> None:
        """Note the new slots of tuples; rows with negative slots were removed."""
        if self.crowded:
            self._rows_added = 0
        old_slots, relation, number = self._live_rows.columns()
        new_slots = slots[old_slots]
        is_removed = new_slots < 0
        for table in self.tables:
            self._is_live[table][number[is_removed & (relation == table)]] = False
        self._live_rows.keep(~is_removed)
        self._live_rows.columns()[0][:] = new_slots[~is_removed]
        self._tuples_left = int((slots >= 0).sum())

    def absent_rows(self, *parts: Numbers) -> AddedRows | None:
        """The rows in ``parts`` that are not live yet; None if all are."""
        return self._new_rows([(self.tables[r], numbers) for part in parts for r, numbers in part.items()])

    def reached_rows(self, tuples: Tuples) -> Numbers:
        """The rows that tuples reach, among those that are added when reached and are not live yet."""
        return self.reach.from_tuples(tuples, self.keyword_rows.largest, self._is_absent)

    def seed_rows(self, matcher: Matcher, size: int) -> Numbers:
        """The rows that may be in results of rows alone, for a query that begins."""
        if not self.keyword_rows.lazy:
            return {}
        return self.reach.from_rows(self.keyword_rows.seeds(matcher, size), size, self._is_absent)

    def unreached_slots(self, tuples: Tuples) -> Ints:
        """The slots of rows that were added when they were reached, and that no tuple reaches now."""
        reached_rows = self.reach.from_tuples(tuples, self.keyword_rows.largest, self._is_present)
        slots, relation, number = self._live_rows.columns()
        is_unreached = self._is_waiting()
        for table, numbers in reached_rows.items():
            positions = np.flatnonzero(is_unreached & (relation == table))
            is_unreached[positions] = ~np.isin(number[positions], numbers)
        return slots[is_unreached]

    def other_slots(self) -> Ints:
        """The slots of all other rows."""
        return self._live_rows.columns()[0][~self._is_waiting()]

    def _is_waiting(self) -> Flags:
        _, relation, number = self._live_rows.columns()
        is_waiting = np.zeros(len(number), dtype=bool)
        for table in self.tables:
            positions = np.flatnonzero(relation == table)
            is_waiting[positions] = self.keyword_rows.lazy_flags(table, number[positions])
        return is_waiting

    def missed_rows(self, former_rows: Numbers, edge: Ints, values: Ints) -> Numbers:
        """The rows in ``former_rows`` that ``demand`` skipped for these join values."""
        missed_rows = {}
        for table, numbers in former_rows.items():
            partner_rows = [
                rows
                for partner_table, rows in self._partners(edge, values)
                if partner_table.relation == table
            ]
            if partner_rows:
                missed_rows[table] = np.intersect1d(numbers, np.concatenate(partner_rows))
        return missed_rows

    def demand(self, edge: Ints, values: Ints) -> None:
        """Add the rows to which edges lead by join values to the live tuples.

        Skips rows that are added when they are reached.
        """
        parts = []
        for table, numbers in self._partners(edge, values):
            parts.append((table, numbers[~self.keyword_rows.lazy_flags(table.relation, numbers)]))
        new_rows = self._new_rows(parts)
        if new_rows is not None:
            self._add_rows(new_rows)

    def counted(self, edge: Ints, values: Ints) -> tuple[Flags, Ints]:
        """Which edges lead to rows of indexed tables, and the number of these rows."""
        is_indexed: Flags = self._leads_to_table[edge]
        counts = np.zeros(len(edge), dtype=np.int64)
        for number in distinct(edge[is_indexed]).tolist():
            has_edge = edge == number
            counts[has_edge] = self._by_edge[number][1].counts(values[has_edge])
        return is_indexed, counts

    def _partners(self, edge: Ints, values: Ints) -> Iterator[tuple[TableIndex, Ints]]:
        positions = np.flatnonzero(self._leads_to_table[edge])
        edge, values = edge[positions], values[positions]
        for number in distinct(edge).tolist():
            table, join_index = self._by_edge[number]
            yield table, join_index.partners(distinct(values[edge == number]))

    def _is_absent(self, table: int, numbers: Ints) -> Flags:
        return ~self._is_live[table][numbers] & self.keyword_rows.lazy_flags(table, numbers)

    def _is_present(self, table: int, numbers: Ints) -> Flags:
        return self._is_live[table][numbers] & self.keyword_rows.lazy_flags(table, numbers)

    def _new_rows(self, parts: Sequence[tuple[TableIndex, Ints]]) -> AddedRows | None:
        new_parts: list[tuple[TableIndex, Ints]] = []
        for table, numbers in parts:
            is_live = self._is_live[table.relation]
            new_numbers = numbers[~is_live[numbers]]
            if len(new_numbers):
                new_numbers = distinct(new_numbers)
                is_live[new_numbers] = True
                new_parts.append((table, new_numbers))
        return AddedRows(new_parts) if new_parts else None


class IndexedRows:
    """The indexed tables behind the live tuples of ``meshes``.

    ``take_in`` adds rows to the live tuples, but not to meshes; ``insert`` also inserts them into meshes, and
    returns the results. ``keyword_rows`` and ``rows_kept``: see ``Sizes``.
    """

    def __init__(
        self,
        schema: Schema,
        live: LiveTuples,
        meshes: Meshes,
        scoring: Scoring,
        take_in: Callable[[AddedRows], None],
        insert: Callable[[AddedRows], list[Partials]],
        keyword_rows: int,
        rows_kept: int,
    ) -> None:
        self._schema = schema
        self._live = live
        self._meshes = meshes
        self._scoring = scoring
        self._take_in = take_in
        self._insert = insert
        self.reserve = IndexedTables(schema, open_tables(schema), take_in, keyword_rows, rows_kept)
        self._keyword_rows = self.reserve.keyword_rows
        scoring.tables(self.reserve.tables)

    def open(self) -> list[Partials]:
        """Insert the rows that the queries need; returns the results of rows alone."""
        queries = self._meshes.queries
        rows = [self._keyword_rows.add(query, each.matcher, each.max_size) for query, each in queries.items()]
        partials = self._results_of(self.reserve.absent_rows(*rows))
        for tenant in queries.values():
            seed_rows = self.reserve.seed_rows(tenant.matcher, tenant.max_size)
            partials += self._results_of(self.reserve.absent_rows(seed_rows))
        return partials

    def stored(self) -> StoredTuples:
        """All rows of the tables as tuples, for searches. Raises SourceError."""
        return stored_tuples(self._schema, list(self.reserve.tables.values()))

    def begin(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        """Insert the rows that a new query needs; ``bitmaps`` are those of live tuples."""
        rows = self._keyword_rows.add(query, plan.matcher, plan.max_size)
        if not self._keyword_rows.lazy:
            new_rows = self.reserve.absent_rows(rows)
            if new_rows is not None:
                self._take_in(new_rows)
            return
        reached_rows = self.reserve.reached_rows(self._stream_tuples(ALWAYS, bitmaps))
        seed_rows = self.reserve.seed_rows(plan.matcher, plan.max_size)
        # For other queries these rows only complete results of rows alone, which are known.
        self._results_of(self.reserve.absent_rows(rows, reached_rows, seed_rows))

    def end(self, query: int) -> None:
        """Called when a query is removed: insert the rows held back for it that partial results need."""
        former_rows = self._keyword_rows.remove(query)
        join_values = [
            self._live.edge_values(*each) for mesh in self._meshes.columnar for each in mesh.lookups()
        ]
        self._results_of(
            self.reserve.absent_rows(*(self.reserve.missed_rows(former_rows, *each) for each in join_values))
        )

    def insert_reached(self, relation: Ints, keys: Ints, bitmaps: KeywordBitmaps) -> None:
        """Insert the rows that new tuples reach; ``bitmaps``: by number of the tuple."""
        if self._keyword_rows.lazy:
            has_keywords = np.zeros(len(relation), dtype=bool)
            has_keywords[bitmaps.tuple] = True
            reached_rows = self.reserve.reached_rows(Tuples(relation, keys, has_keywords))
            # These rows only complete results of rows alone, which are known.
            self._results_of(self.reserve.absent_rows(reached_rows))

    def count(self, query: int) -> int:
        """Count all rows of a query that are inserted when they are reached.

        Returns the number of rows that the query excludes.
        """
        if query not in self._keyword_rows.lazy:
            return 0
        matcher = self._meshes.queries[query].matcher
        if query in self._scoring:
            for relation, rows in self._keyword_rows.with_keywords(matcher):
                self._scoring.count_rows(query, relation, rows)
        return self._keyword_rows.excluded_count(matcher)

    def uncounted_labels(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        """The labels of live tuples that ``count`` has not counted."""
        lazy = list(self._keyword_rows.lazy)
        if not lazy:
            return bitmaps
        is_table_row = np.isin(self._live.tuples.relation[bitmaps.tuple], list(self.reserve.tables))
        return bitmaps.take(~(is_table_row & np.isin(bitmaps.query, lazy)))

    def carried(self, query: int) -> int:
        """The keywords of a query in rows that are inserted when they are reached."""
        if query not in self._keyword_rows.lazy:
            return 0
        return self._keyword_rows.present_keywords(self._meshes.queries[query].matcher)

    def evicted_slots(self, horizon: int, must_stay: Flags) -> Ints:
        """The slots of rows to evict; they may be inserted again.

        Rows flagged in ``must_stay``, by slot, stay. Partial results with evicted rows end.
        """
        for mesh in self._meshes.columnar:
            mesh.mark_carriers(must_stay, leaving=self._keyword_rows.lazy)
        unreached_slots = self.reserve.unreached_slots(self._stream_tuples(horizon))
        unreached_slots = unreached_slots[~must_stay[unreached_slots]]
        self._live.end(unreached_slots, np.full(len(unreached_slots), ALWAYS))
        for mesh in self._meshes.columnar:
            mesh.end(unreached_slots)
            mesh.mark(horizon, must_stay)
        other_slots = self.reserve.other_slots()
        return np.concatenate([unreached_slots, other_slots[~must_stay[other_slots]]])

    def _results_of(self, rows: AddedRows | None) -> list[Partials]:
        return [] if rows is None else self._insert(rows)

    def _stream_tuples(self, horizon: int, bitmaps: KeywordBitmaps | None = None) -> Tuples:
        """The tuples of streams alive after ``horizon``; ``bitmaps``: labels that no mesh has yet."""
        tuples, has_keywords = self._live.tuples, np.zeros(len(self._live), dtype=bool)
        for mesh in self._meshes.columnar:
            mesh.mark_carriers(has_keywords)
        if bitmaps is not None:
            has_keywords[bitmaps.tuple] = True
        is_streaming = ~np.isin(tuples.relation, list(self.reserve.tables))
        slots = np.flatnonzero((tuples.end > horizon) & is_streaming)
        return Tuples(tuples.relation[slots], tuples.keys[slots], has_keywords[slots])
