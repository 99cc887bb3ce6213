"""Batches of tuples with settled lifespans in, results of standing queries out.

What the columnar engine and Spark's slices share. Live tuples and their index
are there once; queries of one shape share a mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mesh.columnar import ColumnarMesh, Labelled, LiveTuples, Partials, TupleColumns
from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import NO_MEMBER
from mesh.generate import CNGen
from purging.sweep import Sweep
from schema.graph import edges
from schema.model import Row, Schema
from skws.batches import Rows
from skws.engine.engine import EXCLUDED
from skws.engine.events import Event, completed, retracted
from skws.engine.join_values import JoinValues
from skws.engine.labelling import Labelling
from skws.engine.row_store import RowStore
from skws.plan import Plan
from skws.results.assemble import Assembler, Named, TupleNames
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, CountWindow, Unbounded, Window


@dataclass(slots=True)
class Arrivals:
    """Tuples in order of their start.

    ``times`` are event times in microseconds. ``followed`` holds, by place,
    the tuples that are more than their columns: whose deletion is known, or
    whose name needs more than their row. ``labelled``: None to match keywords here.
    """

    relation: Ints
    rows: Rows
    start: Ints
    end: Ints
    times: Ints
    followed: dict[int, StreamTuple] = field(default_factory=dict)
    labelled: Labelled | None = None

    def merged(self, other: Arrivals) -> Arrivals:
        """These and others, in order of start; both to be matched here."""
        start = np.concatenate([self.start, other.start])
        order = np.argsort(start, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        own = {int(place[at]): known for at, known in self.followed.items()}
        others = {int(place[len(self.start) + at]): known for at, known in other.followed.items()}
        return Arrivals(
            np.concatenate([self.relation, other.relation])[order],
            Rows.together([self.rows, other.rows]).taken(order),
            start[order],
            np.concatenate([self.end, other.end])[order],
            np.concatenate([self.times, other.times])[order],
            own | others,
        )


class Standing(NamedTuple):
    """A query that is being answered."""

    plan: Plan
    mesh: ColumnarMesh
    assembler: Assembler


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
        self.slots: dict[StreamTuple, int] = {}
        self.queries: dict[int, Standing] = {}
        self.excluded = 0
        self._window = window
        self._accepts_root = self._root_filter(accepts_root)
        self._on_compact = on_compact
        self._meshes: dict[object, ColumnarMesh] = {}
        self._labelling = Labelling()
        self._values = JoinValues(schema, self.live.key_sets)
        self._rows = RowStore()
        self._followed: dict[int, StreamTuple] = {}
        self._named: dict[int, Named] = {}  # tuples of results, which tend to be in several
        self._names = TupleNames(schema, by_count=isinstance(window, CountWindow))
        self._edges = edges(schema)
        self._sweep = Sweep()

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> list[Partials]:
        """Answer a query from now on; gives its results that are alive."""
        generator = generator or plan.generator()
        mesh = self._meshes.get(generator.shape)
        if mesh is None:
            mesh = self._meshes[generator.shape] = ColumnarMesh(self.live, generator, self._accepts_root)
        self.queries[query] = Standing(plan, mesh, Assembler(plan))
        labelled = Labelling.only(query, plan.matcher).of(self._rows.rows())
        self._labelling.add(query, plan.matcher)
        return [self._truly_joined(mesh.add(query, self._coded(labelled)))]

    def remove(self, query: int) -> None:
        """Answer a query no longer."""
        mesh = self.queries.pop(query).mesh
        self._labelling.remove(query)
        mesh.remove(query)
        if not any(standing.mesh is mesh for standing in self.queries.values()):
            self._meshes = {shape: other for shape, other in self._meshes.items() if other is not mesh}

    def insert(self, new: Arrivals) -> list[Partials]:
        """Add tuples; gives the results that they complete."""
        labelled = self._labelling.of(new.rows) if new.labelled is None else new.labelled
        self._rows.add(new.rows, new.times, _with_twins(new.relation, new.start))
        first = len(self.live)
        for place, followed in new.followed.items():
            self.follow(followed, first + place)
        keys = self._values.of(new.rows)
        arrived = self.live.insert(TupleColumns(new.relation, new.start, new.end, keys))
        labelled = self._coded(Labelled(labelled.tuple + first, labelled.query, labelled.label))
        found = [mesh.insert(arrived, mine) for mesh, mine in self._by_mesh(labelled)]
        return [self._truly_joined(results) for results in found if len(results)]

    def follow(self, known: StreamTuple, slot: int) -> None:
        """From now on the tuple of a slot is this one."""
        self.slots[known] = slot
        self._followed[slot] = known
        self._named.pop(slot, None)

    def end(self, slots: Ints, ticks: Ints) -> None:
        """End tuples early."""
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
        slots = self.live.compact(horizon)
        for mesh in self._meshes.values():
            mesh.compact(horizon, slots)
        self._rows.compact(slots)
        self._named.clear()
        moved = ((int(slots[slot]), known) for slot, known in self._followed.items())
        self._followed = {slot: known for slot, known in moved if slot >= 0}
        self.slots = {known: slot for slot, known in self._followed.items()}
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
        for results in found:
            natural, time = self._natural(results.members)
            columns = (rows_of(results), *(c.tolist() for c in (results.start, results.end, natural, time)))
            for (query, operator, slots), start, end, due, at in zip(*columns, strict=True):
                _, mesh, assembler = self.queries[query]
                named = [self._name(slot) for slot in slots if slot >= 0]
                shown = FOREVER if self._names.by_count else due
                began = None if at == ALWAYS else at
                result = assembler.result("+", mesh.network(operator), named, began, shown, snapshot)
                yield completed(start, result)
                if end < due:
                    yield self.retraction(query, operator, slots)

    def _natural(self, members: Ints) -> tuple[Ints, Ints]:
        """Ends that results would have without deletions, and the times at which they began."""
        starts = self.live.tuples.start[members]
        streaming = (members != NO_MEMBER) & (starts != ALWAYS)
        first = np.where(streaming, starts, FOREVER).min(axis=1)
        ends = np.where(first == FOREVER, FOREVER, natural_ends(self._window, first))
        return ends, np.where(streaming, self._rows.times[members], ALWAYS).max(axis=1)

    def retraction(self, query: int, operator: int, slots: list[int]) -> Event:
        """The retraction of a result one of whose tuples was deleted."""
        _, mesh, assembler = self.queries[query]
        members = [self.member(slot) for slot in slots if slot >= 0]
        end = min(member.end for member in members)
        time = min(m.ended_at for m in members if m.end == end and m.ended_at is not None)
        began = max(member.time for member in members if not member.static)
        named = [self._names.of(member) for member in members]
        return retracted(end, time, assembler.result("-", mesh.network(operator), named, began, time))

    def _name(self, slot: int) -> Named:
        known = self._named.get(slot)
        if known is None:
            known = self._named[slot] = self._named_anew(slot)
        return known

    def _named_anew(self, slot: int) -> Named:
        followed = self._followed.get(slot)
        if followed is not None:
            return self._names.of(followed)
        relation, start, _ = self.live.tuple_in(slot)
        occurrence = self._occurrence(slot, relation, start) if self._rows.has_twins(slot) else 0
        return self._names.name(relation, self._rows.row(slot), start, occurrence)

    def member(self, slot: int) -> StreamTuple:
        """The tuple in a slot."""
        known = self._followed.get(slot)
        if known is not None:
            return known
        relation, start, end = self.live.tuple_in(slot)
        occurrence = self._occurrence(slot, relation, start) if self._rows.has_twins(slot) else 0
        return StreamTuple(
            relation, self._rows.row(slot), start, end, occurrence=occurrence, time=self._rows.time(slot)
        )

    def _occurrence(self, slot: int, relation: int, start: int) -> int:
        """How many equal tuples of the same instant came before; slots are in order of start."""
        tuples, row = self.live.tuples, self._rows.row(slot)
        first = int(np.searchsorted(tuples.start[:slot], start))
        same = np.flatnonzero(tuples.relation[first:slot] == relation) + first
        return sum(self._rows.row(other) == row for other in same.tolist())

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
        true = np.array([self._agree(*row) for row in rows_of(results)], dtype=bool)
        return results if true.all() else results.taken(true)

    def _agree(self, query: int, operator: int, slots: list[int]) -> bool:
        tree = self.queries[query].mesh.network(operator)
        for node in range(1, len(tree.edges)):
            if self._values.exact(tree.edges[node]):
                continue
            edge = self._edges[tree.edges[node]]
            source, target = self._rows.row(slots[tree.parents[node]]), self._rows.row(slots[node])
            for near, far in zip(edge.source_columns, edge.target_columns, strict=True):
                if source[near] != target[far]:
                    return False
        return True

    def _root_filter(self, accepts: Callable[[Row], bool] | None) -> Callable[[Ints], Flags] | None:
        if accepts is None:
            return None
        return lambda slots: np.array([accepts(self._rows.row(s)) for s in slots.tolist()], dtype=bool)


def natural_ends(window: Window, starts: Ints) -> Ints:
    """The ends that a window gives to tuples."""
    if isinstance(window, Unbounded):
        return np.full(len(starts), FOREVER, dtype=np.int64)
    return starts + window.end(0)


def _with_twins(relation: Ints, start: Ints) -> Flags:
    """Which tuples are not the only one of their relation at their instant."""
    twins = np.zeros(len(start), dtype=bool)
    streaming = np.flatnonzero(start != ALWAYS)  # static tuples have their name already
    relation, start = relation[streaming], start[streaming]
    order = np.lexsort((relation, start))
    equal = (np.diff(relation[order]) == 0) & (np.diff(start[order]) == 0)
    twins[streaming[order[1:][equal]]] = True
    twins[streaming[order[:-1][equal]]] = True
    return twins


def rows_of(results: Partials) -> Iterator[tuple[int, int, list[int]]]:
    """Each row as (query, operator, slots of its members)."""
    return zip(results.query.tolist(), results.operator.tolist(), results.members.tolist(), strict=True)
