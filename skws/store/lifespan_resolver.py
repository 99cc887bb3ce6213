"""Resolves the lifespans of the tuples in a batch, which other records may end.

A relation with a key is followed from the start, another one from its first deletion on. Nearly always only
one tuple of an identity is alive, and no earlier record can come: then whole batches are settled as columns
(``_Plain``). Only the tuples of other identities are Python objects, whose lifespans ``Lifespans`` settles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import itemgetter

import numpy as np
import orjson

from skws.data.batch import Record, RecordBatch
from skws.store.live_store import LiveStore
from skws.store.tuple_batch import natural_ends
from skws_mesh.columnar.columns import NOTHING, Flags, Hashes, Ints, distinct
from skws_purging.lifespans import ALWAYS, Front, GroupKey, Lifespans, StreamTuple, identity
from skws_schema.model import Row, Schema, Value
from skws_windows.window import FOREVER, ArrivalWindow, Window


@dataclass(slots=True)
class Settled:
    """The effects of records.

    For tuples that are followed as objects: the new ones, and known ones with their former ends. For others:
    ``lives`` are the numbers of the records that insert one, ``ends`` the ticks at which it ends;
    ``ended_slots`` are the known ones that end, ``ended_ticks`` the ticks of their ends. ``ended_at`` and
    ``ended_times``: the event times of these ends, FOREVER if no record ends a tuple.
    """

    new: list[StreamTuple] = field(default_factory=list)
    ended: list[tuple[StreamTuple, int]] = field(default_factory=list)
    prolonged: list[tuple[StreamTuple, int]] = field(default_factory=list)
    unmatched: int = 0
    lives: Ints = field(default_factory=NOTHING.copy)
    ends: Ints = field(default_factory=NOTHING.copy)
    ended_slots: Ints = field(default_factory=NOTHING.copy)
    ended_ticks: Ints = field(default_factory=NOTHING.copy)
    ended_at: Ints = field(default_factory=NOTHING.copy)
    ended_times: Ints = field(default_factory=NOTHING.copy)


def fronts_to_bytes(fronts: Sequence[Front]) -> bytes:
    """The fronts as JSON; empty if there are none."""
    return orjson.dumps(list(map(tuple, fronts))) if fronts else b""


def fronts_of(state: bytes) -> list[Front]:
    """Inverse of ``fronts_to_bytes``, of a state that is not empty."""
    return [Front(relation, tuple(row), *rest) for relation, row, *rest in orjson.loads(state)]


class LifespanResolver:
    """Settles the records of followed relations. ``lateness``: in ticks.

    It decides which tuples of ``store`` are followed as objects.
    """

    def __init__(self, schema: Schema, window: Window, store: LiveStore, lateness: int = 0) -> None:
        self._schema = schema
        self._window = window
        self._store = store
        self._lifespans = Lifespans(schema, window, lateness, self)
        self._by_columns = not lateness
        self._objects: dict[GroupKey, int] = {}  # hashes, by the identity of tuples followed as objects
        self._kept: list[StreamTuple] = []
        self._fronts_end = ALWAYS

    def __len__(self) -> int:
        """The number of identities whose tuples are followed as objects."""
        return len(self._lifespans)

    @property
    def relations(self) -> set[int]:
        """The relations that are followed."""
        return self._store.singles.followed

    def keep(self, known: StreamTuple) -> None:
        """Stop following a tuple as an object (``skws_purging.lifespans.Keeper``)."""
        if known in self._store.directory.slots:
            self._kept.append(known)

    def gone(self, key: GroupKey) -> None:
        """Forget an identity (``skws_purging.lifespans.Keeper``)."""
        self._objects.pop(key, None)

    def follow(self, relation: int, slots: Ints) -> None:
        """Start following a relation with these live tuples."""
        rows = self._store.directory.some_rows(slots)
        self._remember(self._store.singles.follow(relation, slots, rows))

    def load(self) -> None:
        """Index the tuples of the store, which were all appended, by identity."""
        self._remember(self._store.singles.index(self._store.live.tuples.relation))

    def _remember(self, slots: Ints) -> None:
        """Follow live tuples that are not single as objects."""
        starts = self._store.live.tuples.start.take(slots)
        for each in self._as_objects(slots[np.argsort(starts, kind="stable")]):
            self._lifespans.remember(each)

    def _as_objects(self, slots: Ints) -> list[StreamTuple]:
        """Follow single tuples as objects; returns the objects."""
        singles = self._store.singles
        singles.release(slots)
        objects = self._store.directory.as_objects(slots)
        if self._by_columns:
            keys = (identity(self._schema, known.relation, known.row) for known in objects)
            self._objects |= dict(zip(keys, singles.hashes(slots).tolist(), strict=True))
        return objects

    def await_late(self) -> None:
        """Accept records in any order from now on, back to the horizon."""
        self._lifespans.await_late()
        self._by_columns = False

    def forget(self, horizon: int) -> None:
        """Forget tuples that no record at or after ``horizon`` can change."""
        self._lifespans.forget(horizon)
        if self._kept:
            self._store.singles.take_back(self._store.directory.release(self._kept))
            self._kept.clear()

    def snapshot(self, horizon: int) -> bytes:
        """The state to ``expect`` before a replay; empty if none. No later record is before ``horizon``."""
        return fronts_to_bytes(self._lifespans.fronts(horizon))

    def leading_records(self) -> tuple[list[Record], list[StreamTuple]]:
        """The records that rebuild tuples which are not the only one of their identity, and these tuples.

        The records include truncations, and deleted rows that are equal to others of their instant: the names
        of the others depend on their number.
        """
        records: list[tuple[int, int, Record]] = []  # by time and arrival
        tuples: list[StreamTuple] = []
        for relation, tick, arrival in self._lifespans.truncations():
            records.append((tick, arrival, Record.truncation(relation, tick)))
        for key, timeline in self._lifespans.timelines():
            for known in islice(timeline.before, 1):
                for _ in range(known.occurrence):
                    record = Record(known.relation, known.time, known.row)
                    records.append((known.time, -1, record))
                    records.append((known.time, -1, record._replace(delete=True)))
            for known in timeline.before:
                records.append((known.time, -1, Record(known.relation, known.time, known.row)))
                tuples.append(known)
            for mark in timeline.marks:
                if mark.truncates:
                    continue  # the truncations above include it
                if mark.inserted is None:
                    record = Record(key[0], mark.tick, self._row(key), True)
                else:
                    record = Record(key[0], mark.tick, mark.inserted.row)
                    tuples.append(mark.inserted)
                records.append((mark.tick, mark.arrival, record))
        return [record for _, _, record in sorted(records, key=itemgetter(0, 1))], tuples

    def _row(self, key: GroupKey) -> Row:
        """A row with an identity; if that is a key, the other values are NULL."""
        relation, values, keyed = key
        if not keyed:
            return values
        described = self._schema.relations[relation]
        row: list[Value] = [None] * len(described.attributes)
        for column, value in zip(described.key_columns, values, strict=True):
            row[column] = value
        return tuple(row)

    def expect(self, state: bytes) -> None:
        """Prepare the replay of a log up to a state from ``snapshot``."""
        if not state:
            return
        fronts = fronts_of(state)
        self._lifespans.expect(fronts)
        self._fronts_end = max((front.tick for front in fronts), default=ALWAYS)
        self.relations.update(front.relation for front in fronts)

    def change_schema(self, schema: Schema, store: LiveStore) -> None:
        """Continue with another store and a changed schema, in which relations keep their positions."""
        removed = schema.evolution.removed_relations
        store.singles.followed |= self.relations - removed
        self._schema = schema
        self._store = store
        self._lifespans.change_schema(schema)
        self._objects = {key: known for key, known in self._objects.items() if key[0] not in removed}

    def settle(self, batch: RecordBatch, ticks: Ints, places: Ints) -> Settled:
        """Apply the records of followed relations, in order of ticks, and set the ends of tuples.

        ``places``: the order of arrival.
        """
        settled = Settled()
        if not len(batch):
            return settled
        truncates = batch.truncations()
        whole = np.arange(len(batch)) if not truncates.any() else np.flatnonzero(~truncates)
        truncated = distinct(batch.relation[truncates]) if len(whole) < len(batch) else NOTHING
        some = batch.take(whole) if len(truncated) else batch
        hashes, keyed = self._store.singles.identities.of(some.rows)
        plain = _Plain(self._store, self._window, some, ticks.take(whole), hashes, keyed)
        contested = self._contested(plain, truncated)
        plain.settle(~contested, whole, settled)
        if len(truncated):
            self._truncate(batch, ticks, truncated, plain, settled)
        rest = truncates.copy()
        rest[whole] = contested
        numbers = np.flatnonzero(rest)
        if len(numbers):
            for known in self._as_objects(plain.met(contested)):
                self._lifespans.take_over(known)
            self._settle(batch.take(numbers), ticks.take(numbers), places.take(numbers), settled)
            if self._by_columns:
                self._objects |= {
                    key: of for key, of in plain.identities(contested) if key in self._lifespans
                }
        return settled

    def _contested(self, plain: _Plain, truncated: Ints) -> Flags:
        """True for records whose identities must be followed as objects."""
        if not self._by_columns:
            return np.ones(len(plain), dtype=bool)
        contested = plain.of_several(plain.ticks < self._fronts_end)
        if self._objects:
            object_hashes = np.fromiter(self._objects.values(), dtype=np.uint64, count=len(self._objects))
            contested |= np.isin(plain.hashes, object_hashes)
        if len(truncated):
            contested |= np.isin(plain.relation, truncated)
        return contested

    def _truncate(
        self, batch: RecordBatch, ticks: Ints, truncated: Ints, plain: _Plain, settled: Settled
    ) -> None:
        """End the single tuples of truncated relations, or follow them as objects.

        Tuples that other records of the batch may also end are handled with the contested records.
        """
        live = self._store.live.tuples
        for relation in truncated.tolist():
            at = np.flatnonzero(batch.truncations() & (batch.relation == relation))[0]
            first, time = int(ticks[at]), int(batch.time[at])
            mine = self._store.singles.of(np.flatnonzero((live.relation == relation) & (live.end > first)))
            mine = np.setdiff1d(mine, plain.slots)
            ends: Flags = live.start.take(mine) < first
            if not self._by_columns:
                ends[:] = False
            for known in self._as_objects(mine[~ends]):
                self._lifespans.take_over(known)
            settled.ended_slots = np.concatenate([settled.ended_slots, mine[ends]])
            count = np.count_nonzero(ends)
            settled.ended_ticks = np.concatenate([settled.ended_ticks, np.full(count, first)])
            settled.ended_times = np.concatenate([settled.ended_times, np.full(count, time)])
        self._store.singles.release(settled.ended_slots)

    def _settle(self, batch: RecordBatch, ticks: Ints, places: Ints, settled: Settled) -> None:
        """Apply records to tuples that are followed as objects."""
        place = iter(places.tolist())
        new: dict[StreamTuple, None] = {}
        before: dict[StreamTuple, int] = {}
        for tick, step in self._steps(batch, ticks):
            records = ((r.relation, r.row, r.delete, r.time, next(place)) for r in step)
            changes = self._lifespans.step(tick, records)
            settled.unmatched += changes.unmatched
            new.update(dict.fromkeys(changes.inserted))
            for late in changes.inserted:  # perhaps after the record that ended it
                self._end(late, late.end, late.end)
            for known, end in changes.ended + changes.prolonged:
                if known not in new:
                    before.setdefault(known, known.end)
                self._end(known, end, step[0].time)
        settled.new = list(new)
        for known, former in before.items():
            if known.end != former:
                (settled.ended if known.end < former else settled.prolonged).append((known, former))

    def _end(self, known: StreamTuple, end: int, time: int) -> None:
        known.end = end
        if end == self._window.end(known.start):
            known.ended_at = None
        else:
            known.ended_at = time if isinstance(self._window, ArrivalWindow) else end

    def _steps(self, batch: RecordBatch, ticks: Ints) -> Iterator[tuple[int, list[Record]]]:
        """The records by instant, as in the paper's engine; several instants may lie between two arrivals."""
        records = list(batch.records())
        new = (ticks[1:] != ticks[:-1]) | (batch.time[1:] != batch.time[:-1])
        for first, end in pairwise([0, *(np.flatnonzero(new) + 1).tolist(), len(batch)]):
            yield ticks.item(first), records[first:end]


