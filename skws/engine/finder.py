"""Batches of tuples with settled lifespans in, results of standing queries out.

What the columnar engine and Spark's slices share. Live tuples and their index
are there once; queries of one shape share a mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mesh.columnar import ColumnarMesh, Labelled, LiveTuples, Partials, TupleColumns
from mesh.columnar.columns import Flags, Ints
from mesh.columnar.live import Arrived
from mesh.columnar.store import NO_MEMBER
from mesh.generate import CNGen
from mesh.tree import Tree
from purging.sweep import Sweep
from schema.graph import edges
from schema.model import Row, Schema, sourced
from skws.engine.arrivals import Arrivals, natural_ends, of_table_rows
from skws.engine.engine import EXCLUDED
from skws.engine.events import COMPLETED, Event, retracted
from skws.engine.join_values import JoinValues
from skws.engine.known import KnownTuples
from skws.engine.labelling import Labelling
from skws.plan import Plan
from skws.ranking.scoring import Judged, Scoring
from skws.results.assemble import Assembler, Reading
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, Window, by_position

if TYPE_CHECKING:
    from skws.engine.automata import NetworkAutomata
    from skws.keywords import Matcher
    from skws.tables.reserve import TableReserve, Taken


class Standing(NamedTuple):
    """A query that is being answered."""

    mesh: ColumnarMesh
    assembler: Assembler
    automata: NetworkAutomata | None
    matcher: Matcher


class Finder:
    """Finds the results of queries in tuples that arrive by start, and tells them as events.

    ``accepts_root`` can leave out the results whose root tuple has a row that
    it refuses. ``on_compact`` hears when slots are renumbered.
    """

    def __init__(
        self,
        schema: Schema,
        window: Window,
        accepts_root: Callable[[Row], bool] | None = None,
        on_compact: Callable[[int, Ints], None] = lambda _, __: None,
    ) -> None:
        self.live = LiveTuples(schema)
        self._schema = schema
        self.queries: dict[int, Standing] = {}
        self.excluded = 0
        self._window = window
        self._accepts_root = self._root_filter(accepts_root)
        self._on_compact = on_compact
        self._meshes: dict[object, ColumnarMesh] = {}
        self._labelling = Labelling()
        self._values = JoinValues(schema, self.live.key_sets)
        self.known = KnownTuples(schema, self.live, by_count=by_position(window))
        self._edges = edges(schema)
        self._sweep = Sweep()
        self._scoring = Scoring(schema, self.live, self.known)
        self._reserve: TableReserve | None = None

    def open_tables(self) -> list[Partials]:
        """Have the tables with a source of their own behind the live tuples; gives their results.

        To be called before the stream; once is enough. Raises SkwsError.
        """
        if self.has_tables or not sourced(self._schema):
            return []
        # Only for who has such tables: an index needs Arrow.
        from skws.tables.cache import open_tables  # noqa: PLC0415
        from skws.tables.reserve import TableReserve  # noqa: PLC0415

        reserve = TableReserve(self._schema, open_tables(self._schema), self._take_in)
        self._reserve = self.live.reserve = reserve
        self._scoring.tables(reserve.tables)
        found = []
        for standing in self.queries.values():
            carriers = reserve.carriers(standing.matcher)
            found += [] if carriers is None else self.insert(_arrivals(carriers))
        return found

    @property
    def has_tables(self) -> bool:
        """True if there are tables behind the live tuples."""
        return self._reserve is not None

    @property
    def table_rows(self) -> int:
        """Of all tables with a source of their own."""
        return 0 if self._reserve is None else len(self._reserve)

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> list[Partials]:
        """Answer a query from now on; gives its results that are alive."""
        carriers = None if self._reserve is None else self._reserve.carriers(plan.matcher)
        if carriers is not None:
            self._take_in(carriers)
        generator = generator or plan.generator()
        mesh, automata = self._mesh_of(generator), None
        if plan.by_automata:
            mesh, automata = self._split(plan, generator)
        self.queries[query] = Standing(mesh, Assembler(plan), automata, plan.matcher)
        labelled = Labelling.only(query, plan.matcher).of(self.known.rows)
        self._labelling.add(query, plan.matcher)
        self._scoring.add(query, plan, labelled)
        coded = self._coded(labelled)
        return [self._truly_joined(mesh.add(query, coded)), *self._by_automata(query, 0, coded)]

    def remove(self, query: int) -> None:
        """Answer a query no longer."""
        mesh = self.queries.pop(query).mesh
        self._labelling.remove(query)
        self._scoring.remove(query)
        mesh.remove(query)
        if not any(standing.mesh is mesh for standing in self.queries.values()):
            self._meshes = {shape: other for shape, other in self._meshes.items() if other is not mesh}

    def insert(self, new: Arrivals) -> list[Partials]:
        """Add tuples; gives the results that they complete."""
        labelled = self._labelling.of(new.rows) if new.labelled is None else new.labelled
        first, arrived = self._enter(new)
        labelled = Labelled(labelled.tuple + first, labelled.query, labelled.label)
        self._scoring.arrived(first, new.rows, labelled)
        labelled = self._coded(labelled)
        found = [mesh.insert(arrived, mine) for mesh, mine in self._by_mesh(labelled)]
        for query in self.queries:
            found += self._by_automata(query, first, labelled)
        return [self._truly_joined(results) for results in found if len(results)]

    def arrivals(self, removed: Collection[int]) -> Arrivals:
        """All tuples but those of removed relations and of ``open_tables``, to be inserted elsewhere."""
        tuples = self.live.tuples
        left = [*removed, *(() if self._reserve is None else self._reserve.tables)]
        kept = np.flatnonzero(~np.isin(tuples.relation, left))
        kept = kept[np.argsort(tuples.start[kept], kind="stable")]
        place = {slot: at for at, slot in enumerate(kept.tolist())}
        return Arrivals(
            tuples.relation[kept],
            self.known.rows.taken(kept),
            tuples.start[kept],
            tuples.end[kept],
            self.known.times[kept],
            tuples.place[kept],
            {place[slot]: known for slot, known in self.known.followed.items() if slot in place},
        )

    def _enter(self, new: Arrivals) -> tuple[int, Arrived]:
        """Add tuples to the live ones, where no mesh hears of them; gives the slot of the first."""
        self.known.add(new.relation, new.start, new.rows, new.times)
        first = len(self.live)
        for place, followed in new.followed.items():
            self.known.follow(followed, first + place)
        keys = self._values.of(new.rows)
        return first, self.live.insert(TupleColumns(new.relation, new.start, new.end, keys, new.place))

    def _take_in(self, taken: Taken) -> None:
        """Rows of tables that nobody waits for."""
        self._enter(_arrivals(taken))

    def release(self, known: list[StreamTuple]) -> None:
        """Take tuples out, with all partials; they may be inserted again."""
        slots = self.known.release(known)
        self.end(slots, np.full(len(slots), ALWAYS))

    def end(self, slots: Ints, ticks: Ints) -> None:
        """End tuples early."""
        self._scoring.ended(slots, ticks)
        self.live.end(slots, ticks)
        for mesh in self._meshes.values():
            mesh.end(slots)

    def purge(self, horizon: int) -> None:
        """Drop what ended at or before ``horizon``, as soon as about half of all is dead."""
        entries = self.entries
        if entries and self._sweep.due(horizon, entries):
            self.compact(horizon)

    def compact(self, horizon: int) -> None:
        """Drop all that ended at or before ``horizon``, and renumber the rest."""
        self._scoring.forget(horizon)
        slots = self.live.compact(horizon)
        for mesh in self._meshes.values():
            mesh.compact(horizon, slots)
        self.known.compact(slots)
        for standing in self.queries.values():
            if standing.automata is not None:
                standing.automata.compact(slots)
        self._on_compact(horizon, slots)
        self._sweep.done(horizon, self.entries)

    @property
    def meshes(self) -> list[ColumnarMesh]:
        """One for each shape of query."""
        return list(self._meshes.values())

    @property
    def entries(self) -> int:
        """Live tuples and waiting partials, dead ones not yet purged included."""
        return len(self.live) + sum(mesh.partials for mesh in self._meshes.values())

    def events(self, found: list[Partials], snapshot: bool = False) -> Iterator[Event]:
        """Results as they are completed, and retractions of those whose early end is known."""
        by_count = by_position(self._window)
        readings: dict[tuple[int, int], tuple[Reading, Assembler]] = {}
        for results in found:
            natural, time = self._natural(results.members)
            names = self.known.names(results.members[results.members != NO_MEMBER])
            judged = self._judged(results, natural, snapshot)
            columns = (rows_of(results), *(c.tolist() for c in (results.start, results.end, natural, time)))
            for (query, operator, slots), start, end, due, at, score in zip(*columns, judged, strict=True):
                known = readings.get((query, operator))
                if known is None:
                    mesh, assembler, *_ = self.queries[query]
                    known = assembler.reading(mesh.network(operator)), assembler
                    readings[query, operator] = known
                reading, assembler = known
                named = [names[slots[place]] for place in reading.positions]
                began = None if at == ALWAYS else at
                shown = FOREVER if by_count else due
                result = assembler.told("+", reading, named, began, shown, snapshot)
                scored = result if score is None else score.told(result)
                yield Event(start, COMPLETED, 0, result.id, scored)
                if end < due:
                    yield self.retraction(query, operator, slots)

    def _judged(self, results: Partials, natural: Ints, snapshot: bool) -> list[Judged | None]:
        if not len(self._scoring):
            return [None] * len(results)
        trees = [self.tree(row) for row in rows_of(results)]
        return self._scoring.of(results, trees, natural, snapshot=snapshot)

    def natural_end(self, members: Ints) -> Ints:
        """Ends that results would have without deletions."""
        return self._natural(members)[0]

    def tree(self, row: tuple[int, int, list[int]]) -> Tree:
        """The network that a result is of."""
        return self.queries[row[0]].mesh.network(row[1])

    def _natural(self, members: Ints) -> tuple[Ints, Ints]:
        """Ends that results would have without deletions, and the times at which they began."""
        starts = self.live.tuples.start[members]
        streaming = (members != NO_MEMBER) & (starts != ALWAYS)
        first = np.where(streaming, starts, FOREVER).min(axis=1)
        ends = np.where(first == FOREVER, FOREVER, natural_ends(self._window, first))
        return ends, np.where(streaming, self.known.times[members], ALWAYS).max(axis=1)

    def retraction(self, query: int, operator: int, slots: list[int]) -> Event:
        """The retraction of a result one of whose tuples was deleted."""
        members = [self.known.member(slot) for slot in slots if slot >= 0]
        end = min(member.end for member in members)
        time = min(m.ended_at for m in members if m.end == end and m.ended_at is not None)
        return self.taken_back(query, operator, slots, time, end)

    def taken_back(
        self, query: int, operator: int, slots: list[int], time: int, tick: int | None = None
    ) -> Event:
        """The retraction of a result at an event time; ``tick`` is its place in the output, else the time."""
        mesh, assembler, *_ = self.queries[query]
        members = [self.known.member(slot) for slot in slots if slot >= 0]
        times = [member.time for member in members if not member.static]
        named = [self.known.name(slot) for slot in slots if slot >= 0]
        result = assembler.result("-", mesh.network(operator), named, max(times, default=None), time)
        tick = time if tick is None else tick
        return retracted(tick, time, replace(result, tick=tick) if query in self._scoring else result)

    def _mesh_of(
        self,
        generator: CNGen,
        apart: tuple[Tree, ...] = (),
        needed: Callable[[Tree], bool] = lambda _: True,
    ) -> ColumnarMesh:
        """The mesh of a query's shape without the networks that are evaluated ``apart``."""
        shape = (generator.shape, apart)
        if shape not in self._meshes:
            self._meshes[shape] = ColumnarMesh(self.live, generator, self._accepts_root, needed)
        return self._meshes[shape]

    def _split(self, plan: Plan, generator: CNGen) -> tuple[ColumnarMesh, NetworkAutomata | None]:
        """Automata for the networks that they evaluate, and a mesh of what the others need."""
        # Only for who asks for automata: patterns bring a parser of texts.
        from skws.engine.automata import NetworkAutomata, networks_apart, prefix, prefixes  # noqa: PLC0415

        apart = networks_apart(plan, generator)
        if not apart:
            return self._mesh_of(generator), None
        elsewhere = set(apart)
        grown_from = prefixes([tree for tree in generator.networks() if tree not in elsewhere])
        mesh = self._mesh_of(generator, apart, lambda tree: prefix(tree) in grown_from)
        numbered = {mesh.add_network(tree): tree for tree in apart}
        return mesh, NetworkAutomata(generator, self._window, numbered)

    def _by_automata(self, query: int, first: int, labelled: Labelled) -> Iterator[Partials]:
        """The results of a query's automata for the tuples from slot ``first`` on, given their labels."""
        automata = self.queries[query].automata
        if automata is None:
            return
        mine = labelled.query == query
        labels = np.zeros(len(self.live) - first, dtype=np.int64)
        labels[labelled.tuple[mine] - first] = labelled.label[mine]
        found = automata.insert(first, self.live.tuples, labels, self.known.row)
        if self._accepts_root is not None:
            found = found.taken(self._accepts_root(found.members[:, 0]))
        if len(found):
            yield replace(found, query=np.full(len(found), query, dtype=np.int64))

    def _coded(self, labelled: Labelled) -> Labelled:
        """Labels as their meshes know them."""
        excluded = labelled.label == EXCLUDED
        if not excluded.any():
            return labelled
        self.excluded += int(excluded.sum())
        label = labelled.label.copy()
        of = labelled.query[excluded].tolist()
        label[excluded] = [self.queries[query].mesh.excluded for query in of]
        return Labelled(labelled.tuple, labelled.query, label)

    def _by_mesh(self, labelled: Labelled) -> Iterator[tuple[ColumnarMesh, Labelled]]:
        if len(self._meshes) == 1:
            yield next(iter(self._meshes.values())), labelled
            return
        numbers = {id(mesh): number for number, mesh in enumerate(self._meshes.values())}
        of_query = np.zeros(max(self.queries, default=0) + 1, dtype=np.int64)
        for query, standing in self.queries.items():
            of_query[query] = numbers[id(standing.mesh)]
        which = of_query[labelled.query]
        for number, mesh in enumerate(self._meshes.values()):
            yield mesh, labelled.taken(which == number)

    def _truly_joined(self, results: Partials) -> Partials:
        """Leave out results that only the integers for their join values held for joined."""
        if self._values.all_exact:
            return results
        true = np.array([self._agree(*row) for row in rows_of(results)], dtype=bool)
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


def _arrivals(taken: Taken) -> Arrivals:
    return of_table_rows(taken.blocks, taken.occurrences)


def rows_of(results: Partials) -> Iterator[tuple[int, int, list[int]]]:
    """Each row as (query, operator, slots of its members)."""
    return zip(results.query.tolist(), results.operator.tolist(), results.members.tolist(), strict=True)
