"""The live tuples and their index by join value, shared by all queries over a schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from skws_mesh.columnar.columns import (
    NOTHING,
    NULL,
    Flags,
    Hashes,
    Ints,
    TupleColumns,
    cells,
    index_hashes,
    ranges,
)
from skws_mesh.columnar.hash_index import MERGED, HashIndex, in_parts
from skws_mesh.columnar.store import TupleStore
from skws_schema.graph import Edge, edges
from skws_schema.model import Schema

CHUNK_TUPLES: Final = 1 << 16
"""The most tuples that are hashed at once; their columns fit the processor's caches."""


class KeySets:
    """The key sets of a schema: ``columns[r][j]`` are the columns of key set j of relation r.

    ``source[e]`` and ``target[e]`` are the key sets that edge e compares; ``target_relation[e]`` is
    the relation to which it leads.
    """

    def __init__(self, schema: Schema) -> None:
        sets: list[dict[tuple[int, ...], int]] = [{} for _ in schema.relations]
        all_edges = edges(schema)
        self.source = np.array(
            [sets[e.source].setdefault(e.source_columns, len(sets[e.source])) for e in all_edges],
            dtype=np.int64,
        )
        self.target = np.array(
            [sets[e.target].setdefault(e.target_columns, len(sets[e.target])) for e in all_edges],
            dtype=np.int64,
        )
        self.columns = tuple(tuple(key_sets) for key_sets in sets)
        self.target_relation = np.array([e.target for e in all_edges], dtype=np.int64)

    @cached_property
    def width(self) -> int:
        """The most key sets that a relation has; at least 1."""
        return max(1, *(len(key_sets) for key_sets in self.columns))

    @cached_property
    def edge_index(self) -> Ints:
        """For each edge, the number of the index that it probes; each key set has an index."""
        return (self.target_relation * self.width + self.target).astype(np.int64)


class LeavingEdges:
    """Edges by the relation that they leave."""

    def __init__(self, leaving: Sequence[Sequence[Edge]]) -> None:
        self._edges = np.array([edge.id for group in leaving for edge in group], dtype=np.int64)
        self._degree = np.array([len(group) for group in leaving], dtype=np.int64)
        self._first = np.cumsum(self._degree) - self._degree

    def of(self, relations: Ints) -> tuple[Ints, Ints]:
        """All edges that leave the relations, as (position in ``relations``, edge)."""
        counts = self._degree.take(relations)
        position = np.repeat(np.arange(len(relations), dtype=np.int64), counts)
        return position, self._edges.take(ranges(self._first.take(relations), counts))


@dataclass(frozen=True, slots=True)
class InsertedTuples:
    """Tuples that were just inserted: the slots from ``first`` on, and their entries by join value."""

    first: int
    slots: Ints
    hashes: Hashes


class Reserve(Protocol):
    """Rows of indexed tables, which become live tuples only when a join value reaches them.

    Tuples with keywords of a query are inserted before joins look for them.
    """

    def demand(self, edge: Ints, values: Ints) -> None:
        """Insert the free tuples to which the edges lead by the join values."""

    def counted(self, edge: Ints, values: Ints) -> tuple[Flags, Ints]:
        """True for each edge that leads to reserve tuples only, and the number of tuples at each of these."""


