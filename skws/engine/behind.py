"""The rows of indexed tables among a finder's live tuples: which come and go, and what is counted of all.

Loaded only for who has such tables, as an index needs Arrow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mesh.columnar import Labelled, LiveTuples, Partials
from mesh.columnar.columns import Flags, Ints
from schema.model import Schema
from skws.engine.meshes import Meshes
from skws.plan import Plan
from skws.ranking.judging import Scorer
from skws.tables.cache import open_tables
from skws.tables.reach import Tuples
from skws.tables.reserve import TableReserve, Taken
from windows.tuples import ALWAYS


class RowsBehind:
    """The reserve behind the live tuples, for the queries of ``meshes``.

    ``take_in`` puts rows of which no mesh hears among the live tuples;
    ``insert`` has meshes hear of them, and gives what they find.
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
        self.reserve = TableReserve(schema, open_tables(schema), take_in)
        self._carriers = self.reserve.carriers
        scoring.tables(self.reserve.tables)

    def open(self) -> list[Partials]:
        """Take in what the queries there need; gives the results of rows alone."""
        queries = self._meshes.queries
        carriers = [self._carriers.add(query, each.matcher, each.max_size) for query, each in queries.items()]
        found = self._inserted(self.reserve.taken(*carriers))
        for standing in queries.values():
            seeded = self.reserve.seeded(standing.matcher, standing.max_size)
            found += self._inserted(self.reserve.taken(seeded))
        return found

    def begin(self, query: int, plan: Plan, labelled: Labelled) -> None:
        """Take in what a query needs that the meshes are told of next; ``labelled`` are the live tuples."""
        rows = self._carriers.add(query, plan.matcher, plan.max_size)
        if not self._carriers.lazy:
            taken = self.reserve.taken(rows)
            if taken is not None:
                self._take_in(taken)
            return
        reached = self.reserve.reached(self._around(ALWAYS, labelled))
        seeded = self.reserve.seeded(plan.matcher, plan.max_size)
        # Of other queries they complete nothing but results of rows alone, which are known.
        self._inserted(self.reserve.taken(rows, reached, seeded))

    def end(self, query: int) -> None:
        """A query stands no longer: rows that were held back for it come to who has looked for them."""
        former = self._carriers.remove(query)
        asked = [self._live.joining(*each) for mesh in self._meshes for each in mesh.asking()]
        self._inserted(self.reserve.taken(*(self.reserve.missed(former, *each) for each in asked)))

    def come_before(self, relation: Ints, keys: Ints, labelled: Labelled) -> None:
        """Take in what tuples reach that are about to be inserted; ``labelled`` by their number."""
        if self._carriers.lazy:
            carrying = np.zeros(len(relation), dtype=bool)
            carrying[labelled.tuple] = True
            reached = self.reserve.reached(Tuples(relation, keys, carrying))
            # These complete nothing but results of rows alone, which are known.
            self._inserted(self.reserve.taken(reached))

    def count(self, query: int) -> int:
        """Count the rows of a query that are taken in as they are reached, all at once.

        Gives how many take no part in it.
        """
        if query not in self._carriers.lazy:
            return 0
        matcher = self._meshes.queries[query].matcher
        if query in self._scoring:
            for relation, rows in self._carriers.with_keywords(matcher):
                self._scoring.count_rows(query, relation, rows)
        return self._carriers.excluded(matcher)

    def counted(self, labelled: Labelled) -> Labelled:
        """The labels of live tuples without those that ``count`` has counted."""
        lazy = list(self._carriers.lazy)
        if not lazy:
            return labelled
        rows = np.isin(self._live.tuples.relation[labelled.tuple], list(self.reserve.tables))
        return labelled.taken(~(rows & np.isin(labelled.query, lazy)))

    def carried(self, query: int) -> int:
        """The keywords of a query that rows contain which are taken in as they are reached."""
        if query not in self._carriers.lazy:
            return 0
        return self._carriers.carried(self._meshes.queries[query].matcher)

    def leaving(self, horizon: int, held: Flags) -> Ints:
        """The slots of rows to let go, now that there are many; they may come again.

        Those ``held``, by slot, stay. Partials with rows that leave end.
        """
        for mesh in self._meshes:
            mesh.mark_carriers(held, leaving=self._carriers.lazy)
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

    def _around(self, horizon: int, labelled: Labelled | None = None) -> Tuples:
        """The tuples of streams that are alive after ``horizon``, with labels that no mesh knows yet."""
        tuples, carrying = self._live.tuples, np.zeros(len(self._live), dtype=bool)
        for mesh in self._meshes:
            mesh.mark_carriers(carrying)
        if labelled is not None:
            carrying[labelled.tuple] = True
        streaming = ~np.isin(tuples.relation, list(self.reserve.tables))
        around = np.flatnonzero((tuples.end > horizon) & streaming)
        return Tuples(tuples.relation[around], tuples.keys[around], carrying[around])
