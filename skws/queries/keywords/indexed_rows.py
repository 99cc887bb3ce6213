"""The rows of indexed tables among the live tuples: which are inserted and evicted, and counts of all.

Loaded only if there are such tables, as an index needs Arrow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skws.index.cache import open_tables
from skws.index.indexed_tables import IndexedTables, Taken
from skws.index.reach import Tuples
from skws.keywords.plan import Plan
from skws.queries.keywords.meshes import Meshes
from skws.ranking.judging import Scorer
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_purging.tuples import ALWAYS
from skws_schema.model import Schema


class IndexedRows:
    """The indexed tables behind the live tuples of ``meshes``.

    ``take_in`` puts rows among the live tuples, unseen by meshes; ``insert``
    also inserts them in meshes, and gives the results.
    """

    def __init__(
        self,
        schema: Schema,
        live: LiveTuples,
        meshes: Meshes,
        scoring: Scorer,
        take_in: Callable[[Taken], None],
        insert: Callable[[Taken], list[Partials]],
    ) -> None:
        self._live = live
        self._meshes = meshes
        self._scoring = scoring
        self._take_in = take_in
        self._insert = insert
        self.reserve = IndexedTables(schema, open_tables(schema), take_in)
        self._keyword_rows = self.reserve.keyword_rows
        scoring.tables(self.reserve.tables)

    def open(self) -> list[Partials]:
        """Insert the rows that the queries need; gives the results of rows alone."""
        queries = self._meshes.queries
        rows = [self._keyword_rows.add(query, each.matcher, each.max_size) for query, each in queries.items()]
        found = self._inserted(self.reserve.taken(*rows))
        for standing in queries.values():
            seeded = self.reserve.seeded(standing.matcher, standing.max_size)
            found += self._inserted(self.reserve.taken(seeded))
        return found

    def begin(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        """Insert the rows that a new query needs; ``bitmaps`` are those of live tuples."""
        rows = self._keyword_rows.add(query, plan.matcher, plan.max_size)
        if not self._keyword_rows.lazy:
            taken = self.reserve.taken(rows)
            if taken is not None:
                self._take_in(taken)
            return
        reached = self.reserve.reached(self._around(ALWAYS, bitmaps))
        seeded = self.reserve.seeded(plan.matcher, plan.max_size)
        # For other queries they complete only results of rows alone, which are known.
        self._inserted(self.reserve.taken(rows, reached, seeded))

    def end(self, query: int) -> None:
        """A query was removed: insert the rows held back for it that partial results need."""
        former = self._keyword_rows.remove(query)
        asked = [self._live.joining(*each) for mesh in self._meshes for each in mesh.asking()]
        self._inserted(self.reserve.taken(*(self.reserve.missed(former, *each) for each in asked)))

    def come_before(self, relation: Ints, keys: Ints, bitmaps: KeywordBitmaps) -> None:
        """Insert the rows that new tuples reach; ``bitmaps`` by their number."""
        if self._keyword_rows.lazy:
            carrying = np.zeros(len(relation), dtype=bool)
            carrying[bitmaps.tuple] = True
            reached = self.reserve.reached(Tuples(relation, keys, carrying))
            # They complete only results of rows alone, which are known.
            self._inserted(self.reserve.taken(reached))

    def count(self, query: int) -> int:
        """Count all rows of a query that are inserted when they are reached.

        Gives the number of rows that the query excludes.
        """
        if query not in self._keyword_rows.lazy:
            return 0
        matcher = self._meshes.queries[query].matcher
        if query in self._scoring:
            for relation, rows in self._keyword_rows.with_keywords(matcher):
                self._scoring.count_rows(query, relation, rows)
        return self._keyword_rows.excluded(matcher)

    def counted(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        """The labels of live tuples that ``count`` has not counted."""
        lazy = list(self._keyword_rows.lazy)
        if not lazy:
            return bitmaps
        rows = np.isin(self._live.tuples.relation[bitmaps.tuple], list(self.reserve.tables))
        return bitmaps.taken(~(rows & np.isin(bitmaps.query, lazy)))

    def carried(self, query: int) -> int:
        """The keywords of a query in rows that are inserted when they are reached."""
        if query not in self._keyword_rows.lazy:
            return 0
        return self._keyword_rows.carried(self._meshes.queries[query].matcher)

    def leaving(self, horizon: int, held: Flags) -> Ints:
        """The slots of rows to evict; they may come again.

        Rows ``held``, by slot, stay. Partial results with evicted rows end.
        """
        for mesh in self._meshes:
            mesh.mark_carriers(held, leaving=self._keyword_rows.lazy)
        unreached = self.reserve.unreached(self._around(horizon))
        unreached = unreached[~held[unreached]]
        self._live.end(unreached, np.full(len(unreached), ALWAYS))
        for mesh in self._meshes:
            mesh.end(unreached)
            mesh.mark(horizon, held)
        others = self.reserve.others()
        return np.concatenate([unreached, others[~held[others]]])

    def _inserted(self, taken: Taken | None) -> list[Partials]:
        return [] if taken is None else self._insert(taken)

    def _around(self, horizon: int, bitmaps: KeywordBitmaps | None = None) -> Tuples:
        """The tuples of streams alive after ``horizon``; ``bitmaps``: labels that no mesh has yet."""
        tuples, carrying = self._live.tuples, np.zeros(len(self._live), dtype=bool)
        for mesh in self._meshes:
            mesh.mark_carriers(carrying)
        if bitmaps is not None:
            carrying[bitmaps.tuple] = True
        streaming = ~np.isin(tuples.relation, list(self.reserve.tables))
        around = np.flatnonzero((tuples.end > horizon) & streaming)
        return Tuples(tuples.relation[around], tuples.keys[around], carrying[around])