class LiveTuples:
    """The tuples of the window; some may be dead and not yet purged.

    ``reserve``: supplies tuples of indexed tables when a join value reaches them.
    """

    def __init__(self, schema: Schema) -> None:
        self.key_sets = KeySets(schema)
        self.reserve: Reserve | None = None
        self._store = TupleStore(self.key_sets.width)
        self._index = HashIndex()

    def __len__(self) -> int:
        return self._store.size

    @property
    def tuples(self) -> TupleColumns:
        """The tuples by slot."""
        return self._store.tuples

    def tuple_in(self, slot: int) -> tuple[int, int, int]:
        """Relation, start and end of the tuple in a slot."""
        return self._store.tuple_in(slot)

    def open(self, tuples: TupleColumns, size: int, index: HashIndex) -> None:
        """Begin with ``size`` stored tuples and their index by join value (``index_hashes``).

        There must be no tuples before them. Columns may have space for more.
        """
        self._store.open(tuples.columns(), size)
        self._index = index

    def make_space(self, count: int) -> None:
        """Make space for ``count`` tuples."""
        self._store.make_space(count)

    def append(self, batch: TupleColumns) -> int:
        """Add tuples without indexing them, which ``index`` does; returns the slot of the first."""
        return self._store.append(batch.columns())

    def index(self) -> None:
        """Index all tuples, after ``append``; this is faster than batch by batch."""
        keys, size = self.tuples.keys, len(self)
        self._index.make_space(int(np.count_nonzero(keys != NULL)), size)
        positions, hashes, pending = [], [], 0
        for begin in range(0, size, CHUNK_TUPLES):
            chunk = slice(begin, min(begin + CHUNK_TUPLES, size))
            position, chunk_hashes = self._entries(self.tuples.relation[chunk], keys[chunk])
            positions.append(position + begin)
            hashes.append(chunk_hashes)
            pending += len(chunk_hashes)
            if pending + CHUNK_TUPLES * self.key_sets.width > MERGED or chunk.stop == size:
                self._index.add(np.concatenate(hashes), np.concatenate(positions))
                positions, hashes, pending = [], [], 0

    def insert(self, batch: TupleColumns) -> InsertedTuples:
        """Add tuples, and index them by join value."""
        first = self._store.append(batch.columns())
        position, hashes = self._entries(batch.relation, batch.keys)
        slots = position + first
        self._index.add(hashes, slots)
        return InsertedTuples(first, slots, hashes)

    def entries(self, slots: Ints) -> tuple[Ints, Hashes]:
        """One entry for each join value of the tuples that is not NULL: position in ``slots``, and hash."""
        return self._entries(self.tuples.relation[slots], self.tuples.keys.take(slots, axis=0))

    def _entries(self, relation: Ints, keys: Ints) -> tuple[Ints, Hashes]:
        values, width = keys.ravel(), self.key_sets.width
        present = np.flatnonzero(values != NULL)  # three times as fast as over rows and columns
        position = present // width
        # ``present`` is position * width + key set; an index number is relation * width + key set.
        first = (relation - np.arange(len(relation))) * width
        return position, index_hashes(first.take(position) + present, values.take(present))

    def probe(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """The tuples with given hashes, as (position in ``hashes``, slot)."""
        return self._index.probe(hashes)

    def probe_in_parts(self, hashes: Hashes) -> Iterator[tuple[Ints, Ints]]:
        """Like ``probe``, in parts; tuples of the reserve may be inserted between two parts."""
        if self.reserve is None:
            return self._index.probe_in_parts(hashes)
        return in_parts(self._index.probe(hashes))

    def probe_hashes(self, edge: Ints, members: Ints) -> tuple[Flags, Hashes]:
        """True for the members that have a join value for their edge, and the hashes to probe for those."""
        present, values = self.join_values(edge, members)
        if len(values) < len(edge):
            edge = edge[present]
        return present, index_hashes(self.key_sets.edge_index.take(edge), values)

    def partners(self, edge: Ints, values: Ints) -> Iterator[tuple[Ints, Ints]]:
        """The tuples to which edges lead by join values, as (position in ``edge``, slot), in parts.

        They agree on all 64 bits of their values.
        """
        sets, relations = self.key_sets.target.take(edge), self.key_sets.target_relation.take(edge)
        for position, slot in self.probe_in_parts(index_hashes(self.key_sets.edge_index.take(edge), values)):
            matches = self._values(slot, sets.take(position)) == values.take(position)
            matches &= self.tuples.relation.take(slot) == relations.take(position)
            if not matches.all():
                position, slot = position[matches], slot[matches]  # noqa: PLW2901 - the true matches
            yield position, slot

    def gather(self, edge: Ints, members: Ints) -> None:
        """Insert the members' partners that are still in the reserve; call this before a look-up."""
        if self.reserve is not None and len(edge):
            self.reserve.demand(*self.edge_values(edge, members))

    def edge_values(self, edge: Ints, members: Ints) -> tuple[Ints, Ints]:
        """The edges whose member has a join value, and the join values of the partners."""
        present, values = self.join_values(edge, members)
        return edge[present], values

    def join_values(self, edge: Ints, members: Ints) -> tuple[Flags, Ints]:
        """True for the members that have a join value for their edge, and those values."""
        values = self._values(members, self.key_sets.source.take(edge))
        present: Flags = values != NULL
        return present, values if present.all() else values[present]

    def are_joined(self, edge: Ints, source: Ints, target: Ints) -> Flags:
        """True for each pair that an edge joins: relation and all 64 bits of the values agree."""
        near = self._values(source, self.key_sets.source.take(edge))
        equal: Flags = near == self._values(target, self.key_sets.target.take(edge))
        equal &= self.tuples.relation.take(target) == self.key_sets.target_relation.take(edge)
        return equal

    def _values(self, slots: Ints, key_sets: Ints) -> Ints:
        return cells(self.tuples.keys, slots, key_sets)

    def end(self, slots: Ints, ticks: Ints) -> None:
        """End tuples early."""
        self._store.tuples.end[slots] = ticks

    def compact(self, horizon: int, dropped_slots: Ints = NOTHING) -> Ints:
        """Drop tuples that ended at or before ``horizon``, and those in the slots ``dropped_slots``.

        Returns the new number of each slot, -1 if it was dropped.
        """
        alive: Flags = self.tuples.end > horizon
        alive[dropped_slots] = False
        new_slots = self._store.keep(alive)
        self._index.remap(new_slots)
        return new_slots
