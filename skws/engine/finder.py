"""Batches of tuples with settled lifespans in, results out.

What the columnar engine and Spark's slices share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from mesh.columnar import ColumnarMesh, Partials, TupleColumns
from mesh.columnar.columns import Flags, Ints
from mesh.generate import CNGen
from schema.graph import edges
from schema.model import Row
from skws.engine.engine import EXCLUDED
from skws.engine.events import Event, completed, retracted
from skws.engine.row_columns import RowColumns, RowStore
from skws.plan import Plan
from skws.results.assemble import Assembler
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER


@dataclass(slots=True)
class Arrivals:
    """Tuples in order of their start.

    ``times`` are event times in microseconds. ``followed`` holds, by place,
    the tuples that are more than their columns: whose deletion is known, or
    whose name needs more than their row. ``keywords``: None to match them here.
    """

    relation: Ints
    rows: list[Row]
    start: Ints
    end: Ints
    times: list[int]
    followed: dict[int, StreamTuple] = field(default_factory=dict)
    keywords: Ints | None = None


class Finder:
    """Finds the results of a plan in tuples that arrive by start, and tells them as events.

    ``accepts_root`` can leave out the results whose root tuple has a row that
    it refuses. ``on_compact`` hears when slots are renumbered.
    """

    def __init__(
        self,
        plan: Plan,
        generator: CNGen,
        accepts_root: Callable[[Row], bool] | None = None,
        on_compact: Callable[[Ints], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.slots: dict[StreamTuple, int] = {}
        self._on_compact = on_compact
        self.mesh = ColumnarMesh(generator, self._root_filter(accepts_root), self._renumber)
        self._columns = RowColumns(plan.schema, self.mesh.key_sets, plan.matcher)
        self._rows = RowStore()
        self._followed: dict[int, StreamTuple] = {}
        self._shown: dict[int, StreamTuple] = {}  # tuples of results, which tend to be in several
        self._assembler = Assembler(plan)
        self._edges = edges(plan.schema)

    def insert(self, new: Arrivals) -> tuple[list[Partials], int]:
        """Add tuples; gives the results that they complete, and how many tuples were excluded."""
        keywords = self._columns.keywords(new.relation, new.rows) if new.keywords is None else new.keywords
        kept = np.flatnonzero(keywords != EXCLUDED)
        rows = [new.rows[place] for place in kept.tolist()]
        first = len(self.mesh.tuples)
        times = [new.times[place] for place in kept.tolist()]
        self._rows.append(rows, times, _with_twins(new.relation[kept], new.start[kept]))
        if new.followed:
            for slot, place in enumerate(kept.tolist(), first):
                if place in new.followed:
                    followed = new.followed[place]
                    followed.keywords = int(keywords[place])
                    self.follow(followed, slot)
        relation = new.relation[kept]
        keys = self._columns.keys(relation, rows)
        columns = TupleColumns(relation, keywords[kept], new.start[kept], new.end[kept], keys)
        found = [self._truly_joined(results) for results in self.mesh.insert(columns)]
        return found, len(keywords) - len(kept)

    def follow(self, known: StreamTuple, slot: int) -> None:
        """From now on the tuple of a slot is this one."""
        self.slots[known] = slot
        self._followed[slot] = known

    def events(self, found: list[Partials], snapshot: bool = False) -> Iterator[Event]:
        """Results as they are completed, and retractions of those whose early end is known."""
        for results in found:
            for operator, slots in pairs(results):
                members = [self.member(slot) for slot in slots]
                start, end, natural = self._span(members)
                shown = FOREVER if self.plan.by_count else natural
                result = self._assembler.result("+", self.mesh.network(operator), members, shown, snapshot)
                yield completed(start, result)
                if end < natural:
                    yield self.retraction(operator, members)

    def _span(self, members: list[StreamTuple]) -> tuple[int, int, int]:
        """Start and end of a result, and the end it would have without deletions."""
        start, end, natural = ALWAYS, FOREVER, FOREVER
        for member in members:
            start = max(start, member.start)
            end = min(end, member.end)
            if not member.static:
                natural = min(natural, self.plan.window.end(member.start))
        return start, end, natural

    def retraction(self, operator: int, members: list[StreamTuple]) -> Event:
        """The retraction of a result one of whose tuples was deleted."""
        end = min(member.end for member in members)
        time = min(m.ended_at for m in members if m.end == end and m.ended_at is not None)
        return retracted(end, time, self._assembler.result("-", self.mesh.network(operator), members, time))

    def member(self, slot: int) -> StreamTuple:
        """The tuple in a slot."""
        known = self._followed.get(slot) or self._shown.get(slot)
        if known is None:
            known = self._shown[slot] = self._from_columns(slot)
        return known

    def _from_columns(self, slot: int) -> StreamTuple:
        relation, keywords, start, end = self.mesh.tuple_in(slot)
        occurrence = self._occurrence(slot, relation, start) if self._rows.has_twins(slot) else 0
        return StreamTuple(
            relation, self._rows.row(slot), start, end, keywords, occurrence, time=self._rows.time(slot)
        )

    def _occurrence(self, slot: int, relation: int, start: int) -> int:
        """How many equal tuples of the same instant came before; slots are in order of start."""
        tuples, row = self.mesh.tuples, self._rows.row(slot)
        first = int(np.searchsorted(tuples.start[:slot], start))
        same = np.flatnonzero(tuples.relation[first:slot] == relation) + first
        return sum(self._rows.row(other) == row for other in same.tolist())

    def _truly_joined(self, results: Partials) -> Partials:
        """Leave out members that only the 64-bit keys of their join values held for equal."""
        true = np.array([self._agree(operator, slots) for operator, slots in pairs(results)], dtype=bool)
        return results if true.all() else results.taken(true)

    def _agree(self, operator: int, slots: list[int]) -> bool:
        tree = self.mesh.network(operator)
        for node in range(1, len(slots)):
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

    def _renumber(self, slots: Ints) -> None:
        """Follow the mesh when it gives its tuples new slots."""
        self._rows.compact(slots)
        self._shown.clear()
        moved = ((int(slots[slot]), known) for slot, known in self._followed.items())
        self._followed = {slot: known for slot, known in moved if slot >= 0}
        self.slots = {known: slot for slot, known in self._followed.items()}
        self._on_compact(slots)


def _with_twins(relation: Ints, start: Ints) -> Flags:
    """Which tuples are not the only one of their relation at their instant."""
    order = np.lexsort((relation, start))
    equal = np.diff(relation[order]) == 0
    equal &= np.diff(start[order]) == 0
    twins = np.zeros(len(order), dtype=bool)
    twins[order[1:]] |= equal
    twins[order[:-1]] |= equal
    streaming: Flags = start != ALWAYS  # static tuples have their name already
    return twins & streaming


def pairs(results: Partials) -> Iterator[tuple[int, list[int]]]:
    """Each row as (operator, slots of its members)."""
    return zip(results.operator.tolist(), results.members.tolist(), strict=True)