class _Plain:
    """Records, grouped by the hashes of their identities, and the single tuples that they may end.

    ``slots``: single tuples with these hashes that live. ``ticks`` are in order.
    """

    def __init__(
        self, store: LiveStore, window: Window, batch: RecordBatch, ticks: Ints, hashes: Hashes, keyed: Flags
    ) -> None:
        self.relation, self.ticks, self.hashes = batch.relation, ticks, hashes
        self._store, self._window, self._batch, self._keyed = store, window, batch, keyed
        self._deletes = batch.deletes()
        self._natural = natural_ends(window, ticks)
        # Records in order of their hashes, then of arrival.
        self._order = np.argsort(hashes, kind="stable")
        ordered = hashes.take(self._order)
        self._first: Flags = np.ones(len(batch), dtype=bool)
        np.not_equal(ordered[1:], ordered[:-1], out=self._first[1:])
        self._group = np.cumsum(self._first) - 1  # in that order
        self._heads = np.flatnonzero(self._first)
        group, slots = store.singles.with_hashes(ordered.take(self._heads))
        begin = ticks.take(self._order.take(self._heads.take(group)))
        living = store.live.tuples.end.take(slots) > begin
        self._of_slot, self.slots = group[living], slots[living]

    def __len__(self) -> int:
        return len(self._order)

    def of_several(self, queued: Flags) -> Flags:
        """True for records whose identity may have several live tuples, or shares its hash with another.

        ``queued``: records at which equal rows without a key may queue.
        """
        order, tuples = self._order, self._store.live.tuples
        tick, keyed = self.ticks.take(order), self._keyed.take(order)
        deletes, alive = self._deletes.take(order), self._alive(order)
        several = ~keyed & queued.take(order)
        # An equal row without a key queues up; the name of a row depends on equal rows of its instant.
        several |= ~keyed & ~deletes & alive
        several[1:] |= (~keyed & ~self._first)[1:] & ~deletes[:-1] & (tick[1:] == tick[:-1])
        several |= self._differs(order)
        groups = np.zeros(len(self._heads), dtype=bool)
        groups[self._group[several]] = True
        counts = np.bincount(self._of_slot, minlength=len(self._heads))
        groups |= counts > 1
        begin = tick.take(self._heads.take(self._of_slot))
        groups[self._of_slot[tuples.start.take(self.slots) >= begin]] = True  # in the middle of an instant
        groups[self._of_slot[self._slots_differ()]] = True
        is_several = np.empty(len(order), dtype=bool)
        is_several[order] = groups.take(self._group)
        return is_several

    def settle(self, plain: Flags, numbers: Ints, settled: Settled) -> None:
        """Apply the ``plain`` records; ``numbers``: of all records."""
        order = self._order
        mine = plain.take(order)
        tick = self.ticks.take(order)
        deletes = self._deletes.take(order)
        alive = self._alive(order)
        settled.unmatched += int(np.count_nonzero(mine & deletes & ~alive))
        ends = self._natural.take(order)
        followed = np.flatnonzero(~self._first[1:])
        ends[followed] = np.minimum(ends[followed], tick[followed + 1])
        time = self._batch.time.take(order)
        ended_at = np.full(len(order), FOREVER)
        early = followed[ends[followed] < self._natural.take(order[followed])]
        ended_at[early] = time[early + 1]
        lives = mine & ~deletes & (ends > tick)
        places = np.argsort(order[lives], kind="stable")
        settled.lives = numbers.take(order[lives][places])
        settled.ends, settled.ended_at = ends[lives][places], ended_at[lives][places]
        heads = self._heads.take(self._of_slot)
        ending = mine.take(heads)
        settled.ended_slots, settled.ended_ticks = self.slots[ending], tick.take(heads)[ending]
        settled.ended_times = time.take(heads)[ending]
        self._store.singles.release(settled.ended_slots)

    def met(self, some: Flags) -> Ints:
        """All single tuples with the hashes of some records."""
        return self.slots[some.take(self._order.take(self._heads.take(self._of_slot)))]

    def identities(self, some: Flags) -> Iterator[tuple[GroupKey, int]]:
        """The identities of some records, with their hashes."""
        numbers = np.flatnonzero(some)
        keyed = self._keyed.take(numbers)
        values = self._store.singles.identities.values(self._batch.rows.take(numbers), keyed)
        keys = zip(self.relation.take(numbers).tolist(), values, keyed.tolist(), strict=True)
        return zip(keys, self.hashes.take(numbers).tolist(), strict=True)

    def _alive(self, order: Ints) -> Flags:
        """True for records with a tuple of their identity that is alive just before them; by ``order``."""
        tick, inserts = self.ticks.take(order), ~self._deletes.take(order)
        alive = np.zeros(len(order), dtype=bool)
        alive[1:] = inserts[:-1] & (self._natural.take(order)[:-1] > tick[1:])
        alive[self._heads] = False
        alive[self._heads.take(self._of_slot)] = True
        return alive

    def _differs(self, order: Ints) -> Flags:
        """True for records whose identity differs from that of the record before, which has the same hash."""
        singles = self._store.singles
        relation, keyed = self.relation.take(order), self._keyed.take(order)
        differs = np.zeros(len(order), dtype=bool)
        differs[1:] = (relation[1:] != relation[:-1]) | (keyed[1:] != keyed[:-1])
        differs[self._heads] = False
        doubtful = ~self._first & ~singles.identities.told_apart(relation, keyed) & ~differs
        if doubtful.any():
            after = np.flatnonzero(doubtful)
            some = distinct(np.concatenate([after, after - 1]))
            rows = self._batch.rows.take(order.take(some))
            values = dict(zip(some.tolist(), singles.identities.values(rows, keyed.take(some)), strict=True))
            differs[after] = [values[at] != values[at - 1] for at in after.tolist()]
        return differs

    def _slots_differ(self) -> Flags:
        """True for single tuples whose identity differs from that of the first record with their hash."""
        singles, slots = self._store.singles, self.slots
        records = self._order.take(self._heads.take(self._of_slot))
        relation, keyed = self.relation.take(records), self._keyed.take(records)
        differs: Flags = self._store.live.tuples.relation.take(slots) != relation
        differs |= singles.keyed(slots) != keyed
        doubtful = np.flatnonzero(~singles.identities.told_apart(relation, keyed) & ~differs)
        if len(doubtful):
            of = keyed.take(doubtful)
            mine = singles.identities.values(self._batch.rows.take(records.take(doubtful)), of)
            theirs = singles.identities.values(self._store.directory.some_rows(slots.take(doubtful)), of)
            differs[doubtful] = [one != other for one, other in zip(mine, theirs, strict=True)]
        return differs
