"""Batches of tuples with settled lifespans in, results of standing queries out.

What the columnar engine and Spark's slices share. Live tuples and their index
are there once; queries of one shape share a mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.plan import Plan
from skws.queries.keywords.engine import EXCLUDED
from skws.queries.keywords.join_values import JoinValues
from skws.queries.keywords.meshes import Meshes
from skws.queries.keywords.result_emitter import ResultEmitter
from skws.queries.keywords.tuple_batch import TupleBatch, of_table_rows
from skws.ranking.judging import Scorer
from skws.ranking.scoring import Scoring
from skws.results.directory import TupleDirectory
from skws_mesh.cngen import CNGen
from skws_mesh.columnar import ColumnarMesh, KeywordBitmaps, LiveTuples, Partials, TupleColumns
from skws_mesh.columnar.columns import NOTHING, Flags, Ints
from skws_mesh.columnar.live import InsertedTuples
from skws_purging.sweep import Sweep
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_schema.graph import edges
from skws_schema.model import Row, Schema, sourced
from skws_windows.window import Window, ticks_per_position

if TYPE_CHECKING:
    from skws.index.indexed_tables import Taken
    from skws.queries.keywords.indexed_rows import IndexedRows


class KeywordOperator:
    """Finds the results of queries in tuples that arrive by start, and tells them as events.

    ``accepts_root`` can leave out the results whose root tuple has a row that
    it refuses. ``on_compact`` hears when slots are renumbered. ``on_evict`` flags
    the slots that must stay when rows of tables are let go. ``scorer`` makes what
    gives results their scores.
    """

    def __init__(
        self,
        schema: Schema,
        window: Window,
        accepts_root: Callable[[Row], bool] | None = None,
        on_compact: Callable[[int, Ints], None] = lambda _, __: None,
        on_evict: Callable[[int, Flags], None] = lambda _, __: None,
        scorer: Callable[[Schema, LiveTuples, TupleDirectory], Scorer] = Scoring,
    ) -> None:
        self.live = LiveTuples(schema)
        self._schema = schema
        self.excluded = 0
        self._accepts_root = self._root_filter(accepts_root)
        self._on_compact = on_compact
        self._on_evict = on_evict
        self._meshes = Meshes(self.live, window, self._accepts_root)
        self.queries = self._meshes.queries
        self.matching = KeywordMatching()
        self._values = JoinValues(schema, self.live.key_sets)
        self.known = TupleDirectory(schema, self.live, ticks_per_position(window))
        self._edges = edges(schema)
        self._sweep = Sweep()
        self._scoring = scorer(schema, self.live, self.known)
        self.telling = ResultEmitter(self.queries, self.live, self.known, self._scoring, window, schema)
        self._behind: IndexedRows | None = None

    def open_tables(self) -> list[Partials]:
        """Have the tables with a source of their own behind the live tuples; gives their results.

        To be called before the stream; once is enough. Raises SkwsError.
        """
        if self.has_tables or not sourced(self._schema):
            return []
        # Only for who has such tables: an index needs Arrow.
        from skws.queries.keywords.indexed_rows import IndexedRows  # noqa: PLC0415

        self._behind = IndexedRows(
            self._schema, self.live, self._meshes, self._scoring, self._take_in, self._insert_rows
        )
        self.live.reserve = self._behind.reserve
        found = self._behind.open()
        self.excluded += sum(map(self._behind.count, self.queries))
        return found

    def close(self) -> None:
        """Let go of the tables behind the live tuples; nothing comes in any more.

        Else their many files would stay open until cycles of objects are collected, which is rarely done.
        """
        self._behind = self.live.reserve = None
        self._scoring.tables({})

    @property
    def has_tables(self) -> bool:
        """True if there are tables behind the live tuples."""
        return self._behind is not None

    @property
    def table_rows(self) -> int:
        """Of all tables with a source of their own."""
        return 0 if self._behind is None else len(self._behind.reserve)

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> list[Partials]:
        """Answer a query from now on; gives its results that are alive."""
        matching = KeywordMatching.only(query, plan.matcher)
        bitmaps, first = matching.of(self.known.rows), len(self.live)
        if self._behind is not None:
            self._behind.begin(query, plan, bitmaps)
            bitmaps = bitmaps.followed_by(matching.of(self.known.rows.taken(slice(first, None))), first)
        standing = self._meshes.add(query, plan, generator)
        self.matching.add(query, plan.matcher)
        self._scoring.add(query, plan, self._counted(bitmaps))
        if self._behind is not None:
            self.excluded += self._behind.count(query)
        coded = self._coded(bitmaps)
        return [self._truly_joined(standing.mesh.add(query, coded)), *self._by_automata(query, 0, coded)]

    def remove(self, query: int) -> None:
        """Answer a query no longer."""
        self.matching.remove(query)
        self._scoring.remove(query)
        self._meshes.remove(query)
        self.telling.forget_networks()
        if self._behind is not None:
            self._behind.end(query)

    def carried(self, query: int) -> int:
        """The keywords of a query that live tuples, or rows of tables, contain."""
        of_rows = 0 if self._behind is None else self._behind.carried(query)
        return of_rows | self.queries[query].mesh.carried(query)

    def insert(self, new: TupleBatch, horizon: int = ALWAYS) -> list[Partials]:
        """Add tuples; gives the results that they complete. All later ones begin at ``horizon`` or after."""
        bitmaps = self.matching.of(new.rows) if new.bitmaps is None else new.bitmaps
        keys = self._values.of(new.rows)
        if self._behind is not None:
            self._behind.come_before(new.relation, keys, bitmaps)
        return self._insert(new, keys, bitmaps, horizon)

    def _insert(
        self, new: TupleBatch, keys: Ints, bitmaps: KeywordBitmaps, horizon: int = ALWAYS
    ) -> list[Partials]:
        first, arrived = self._enter(new, keys)
        bitmaps = KeywordBitmaps(bitmaps.tuple + first, bitmaps.query, bitmaps.bitmap)
        self._scoring.arrived(first, new.rows, self._counted(bitmaps))
        bitmaps = self._coded(bitmaps)
        found = [mesh.insert(arrived, mine, horizon) for mesh, mine in self._meshes.labels(bitmaps)]
        for query in self.queries:
            found += self._by_automata(query, first, bitmaps)
        return [self._truly_joined(results) for results in found if len(results)]

    def arrivals(self, removed: Collection[int]) -> TupleBatch:
        """All tuples but those of removed relations and of ``open_tables``, to be inserted elsewhere."""
        tuples = self.live.tuples
        left = [*removed, *(() if self._behind is None else self._behind.reserve.tables)]
        kept = np.flatnonzero(~np.isin(tuples.relation, left))
        kept = kept[np.argsort(tuples.start[kept], kind="stable")]
        place = {slot: at for at, slot in enumerate(kept.tolist())}
        return TupleBatch(
            tuples.relation[kept],
            self.known.rows.taken(kept),
            tuples.start[kept],
            tuples.end[kept],
            self.known.times[kept],
            tuples.place[kept],
            {place[slot]: known for slot, known in self.known.followed.items() if slot in place},
        )

    def _enter(self, new: TupleBatch, keys: Ints) -> tuple[int, InsertedTuples]:
        """Add tuples to the live ones, where no mesh hears of them; gives the slot of the first."""
        self.known.add(new.relation, new.start, new.rows, new.times)
        first = len(self.live)
        for place, followed in new.followed.items():
            self.known.follow(followed, first + place)
        return first, self.live.insert(TupleColumns(new.relation, new.start, new.end, keys, new.place))

    def _take_in(self, taken: Taken) -> None:
        """Rows of tables that nobody waits for."""
        new = self._put(taken)
        self._enter(new, self._values.of(new.rows))

    def _insert_rows(self, taken: Taken) -> list[Partials]:
        """Rows of tables, as tuples of the stream; gives the results that they complete."""
        new = self._put(taken)
        return self._insert(new, self._values.of(new.rows), self.matching.of(new.rows))

    def _put(self, taken: Taken) -> TupleBatch:
        assert self._behind is not None  # noqa: S101 - the rows are its
        self._behind.reserve.put(taken, len(self.live))
        return of_table_rows(taken.blocks, taken.occurrences)

    def _counted(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        """The labels that are counted as they come."""
        return bitmaps if self._behind is None else self._behind.counted(bitmaps)

    def release(self, known: list[StreamTuple]) -> None:
        """Take tuples out, with all partials; they may be inserted again."""
        slots = self.known.release(known)
        self.end(slots, np.full(len(slots), ALWAYS))

    def end(self, slots: Ints, ticks: Ints) -> None:
        """End tuples early."""
        self._scoring.ended(slots, ticks)
        self.live.end(slots, ticks)
        for mesh in self._meshes:
            mesh.end(slots)

    def purge(self, horizon: int) -> None:
        """Drop what ended at or before ``horizon``, as soon as about half of all is dead."""
        entries = self.entries
        crowded = self._behind is not None and self._behind.reserve.crowded
        if crowded or (entries and self._sweep.due(horizon, entries)):
            self.compact(horizon)

    def compact(self, horizon: int) -> None:
        """Drop all that ended at or before ``horizon``, and renumber the rest."""
        self._scoring.forget(horizon)
        dropped = self._leaving(horizon)
        slots = self.live.compact(horizon, dropped)
        for mesh in self._meshes:
            mesh.compact(horizon, slots)
        self.known.compact(slots)
        if self._behind is not None:
            self._behind.reserve.compact(slots)
        if len(dropped):
            self.known.pack()
        for standing in self.queries.values():
            if standing.automata is not None:
                standing.automata.compact(slots)
        self._on_compact(horizon, slots)
        self._sweep.done(horizon, self.entries)

    def _leaving(self, horizon: int) -> Ints:
        """Rows of tables to let go, once there are many; they may come again."""
        if self._behind is None or not self._behind.reserve.crowded:
            return NOTHING
        held = np.zeros(len(self.live), dtype=bool)
        self._on_evict(horizon, held)
        return self._behind.leaving(horizon, held)

    @property
    def meshes(self) -> list[ColumnarMesh]:
        """One for each shape of query."""
        return list(self._meshes)

    @property
    def entries(self) -> int:
        """Live tuples and waiting partials, dead ones not yet purged included."""
        return len(self.live) + sum(mesh.partials for mesh in self._meshes)

    def _by_automata(self, query: int, first: int, bitmaps: KeywordBitmaps) -> Iterator[Partials]:
        """The results of a query's automata for the tuples from slot ``first`` on, given their labels."""
        automata = self.queries[query].automata
        if automata is None:
            return
        mine = bitmaps.query == query
        labels = np.zeros(len(self.live) - first, dtype=np.int64)
        labels[bitmaps.tuple[mine] - first] = bitmaps.bitmap[mine]
        found = automata.insert(first, self.live.tuples, labels, self.known.row)
        if self._accepts_root is not None:
            found = found.taken(self._accepts_root(found.members[:, 0]))
        if len(found):
            yield replace(found, query=np.full(len(found), query, dtype=np.int64))

    def _coded(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        """Labels of live tuples as their meshes know them; those that exclude a tuple are counted."""
        self.excluded += int((self._counted(bitmaps).bitmap == EXCLUDED).sum())
        return self._meshes.coded(bitmaps)

    def _truly_joined(self, results: Partials) -> Partials:
        """Leave out results that only the integers for their join values held for joined."""
        if self._values.all_exact:
            return results
        true = np.array([self._agree(*row) for row in results.rows()], dtype=bool)
        return results if true.all() else results.taken(true)

    def _agree(self, query: int, operator: int, slots: list[int]) -> bool:
        tree = self.queries[query].mesh.network(operator)
        for node in range(1, len(tree.edges)):
            if self._values.exact(tree.edges[node]):
                continue
            edge = self._edges[tree.edges[node]]
            source, target = self.known.row(slots[tree.parents[node]]), self.known.row(slots[node])
            for near, far in zip(edge.source_columns, edge.target_columns, strict=True):
                if source[near] != target[far]:
                    return False
        return True

    def _root_filter(self, accepts: Callable[[Row], bool] | None) -> Callable[[Ints], Flags] | None:
        if accepts is None:
            return None
        return lambda slots: np.array([accepts(self.known.row(s)) for s in slots.tolist()], dtype=bool)
