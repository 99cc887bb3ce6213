"""Resolves the lifespans of the tuples in a batch, which other records may end.

A relation with a key is followed from the start, another one from its first deletion on. Nearly always only
one tuple of an identity is alive, and no earlier record can come: then whole batches are settled as columns
(``_PlainRecords``). Only the tuples of other identities are Python objects, whose lifespans ``Lifespans``
settles.
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
        self._object_hashes: dict[GroupKey, int] = {}  # hashes, by the identity of tuples followed as objects
        self._released_tuples: list[StreamTuple] = []
        self._fronts_end = ALWAYS

    def __len__(self) -> int:
        """The number of identities whose tuples are followed as objects."""
        return len(self._lifespans)

    @property
    def relations(self) -> set[int]:
        """The relations that are followed."""
        return self._store.singles.followed

    def keep(self, member: StreamTuple) -> None:
        """Stop following a tuple as an object (``skws_purging.lifespans.Keeper``)."""
        if member in self._store.directory.slots:
            self._released_tuples.append(member)

    def forget_identity(self, key: GroupKey) -> None:
        """Forget an identity (``skws_purging.lifespans.Keeper``)."""
        self._object_hashes.pop(key, None)

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
        for member in self._as_objects(slots[np.argsort(starts, kind="stable")]):
            self._lifespans.remember(member)

    def _as_objects(self, slots: Ints) -> list[StreamTuple]:
        """Follow single tuples as objects; returns the objects."""
        singles = self._store.singles
        singles.release(slots)
        objects = self._store.directory.as_objects(slots)
        if self._by_columns:
            keys = (identity(self._schema, each.relation, each.row) for each in objects)
            self._object_hashes |= dict(zip(keys, singles.hashes(slots).tolist(), strict=True))
        return objects

    def await_late(self) -> None:
        """Accept records in any order from now on, back to the horizon."""
        self._lifespans.await_late()
        self._by_columns = False

    def forget(self, horizon: int) -> None:
        """Forget tuples that no record at or after ``horizon`` can change."""
        self._lifespans.forget(horizon)
        if self._released_tuples:
            self._store.singles.make_single(self._store.directory.release(self._released_tuples))
            self._released_tuples.clear()

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
            for member in islice(timeline.before, 1):
                for _ in range(member.occurrence):
                    record = Record(member.relation, member.time, member.row)
                    records.append((member.time, -1, record))
                    records.append((member.time, -1, record._replace(delete=True)))
            for member in timeline.before:
                records.append((member.time, -1, Record(member.relation, member.time, member.row)))
                tuples.append(member)
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
        relation, values, is_keyed = key
        if not is_keyed:
            return values
        relation_schema = self._schema.relations[relation]
        row: list[Value] = [None] * len(relation_schema.attributes)
        for column, value in zip(relation_schema.key_columns, values, strict=True):
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
        removed_relations = schema.evolution.removed_relations
        store.singles.followed |= self.relations - removed_relations
        self._schema = schema
        self._store = store
        self._lifespans.change_schema(schema)
        self._object_hashes = {
            key: object_hash
            for key, object_hash in self._object_hashes.items()
            if key[0] not in removed_relations
        }

    def settle(self, batch: RecordBatch, ticks: Ints, places: Ints) -> Settled:
        """Apply the records of followed relations, in order of ticks, and set the ends of tuples.

        ``places``: the order of arrival.
        """
        effects = Settled()
        if not len(batch):
            return effects
        truncates = batch.truncations()
        row_numbers = np.arange(len(batch)) if not truncates.any() else np.flatnonzero(~truncates)
        truncated_relations = (
            distinct(batch.relation[truncates]) if len(row_numbers) < len(batch) else NOTHING
        )
        rows = batch.take(row_numbers) if len(truncated_relations) else batch
        hashes, keyed = self._store.singles.identities.of(rows.rows)
        plain_records = _PlainRecords(self._store, self._window, rows, ticks.take(row_numbers), hashes, keyed)
        is_contested = self._contested_flags(plain_records, truncated_relations)
        plain_records.settle(~is_contested, row_numbers, effects)
        if len(truncated_relations):
            self._truncate(batch, ticks, truncated_relations, plain_records, effects)
        by_objects = truncates.copy()
        by_objects[row_numbers] = is_contested
        numbers = np.flatnonzero(by_objects)
        if len(numbers):
            for member in self._as_objects(plain_records.slots_of(is_contested)):
                self._lifespans.take_over(member)
            self._settle(batch.take(numbers), ticks.take(numbers), places.take(numbers), effects)
            if self._by_columns:
                self._object_hashes |= {
                    key: object_hash
                    for key, object_hash in plain_records.identities(is_contested)
                    if key in self._lifespans
                }
        return effects

    def _contested_flags(self, plain_records: _PlainRecords, truncated_relations: Ints) -> Flags:
        """True for records whose identities must be followed as objects."""
        if not self._by_columns:
            return np.ones(len(plain_records), dtype=bool)
        is_contested = plain_records.may_have_several(plain_records.ticks < self._fronts_end)
        if self._object_hashes:
            object_hashes = np.fromiter(
                self._object_hashes.values(), dtype=np.uint64, count=len(self._object_hashes)
            )
            is_contested |= np.isin(plain_records.hashes, object_hashes)
        if len(truncated_relations):
            is_contested |= np.isin(plain_records.relation, truncated_relations)
        return is_contested

    def _truncate(
        self, batch: RecordBatch, ticks: Ints, relations: Ints, plain_records: _PlainRecords, effects: Settled
    ) -> None:
        """End the single tuples of truncated relations, or follow them as objects.

        Tuples that other records of the batch may also end are handled with the contested records.
        """
        live = self._store.live.tuples
        for relation in relations.tolist():
            position = np.flatnonzero(batch.truncations() & (batch.relation == relation))[0]
            first, time = int(ticks[position]), int(batch.time[position])
            slots = self._store.singles.of(np.flatnonzero((live.relation == relation) & (live.end > first)))
            slots = np.setdiff1d(slots, plain_records.slots)
            is_ended: Flags = live.start.take(slots) < first
            if not self._by_columns:
                is_ended[:] = False
            for member in self._as_objects(slots[~is_ended]):
                self._lifespans.take_over(member)
            effects.ended_slots = np.concatenate([effects.ended_slots, slots[is_ended]])
            count = np.count_nonzero(is_ended)
            effects.ended_ticks = np.concatenate([effects.ended_ticks, np.full(count, first)])
            effects.ended_times = np.concatenate([effects.ended_times, np.full(count, time)])
        self._store.singles.release(effects.ended_slots)

    def _settle(self, batch: RecordBatch, ticks: Ints, places: Ints, effects: Settled) -> None:
        """Apply records to tuples that are followed as objects."""
        place = iter(places.tolist())
        new_tuples: dict[StreamTuple, None] = {}
        former_ends: dict[StreamTuple, int] = {}
        for tick, step in self._steps(batch, ticks):
            records = ((r.relation, r.row, r.delete, r.time, next(place)) for r in step)
            changes = self._lifespans.step(tick, records)
            effects.unmatched += changes.unmatched
            new_tuples.update(dict.fromkeys(changes.inserted))
            for inserted_tuple in changes.inserted:  # perhaps after the record that ended it
                self._end(inserted_tuple, inserted_tuple.end, inserted_tuple.end)
            for member, end in changes.ended + changes.prolonged:
                if member not in new_tuples:
                    former_ends.setdefault(member, member.end)
                self._end(member, end, step[0].time)
        effects.new = list(new_tuples)
        for member, former_end in former_ends.items():
            if member.end != former_end:
                (effects.ended if member.end < former_end else effects.prolonged).append((member, former_end))

    def _end(self, member: StreamTuple, end: int, time: int) -> None:
        member.end = end
        if end == self._window.end(member.start):
            member.ended_at = None
        else:
            member.ended_at = time if isinstance(self._window, ArrivalWindow) else end

    def _steps(self, batch: RecordBatch, ticks: Ints) -> Iterator[tuple[int, list[Record]]]:
        """The records by instant, as in the paper's engine; several instants may lie between two arrivals."""
        records = list(batch.records())
        begins_instant = (ticks[1:] != ticks[:-1]) | (batch.time[1:] != batch.time[:-1])
        for first, end in pairwise([0, *(np.flatnonzero(begins_instant) + 1).tolist(), len(batch)]):
            yield ticks.item(first), records[first:end]


