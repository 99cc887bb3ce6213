"""Joining batches: per size of partial result, new partials with all tuples and old ones with new tuples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mesh.columnar.columns import NULL, Flags, Ints, KeySets, TupleColumns, index_keys
from mesh.columnar.runs import SortedRuns, probe_run, ranges
from mesh.columnar.store import Partials, PartialStore, TupleStore
from mesh.columnar.table import NONE, OperatorTable, WaitingCounts
from mesh.generate import CNGen
from mesh.tree import Tree
from purging.sweep import Sweep


class ColumnarMesh:
    """Full mesh of one keyword query, fed by batches of tuples with settled lifespans.

    ``accepts_root`` can restrict the mesh to results whose root tuple, by its
    slot, it accepts. ``on_compact`` is told each slot's new number, -1 if it
    is gone.
    """

    def __init__(
        self,
        generator: CNGen,
        accepts_root: Callable[[Ints], Flags] | None = None,
        on_compact: Callable[[Ints], None] = lambda _: None,
    ) -> None:
        self._operators = OperatorTable(generator)
        self._accepts_root = accepts_root
        self._on_compact = on_compact
        self.key_sets = KeySets(generator.schema)
        self._tuples = TupleStore(self.key_sets.width)
        self._live = SortedRuns()
        self._waiting = [PartialStore(size) for size in range(1, generator.max_size)]
        self._sweep = Sweep()

    @property
    def tuples(self) -> TupleColumns:
        """The tuples by slot; some may be dead and not yet purged."""
        return self._tuples.tuples

    def tuple_in(self, slot: int) -> tuple[int, int, int, int]:
        """Relation, keywords, start and end of the tuple in a slot."""
        return self._tuples.four(slot)

    @property
    def partials(self) -> int:
        """Waiting partials, dead ones not yet purged included."""
        return sum(store.size for store in self._waiting)

    @property
    def operators(self) -> int:
        """Operators made so far."""
        return len(self._operators)

    def insert(self, batch: TupleColumns) -> list[Partials]:
        """Add tuples; give the results that they complete, by size (the operator tells the network)."""
        first = self._tuples.append(batch.columns())
        slots = np.arange(first, self._tuples.size, dtype=np.int64)
        arrived = self._index(batch, slots)
        results = []
        partials = self._rooted(batch, slots)
        for store in [*self._waiting, None]:
            complete = self._operators.complete(partials.operator)
            if complete.any():
                results.append(partials.taken(complete))
                partials = partials.taken(~complete)
            if store is None:
                break
            partials = self._grow(store, partials, arrived)
        self._live.add(*arrived)
        return results

    def waiting(self) -> WaitingCounts:
        """Operators that ever had partials, each with those that wait, once for every join they wait for."""
        groups = [store.partials.operator for store in self._waiting]
        return self._operators.waiting(np.concatenate(groups) if groups else np.empty(0, dtype=np.int64))

    def network(self, operator: int) -> Tree:
        """The candidate network whose results a complete operator gives out."""
        return self._operators.trees[operator]

    def end(self, slots: Ints, ticks: Ints) -> None:
        """End tuples early; partials that contain them are ended with them."""
        self._tuples.tuples.end[slots] = ticks
        for store in self._waiting:
            partials = store.partials
            touched = np.isin(partials.members, slots).any(axis=1)
            if touched.any():
                ends = self.tuples.end[partials.members[touched]].min(axis=1)
                partials.end[touched] = ends

    def purge(self, horizon: int) -> None:
        """Drop what ended at or before ``horizon``, as soon as about half of all is dead."""
        entries = self._tuples.size + self.partials
        if entries and self._sweep.due(horizon, entries):
            self.compact(horizon)

    def compact(self, horizon: int) -> None:
        """Drop all that ended at or before ``horizon``, and renumber the rest."""
        renumbered = self._tuples.keep(self.tuples.end > horizon)
        self._live.remap(renumbered)
        for store in self._waiting:
            store.compact(horizon, renumbered)
        self._on_compact(renumbered)
        self._sweep.done(horizon, self._tuples.size + self.partials)

    def _index(self, batch: TupleColumns, slots: Ints) -> tuple[Ints, Ints]:
        """The batch's entries for the index of live tuples, sorted: one a tuple and key set."""
        width = self.key_sets.width
        keys, payload = [], []
        for number in range(width):
            values = batch.keys[:, number]
            joined = np.flatnonzero(values != NULL)
            keys.append(index_keys(batch.relation[joined] * width + number, values[joined]))
            payload.append(slots[joined])
        together = np.concatenate(keys)
        order = np.argsort(together)
        return together[order], np.concatenate(payload)[order]

    def _rooted(self, batch: TupleColumns, slots: Ints) -> Partials:
        """The partials of size 1: tuples that belong to a root."""
        operators = self._operators.roots(batch.relation, batch.keywords)
        chosen = np.flatnonzero((operators != NONE) & (batch.start < batch.end))
        if self._accepts_root is not None:
            chosen = chosen[self._accepts_root(slots[chosen])]
        return Partials(operators[chosen], slots[chosen, None], batch.start[chosen], batch.end[chosen])

    def _grow(self, store: PartialStore, new: Partials, arrived: tuple[Ints, Ints]) -> Partials:
        """Partials with one member more: old ones with arrived tuples, new ones with all tuples."""
        place, slot = store.index.probe(arrived[0])
        grown = [self._matched(store.partials.taken(slot), arrived[1][place])] if len(place) else []
        if len(new):
            waiting, keys = self._spread(new)
            for hits, partners in (self._live.probe(keys), probe_run(*arrived, keys)):
                if len(hits):
                    grown.append(self._matched(waiting.taken(hits), partners))
            first = store.append(waiting.columns())
            order = np.argsort(keys)
            store.index.add(keys[order], first + order)
        return _together(grown, members=store.partials.members.shape[1] + 1)

    def _spread(self, new: Partials) -> tuple[Partials, Ints]:
        """Each partial once for every group of its operator, with the key it waits for, if not NULL."""
        first, counts = self._operators.groups(new.operator)
        spread = new.taken(np.repeat(np.arange(len(new), dtype=np.int64), counts))
        groups = ranges(first, counts)
        edge = self._operators.edge(groups)
        joining = spread.members[np.arange(len(groups)), self._operators.node(groups)]
        values = self.tuples.keys[joining, self.key_sets.source[edge]]
        known = values != NULL
        keys = index_keys(self.key_sets.edge_index[edge[known]], values[known])
        waiting = Partials(groups, spread.members, spread.start, spread.end)
        return waiting.taken(known), keys

    def _matched(self, waiting: Partials, partners: Ints) -> Partials:
        """Partials joined with a tuple each, where that is wanted, new to them, and alive with them."""
        tuples = self.tuples
        operators = self._operators.next(waiting.operator, tuples.keywords[partners])
        start = np.maximum(waiting.start, tuples.start[partners])
        end = np.minimum(waiting.end, tuples.end[partners])
        different = (waiting.members != partners[:, None]).all(axis=1)
        kept = np.flatnonzero((operators != NONE) & (start < end) & different)
        members = np.column_stack([waiting.members[kept], partners[kept]])
        return Partials(operators[kept], members, start[kept], end[kept])


def _together(parts: list[Partials], members: int) -> Partials:
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Partials(none, np.empty((0, members), dtype=np.int64), none, none)
    return Partials(*map(np.concatenate, zip(*(part.columns() for part in parts), strict=True)))
