"""The tuples behind slots: their rows, their names, and those that are followed one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mesh.columnar import LiveTuples
from mesh.columnar.columns import Flags, Ints, repeated
from schema.model import Row, Schema
from skws.batches import Rows
from skws.engine.row_store import RowStore
from skws.results.assemble import Named, TupleNames
from windows.tuples import ALWAYS, StreamTuple


class KnownTuples:
    """What is known of the live tuples besides their columns, by slot.

    ``slots`` are those of tuples that are followed: whose deletion is known,
    or whose name needs more than their row.
    """

    def __init__(self, schema: Schema, live: LiveTuples, per_position: int | None) -> None:
        self.slots: dict[StreamTuple, int] = {}
        self._live = live
        self._rows = RowStore()
        self._names = TupleNames(schema, per_position)
        self._followed: dict[int, StreamTuple] = {}
        self._occurrences: dict[int, int] = {}  # of tuples with others of their relation and instant
        self._named: dict[int, Named] = {}  # tuples of results, which tend to be in several
        self._latest = ALWAYS
        self._in_order = True  # slots are in order of start

    @property
    def times(self) -> Ints:
        """Event times by slot, in microseconds."""
        return self._rows.times

    @property
    def rows(self) -> Rows:
        """All rows, by slot."""
        return self._rows.rows()

    @property
    def followed(self) -> dict[int, StreamTuple]:
        """The tuples that are followed, by slot."""
        return self._followed

    def add(self, relation: Ints, start: Ints, rows: Rows, times: Ints) -> None:
        """Take in the tuples of the next slots."""
        self._rows.add(rows, times, self._twins(relation, start))

    def row(self, slot: int) -> Row:
        return self._rows.row(slot)

    def follow(self, known: StreamTuple, slot: int) -> None:
        """From now on the tuple of a slot is this one."""
        self.slots[known] = slot
        self._followed[slot] = known
        self._named.pop(slot, None)

    def release(self, known: list[StreamTuple]) -> Ints:
        """Follow tuples no longer; gives their slots."""
        slots = [self.slots.pop(each) for each in known]
        for slot in slots:
            del self._followed[slot]
        return np.array(slots, dtype=np.int64)

    def compact(self, slots: Ints) -> None:
        """Follow the live tuples when they get new slots."""
        self._rows.compact(slots)
        self._named.clear()
        self._occurrences.clear()
        moved = ((int(slots[slot]), known) for slot, known in self._followed.items())
        self._followed = {slot: known for slot, known in moved if slot >= 0}
        self.slots = {known: slot for slot, known in self._followed.items()}

    def pack(self) -> None:
        """Let rows go that share a block with few that are alive."""
        self._rows.pack()

    def name(self, slot: int) -> Named:
        """The tuple in a slot as results show it."""
        return self._named.get(slot) or self.names(np.array([slot], dtype=np.int64))[0]

    def names(self, slots: Ints) -> list[Named]:
        """The tuples in some slots as results show them."""
        named, asked = self._named, slots.tolist()
        if self._followed:
            for slot in (self._followed.keys() & asked) - named.keys():
                named[slot] = self._names.of(self._followed[slot])
        plain = slots
        if named:
            plain = np.array([slot for slot in asked if slot not in named], dtype=np.int64)
        plain = self._rows.in_order(plain)
        starts = self._live.tuples.start[plain].tolist()
        made: list[Named] = []
        for relation, rows in self._rows.by_block(plain):
            made += self._names.relations[relation].firsts(rows, starts[len(made) : len(made) + len(rows)])
        named.update(zip(plain.tolist(), made, strict=True))
        for slot in plain[self._rows.twins[plain]].tolist():
            named[slot] = self._names.of(self.member(slot))
        return list(map(named.__getitem__, asked))

    def member(self, slot: int) -> StreamTuple:
        """The tuple in a slot."""
        known = self._followed.get(slot)
        if known is not None:
            return known
        relation, start, end = self._live.tuple_in(slot)
        occurrence = self._occurrence(slot, relation, start) if self._rows.has_twins(slot) else 0
        time, place = self._rows.time(slot), self._live.tuples.place.item(slot)
        return StreamTuple(
            relation, self._rows.row(slot), start, end, occurrence=occurrence, time=time, place=place
        )

    def _occurrence(self, slot: int, relation: int, start: int) -> int:
        """How many equal tuples of the same instant came before; found for all of an instant at once."""
        if slot not in self._occurrences:
            tuples = self._live.tuples
            first = int(np.searchsorted(tuples.start, start)) if self._in_order else 0
            among = (tuples.relation[first:] == relation) & (tuples.start[first:] == start)
            before: Counter[Row] = Counter()
            for other in (np.flatnonzero(among) + first).tolist():
                row = self._rows.row(other)
                self._occurrences[other] = before[row]
                before[row] += 1
        return self._occurrences[slot]

    def _twins(self, relation: Ints, start: Ints) -> Flags:
        """Which new tuples may not be the first of their relation at their instant."""
        twins = _with_twins(relation, start)
        earlier = start <= self._latest
        if earlier.any():  # in the middle of an instant, late, or a static tuple that is wanted now
            twins |= earlier & (start != ALWAYS)
            self._in_order &= bool((start >= self._latest).all())
        if len(start):
            self._latest = max(self._latest, int(start.max()))
        return twins


def _with_twins(relation: Ints, start: Ints) -> Flags:
    """Which tuples are not the only one of their relation at their instant."""
    streaming = start != ALWAYS  # static tuples have their name already
    if not streaming.all():
        twins = np.zeros(len(start), dtype=bool)
        twins[streaming] = _with_twins(relation[streaming], start[streaming])
        return twins
    if (start[1:] < start[:-1]).any():
        instant = np.unique(start, return_inverse=True)[1]
    else:
        instant = np.cumsum(np.diff(start, prepend=start[:1]) != 0)
    return repeated(instant * (int(relation.max(initial=0)) + 1) + relation)