class _PlainRecords:
    """Records, grouped by the hashes of their identities, and the single tuples that they may end.

    ``slots``: single tuples with these hashes that live. ``ticks`` are in order.
    """

    def __init__(
        self, store: LiveStore, window: Window, batch: RecordBatch, ticks: Ints, hashes: Hashes, keyed: Flags
    ) -> None:
        self.relation, self.ticks, self.hashes = batch.relation, ticks, hashes
        self._store, self._window, self._batch, self._keyed = store, window, batch, keyed
        self._deletes = batch.deletes()
        self._window_ends = natural_ends(window, ticks)
        # Records in order of their hashes, then of arrival.
        self._order = np.argsort(hashes, kind="stable")
        sorted_hashes = hashes.take(self._order)
        self._is_first: Flags = np.ones(len(batch), dtype=bool)
        np.not_equal(sorted_hashes[1:], sorted_hashes[:-1], out=self._is_first[1:])
        self._group = np.cumsum(self._is_first) - 1  # in that order
        self._heads = np.flatnonzero(self._is_first)
        group, slots = store.singles.with_hashes(sorted_hashes.take(self._heads))
        begin = ticks.take(self._order.take(self._heads.take(group)))
        is_live = store.live.tuples.end.take(slots) > begin
        self._group_of_slot, self.slots = group[is_live], slots[is_live]

    def __len__(self) -> int:
        return len(self._order)

    def may_have_several(self, may_queue: Flags) -> Flags:
        """True for records whose identity may have several live tuples, or shares its hash with another.

        ``may_queue``: records at which equal rows without a key may queue.
        """
        order, tuples = self._order, self._store.live.tuples
        tick, keyed = self.ticks.take(order), self._keyed.take(order)
        deletes, has_live_tuple = self._deletes.take(order), self._has_live_tuple(order)
        in_doubt = ~keyed & may_queue.take(order)
        # An equal row without a key queues up; the name of a row depends on equal rows of its instant.
        in_doubt |= ~keyed & ~deletes & has_live_tuple
        in_doubt[1:] |= (~keyed & ~self._is_first)[1:] & ~deletes[:-1] & (tick[1:] == tick[:-1])
        in_doubt |= self._differs(order)
        groups = np.zeros(len(self._heads), dtype=bool)
        groups[self._group[in_doubt]] = True
        counts = np.bincount(self._group_of_slot, minlength=len(self._heads))
        groups |= counts > 1
        begin = tick.take(self._heads.take(self._group_of_slot))
        # In the middle of an instant.
        groups[self._group_of_slot[tuples.start.take(self.slots) >= begin]] = True
        groups[self._group_of_slot[self._slots_differ()]] = True
        is_several = np.empty(len(order), dtype=bool)
        is_several[order] = groups.take(self._group)
        return is_several

    def settle(self, is_plain: Flags, numbers: Ints, effects: Settled) -> None:
        """Apply the records flagged in ``is_plain``; ``numbers``: of all records."""
        order = self._order
        is_applied = is_plain.take(order)
        tick = self.ticks.take(order)
        deletes = self._deletes.take(order)
        has_live_tuple = self._has_live_tuple(order)
        effects.unmatched += int(np.count_nonzero(is_applied & deletes & ~has_live_tuple))
        ends = self._window_ends.take(order)
        successors = np.flatnonzero(~self._is_first[1:])
        ends[successors] = np.minimum(ends[successors], tick[successors + 1])
        time = self._batch.time.take(order)
        end_times = np.full(len(order), FOREVER)
        ended_early = successors[ends[successors] < self._window_ends.take(order[successors])]
        end_times[ended_early] = time[ended_early + 1]
        is_inserted = is_applied & ~deletes & (ends > tick)
        places = np.argsort(order[is_inserted], kind="stable")
        effects.lives = numbers.take(order[is_inserted][places])
        effects.ends, effects.ended_at = ends[is_inserted][places], end_times[is_inserted][places]
        heads = self._heads.take(self._group_of_slot)
        is_ended = is_applied.take(heads)
        effects.ended_slots, effects.ended_ticks = self.slots[is_ended], tick.take(heads)[is_ended]
        effects.ended_times = time.take(heads)[is_ended]
        self._store.singles.release(effects.ended_slots)

    def slots_of(self, flags: Flags) -> Ints:
        """All single tuples with the hashes of some records."""
        return self.slots[flags.take(self._order.take(self._heads.take(self._group_of_slot)))]

    def identities(self, flags: Flags) -> Iterator[tuple[GroupKey, int]]:
        """The identities of some records, with their hashes."""
        numbers = np.flatnonzero(flags)
        is_keyed = self._keyed.take(numbers)
        values = self._store.singles.identities.values(self._batch.rows.take(numbers), is_keyed)
        keys = zip(self.relation.take(numbers).tolist(), values, is_keyed.tolist(), strict=True)
        return zip(keys, self.hashes.take(numbers).tolist(), strict=True)

    def _has_live_tuple(self, order: Ints) -> Flags:
        """True for records with a tuple of their identity that is alive just before them; by ``order``."""
        tick, inserts = self.ticks.take(order), ~self._deletes.take(order)
        is_alive = np.zeros(len(order), dtype=bool)
        is_alive[1:] = inserts[:-1] & (self._window_ends.take(order)[:-1] > tick[1:])
        is_alive[self._heads] = False
        is_alive[self._heads.take(self._group_of_slot)] = True
        return is_alive

    def _differs(self, order: Ints) -> Flags:
        """True for records whose identity differs from that of the record before, which has the same hash."""
        singles = self._store.singles
        relation, keyed = self.relation.take(order), self._keyed.take(order)
        differs = np.zeros(len(order), dtype=bool)
        differs[1:] = (relation[1:] != relation[:-1]) | (keyed[1:] != keyed[:-1])
        differs[self._heads] = False
        is_doubtful = ~self._is_first & ~singles.identities.is_exact(relation, keyed) & ~differs
        if is_doubtful.any():
            positions = np.flatnonzero(is_doubtful)
            compared_positions = distinct(np.concatenate([positions, positions - 1]))
            rows = self._batch.rows.take(order.take(compared_positions))
            values = dict(
                zip(
                    compared_positions.tolist(),
                    singles.identities.values(rows, keyed.take(compared_positions)),
                    strict=True,
                )
            )
            differs[positions] = [values[position] != values[position - 1] for position in positions.tolist()]
        return differs

    def _slots_differ(self) -> Flags:
        """True for single tuples whose identity differs from that of the first record with their hash."""
        singles, slots = self._store.singles, self.slots
        records = self._order.take(self._heads.take(self._group_of_slot))
        relation, keyed = self.relation.take(records), self._keyed.take(records)
        differs: Flags = self._store.live.tuples.relation.take(slots) != relation
        differs |= singles.keyed(slots) != keyed
        positions = np.flatnonzero(~singles.identities.is_exact(relation, keyed) & ~differs)
        if len(positions):
            is_keyed = keyed.take(positions)
            record_identities = singles.identities.values(
                self._batch.rows.take(records.take(positions)), is_keyed
            )
            tuple_identities = singles.identities.values(
                self._store.directory.some_rows(slots.take(positions)), is_keyed
            )
            differs[positions] = [
                record_identity != tuple_identity
                for record_identity, tuple_identity in zip(record_identities, tuple_identities, strict=True)
            ]
        return differs
