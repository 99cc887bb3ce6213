"""The tuples that windows may hold: their ends, and their keys. Ticks are positions in the stream.

A tuple ends with the last window that may hold it, by a deletion, or when
another of its key replaces it. Of equal rows without a key, a deletion ends
the oldest that a window may still hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from skws.data.batch import RecordBatch
from skws.queries.keywords.operator import KeywordOperator
from skws.queries.keywords.tuple_batch import TupleBatch
from skws_mesh.columnar.columns import Flags, Ints, distinct
from skws_mesh.columnar.store import NO_MEMBER
from skws_purging.lifespans import GroupKey, identity
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_schema.model import Row, Schema
from skws_windows.processor.spans import ANY, Spans, Tracker, keyless
from skws_windows.window import FOREVER


@dataclass(slots=True)
class Ended:
    """Ended tuples, by position, with the ticks of their ends; and new tuples that replaced another."""

    ends: dict[int, int] = field(default_factory=dict)
    successors: set[int] = field(default_factory=set)
    unmatched: int = 0


class Deletions:
    """Tuples that records end: those of keyed relations, and of others from their first deletion on."""

    def __init__(self, schema: Schema) -> None:
        self.relations = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self._schema = schema
        self._known: dict[GroupKey, list[int]] = {}  # positions of live tuples, in order

    def __len__(self) -> int:
        return len(self._known)

    def follow(self, relation: int, live: Iterable[tuple[int, Row]]) -> None:
        """Follow a relation from now on; ``live``: its live tuples with their positions, in order."""
        self.relations.add(relation)
        for position, row in live:
            self._known.setdefault(identity(self._schema, relation, row), []).append(position)

    def step(self, records: Iterable[tuple[int, int, Row, bool]], held_until: Callable[[int], int]) -> Ended:
        """Records of followed relations: (tick, relation, row, delete), in order.

        The tick of an insertion is its position; that of a deletion is the
        position of the next insertion. ``held_until``: the last tick at which a
        window may hold the tuple at a position.
        """
        ended = Ended()
        for tick, relation, row, delete in records:
            key = identity(self._schema, relation, row)
            live = self._known.setdefault(key, [])
            live[:] = [p for p in live if held_until(p) >= tick]
            _, _, keyed = key
            ended.unmatched += delete and not live
            if live and (keyed or delete):
                ended.ends[live.pop(0)] = tick
                if not delete:
                    ended.successors.add(tick)
            if not delete:
                live.append(tick)
        return ended

    def keep(self, positions: Collection[int]) -> None:
        """Forget tuples at other positions."""
        kept = {key: [p for p in live if p in positions] for key, live in self._known.items()}
        self._known = {key: live for key, live in kept.items() if live}


class Settled(NamedTuple):
    """The effects of a batch: known tuples that end, by slot, and new ones with their ends."""

    slots: Ints
    ends: Ints
    arrivals: TupleBatch
    unmatched: int


class Members:
    """The tuples of an operator, with the keys of a tracker's windows."""

    def __init__(self, schema: Schema, operator: KeywordOperator, tracker: Tracker) -> None:
        self._operator = operator
        self._tracker = tracker
        self._deletions = Deletions(schema)
        self._keys = np.zeros((0, len(tracker.fields)), dtype=np.int64)  # by slot

    @property
    def keys(self) -> Ints:
        """The codes of the keys of all tuples, by slot."""
        return self._keys

    @property
    def followed(self) -> set[int]:
        """The relations of which deletions are followed."""
        return self._deletions.relations

    def add_keys(self, keys: Ints) -> None:
        """Add the keys of tuples that are inserted next."""
        self._keys = np.concatenate([self._keys, keys])

    def add_static(self, count: int) -> None:
        """Add the keys of static tuples that are inserted next: they fit all."""
        self.add_keys(np.full((count, self._keys.shape[1]), ANY, dtype=np.int64))

    def settle(self, batch: RecordBatch, inserted: RecordBatch, spans: Spans) -> Settled:
        """The tuples that a batch ends or inserts; the tracker has read ``inserted``, its insertions."""
        deletes = batch.deletes()
        begin = self._tracker.position - len(inserted)
        ticks = begin + np.cumsum(~deletes) - ~deletes
        held = self._held(inserted, begin, spans)
        left = self._leaving(spans)
        self.follow(set(distinct(batch.relation[deletes]).tolist()) - self.followed)
        ended = self._ended(batch, inserted, ticks, spans)
        slots, ends = self._ends(left, ended)
        return Settled(slots, ends, self._arrivals(inserted, begin, held, spans, ended), ended.unmatched)

    def follow(self, relations: Iterable[int]) -> None:
        """Follow deletions of relations from now on."""
        tuples, known = self._operator.live.tuples, self._operator.known
        for relation in relations:
            alive = (tuples.relation == relation) & (tuples.end == FOREVER) & (tuples.start != ALWAYS)
            slots = np.flatnonzero(alive).tolist()
            self._deletions.follow(relation, ((int(tuples.start[slot]), known.row(slot)) for slot in slots))

    def key_of(self, members: Ints) -> tuple[Flags, Ints]:
        """Whether the tuples of each result agree on the key, and its codes: ANY for fields that none has."""
        codes = self._keys[members]
        codes[members == NO_MEMBER] = ANY
        greatest = codes.max(axis=1, initial=ANY)
        least = np.where(codes == ANY, FOREVER, codes).min(axis=1, initial=FOREVER)
        return ((least == FOREVER) | (least == greatest)).all(axis=1), greatest

    def renumber(self, slots: Ints) -> None:
        """Tuples get new slots; those below 0 are dropped."""
        kept = np.flatnonzero(slots >= 0)
        keys = np.empty((len(kept), self._keys.shape[1]), dtype=np.int64)
        keys[slots[kept]] = self._keys[kept]
        self._keys = keys
        if len(self._deletions):
            self._deletions.keep(set(self._operator.live.tuples.start.tolist()))

    def _held(self, inserted: RecordBatch, begin: int, spans: Spans, *, seen: bool = False) -> Ints:
        """The last ticks at which windows may hold the tuples of a batch."""
        position = np.arange(begin, begin + len(inserted))
        held = spans.leaving(position, inserted.time, spans.key, seen=seen)
        held[keyless(spans.key)] = -1
        return held

    def _leaving(self, spans: Spans, *, seen: bool = False) -> dict[int, int]:
        """The known tuples that leave in a batch: slots, with the last ticks at which windows hold them."""
        tuples, times = self._operator.live.tuples, self._operator.known.times
        alive = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS))
        left = spans.leaving(tuples.start[alive], times[alive], self._keys[alive], seen=seen)
        gone = left < FOREVER
        return dict(zip(alive[gone].tolist(), left[gone].tolist(), strict=True))

    def _ended(self, batch: RecordBatch, inserted: RecordBatch, ticks: Ints, spans: Spans) -> Ended:
        """The tuples that deletions and replacements of a batch end, by position."""
        followed = np.flatnonzero(np.isin(batch.relation, list(self.followed)))
        if not len(followed):
            return Ended()
        tuples = self._operator.live.tuples
        begin = self._tracker.position - len(inserted)
        held = self._held(inserted, begin, spans, seen=True)
        left = self._leaving(spans, seen=True)

        def held_until(position: int) -> int:
            if position >= begin:
                return int(held[position - begin])
            slot = self._slot(position)
            return -1 if slot is None or tuples.end[slot] < FOREVER else left.get(slot, FOREVER)

        of = batch.taken(followed)
        columns = (ticks[followed].tolist(), of.relation.tolist(), of.rows, of.deletes().tolist())
        return self._deletions.step(zip(*columns, strict=True), held_until)

    def _ends(self, left: dict[int, int], ended: Ended) -> tuple[Ints, Ints]:
        """The slots and ticks of known tuples that leave, or are deleted or replaced."""
        ends = {slot: tick + 1 for slot, tick in left.items()}
        for position, tick in ended.ends.items():
            slot = self._slot(position)
            if slot is not None:
                ends[slot] = min(ends.get(slot, FOREVER), tick)
        return np.array(list(ends), dtype=np.int64), np.array(list(ends.values()), dtype=np.int64)

    def _slot(self, position: int) -> int | None:
        starts = self._operator.live.tuples.start
        slot = int(np.searchsorted(starts, position))
        return slot if slot < len(starts) and starts[slot] == position else None

    def _arrivals(
        self, inserted: RecordBatch, begin: int, held: Ints, spans: Spans, ended: Ended
    ) -> TupleBatch:
        """The new tuples that a window may hold."""
        ends = np.where(held == FOREVER, FOREVER, held + 1)
        for position, tick in ended.ends.items():
            if position >= begin:
                ends[position - begin] = min(ends.item(position - begin), tick)
        kept = np.flatnonzero(ends > np.arange(begin, begin + len(inserted)))
        self.add_keys(spans.key[kept])
        taken = inserted.taken(kept)
        start = kept + begin
        new = TupleBatch(taken.relation, taken.rows, start, ends[kept], taken.time, start)
        return with_successors(new, np.isin(start, np.array(sorted(ended.successors), dtype=np.int64)))


def with_successors(new: TupleBatch, which: Flags) -> TupleBatch:
    """Mark the tuples that replaced another of their key: their names depend on it."""
    new.followed = {
        place: StreamTuple(
            int(new.relation[place]),
            new.rows.row(place),
            int(new.start[place]),
            FOREVER,
            successor=True,
            time=int(new.times[place]),
        )
        for place in np.flatnonzero(which).tolist()
    }
    return new
