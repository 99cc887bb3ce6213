"""The live tuples of a stream under one window (docs/architecture/store.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from skws.data.batch import RecordBatch, concat_batches
from skws.index.values import JoinValues
from skws.store.directory import TupleDirectory
from skws.store.identities import SingleTuples
from skws.store.tuple_batch import TupleBatch, natural_ends
from skws_mesh.columnar.columns import NOTHING, Flags, Hashes, Ints, TupleColumns, distinct
from skws_mesh.columnar.live import InsertedTuples, LiveTuples
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_schema.graph import edges
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, Unbounded, Window, ticks_per_position

if TYPE_CHECKING:
    from skws.index.database import StoredTuples
    from skws.store.row_bitmaps import KnownBitmaps


@dataclass(frozen=True, slots=True)
class LiveRecords:
    """The records that rebuild the present state: ``leading`` ones, then one insertion for each live tuple.

    ``live``: flags the tuples that are inserted, by slot. ``bitmaps``: returns the keyword bitmaps of slots,
    or None if they are not known. The store must not change while this is used.
    """

    leading: RecordBatch
    store: LiveStore
    live: Flags
    bitmaps: Callable[[Ints], KnownBitmaps | None]

    def waiting_for(self, waiting: RecordBatch) -> LiveRecords:
        """These records, with all from the first time of ``waiting`` on replaced by ``waiting``."""
        if not len(waiting):
            return self
        first = waiting.time[0]
        leading = self.leading.take(self.leading.time < first)
        live = self.live & (self.store.directory.times < first)
        return replace(self, leading=concat_batches([leading, waiting]), live=live)

    def __len__(self) -> int:
        return len(self.leading) + int(np.count_nonzero(self.live))

    @property
    def insertions(self) -> int:
        return int(np.count_nonzero(self.live)) + self.leading.insertions

    @property
    def latest(self) -> int | None:
        """The latest time of a record; None without records."""
        if not len(self):
            return None
        times = self.store.directory.times
        latest_start = times.max(where=self.live, initial=ALWAYS)
        return int(max(latest_start, self.leading.time.max(initial=ALWAYS)))

    @property
    def records(self) -> RecordBatch:
        """All records in order of time."""
        records = self.insertions_of(self.slots(self.live))
        if len(self.leading):
            records = concat_batches([self.leading, records])
            records = records.take(np.argsort(records.time, kind="stable"))
        return records

    def slots(self, flags: Flags) -> Ints:
        """The flagged slots in order of time."""
        slots, tuples = np.flatnonzero(flags), self.store.live.tuples
        start = tuples.start.take(slots)
        if (start[1:] < start[:-1]).any():
            slots = slots.take(np.lexsort((tuples.place.take(slots), start)))
        return slots

    def insertions_of(self, slots: Ints) -> RecordBatch:
        """Insertions of the tuples in some slots."""
        directory = self.store.directory
        relation = self.store.live.tuples.relation.take(slots)
        return RecordBatch(relation, directory.times.take(slots), directory.some_rows(slots))


class LiveStore:
    """The live tuples by slot, by join value and by identity. ``compact`` renumbers the slots.

    ``live``: lifespans and join values. ``directory``: rows, names, and the tuples that are followed as
    objects. ``singles``: the tuples that records may end. ``followed``: the relations of these tuples.
    """

    def __init__(self, schema: Schema, window: Window, followed: Collection[int] = ()) -> None:
        self.schema = schema
        self.window = window
        self.live = LiveTuples(schema)
        no_expiry = isinstance(window, Unbounded)
        self.directory = TupleDirectory(schema, self.live, ticks_per_position(window), long_lived=no_expiry)
        self.singles = SingleTuples(schema, followed)
        self.values = JoinValues(schema, self.live.key_sets)
        self._edges = edges(schema)

    def open(self, stored: StoredTuples) -> None:
        """Start with the rows of tables, which no record may end. Call it before anything else."""
        size, tuples = len(stored), stored.tuples
        self.live.open(tuples, size, stored.by_join_value)
        self.directory.begin_with(*stored.rows, size)
        for slot, occurrence in stored.occurrences.items():
            relation, start, end = self.live.tuple_in(slot)
            row = self.directory.row(slot)
            self.directory.follow(StreamTuple(relation, row, start, end, occurrence=occurrence), slot)
        self.singles.open(size, len(tuples.relation))
        self.values.begin_with_stored(told_apart=stored.told_apart)

    def __len__(self) -> int:
        """The number of tuples, including ended ones, which the next ``compact`` drops."""
        return len(self.live)

    def enter(self, batch: TupleBatch, keys: Ints) -> tuple[int, InsertedTuples]:
        """Add tuples with their join values; returns the slot of the first."""
        first = len(self.live)
        hashes, is_keyed = self._identity_hashes(batch)
        self.directory.add(batch.relation, batch.start, batch.rows, batch.times, is_keyed)
        is_single = np.ones(len(batch.relation), dtype=bool)
        for position, member in batch.followed.items():
            self.directory.follow(member, first + position)
            is_single[position] = False
        if batch.ended_at is not None and len(early_positions := np.flatnonzero(batch.ended_at < FOREVER)):
            self.directory.set_end_times(early_positions + first, batch.ended_at.take(early_positions))
        is_open_ended = ~is_single | (batch.end == natural_ends(self.window, batch.start))
        self.singles.add(first, batch.relation, hashes, is_keyed, is_single, is_open_ended)
        columns = TupleColumns(batch.relation, batch.start, batch.end, keys, batch.place)
        return first, self.live.insert(columns)

    def make_space(self, count: int) -> None:
        """Reserve space for ``count`` tuples."""
        self.live.make_space(count)
        self.directory.make_space(count)
        self.singles.make_space(count)

    def append(self, batch: TupleBatch, keys: Ints) -> int:
        """Add tuples that are indexed later, all at once; returns the slot of the first."""
        hashes, is_keyed = self._identity_hashes(batch)
        self.directory.add(batch.relation, batch.start, batch.rows, batch.times, is_keyed)
        self.singles.append(hashes, is_keyed)
        return self.live.append(TupleColumns(batch.relation, batch.start, batch.end, keys, batch.place))

    def _identity_hashes(self, batch: TupleBatch) -> tuple[Hashes, Flags]:
        """As ``Identities.of``; zeros for static tuples of relations that are not followed."""
        identities, followed = self.singles.identities, self.singles.followed
        if (batch.start == ALWAYS).all() and followed.isdisjoint(distinct(batch.relation).tolist()):
            return np.zeros(len(batch.relation), dtype=np.uint64), np.zeros(len(batch.relation), dtype=bool)
        return identities.of(batch.rows, followed)

    def latest(self, now: int, most: int) -> Ints:
        """The slots of tuples alive at ``now``: all, or about ``most``, the latest of each relation."""
        tuples = self.live.tuples
        slots = np.flatnonzero(tuples.end > now)
        if len(slots) <= most:
            return slots
        relation = tuples.relation.take(slots)
        numbers = np.unique(relation)
        parts = [slots[relation == number][-(most // len(numbers)) :] for number in numbers.tolist()]
        return np.sort(np.concatenate(parts))

    def slots_of(self, tuples: Iterable[StreamTuple]) -> tuple[Ints, list[StreamTuple]]:
        """The slots of the tuples that are followed as objects, and these tuples."""
        slots = self.directory.slots
        followed_tuples = [each for each in tuples if each in slots]
        return np.array([slots[each] for each in followed_tuples], dtype=np.int64), followed_tuples

    def compact(self, horizon: int, dropped_slots: Ints = NOTHING) -> Ints:
        """Drop the tuples that ended by ``horizon``, and those in ``dropped_slots``.

        Returns each slot's new number, -1 if it was dropped.
        """
        slots = self.live.compact(horizon, dropped_slots)
        self.directory.compact(slots)
        self.singles.compact(slots)
        if len(dropped_slots):
            self.directory.pack()
        return slots

    def arrivals(self, without: Collection[int]) -> TupleBatch:
        """The tuples of all relations except some, in order of start, for another store."""
        tuples = self.live.tuples
        slots = np.flatnonzero(~np.isin(tuples.relation, list(without)))
        return self.batch_of(slots[np.argsort(tuples.start[slots], kind="stable")])

    def batch_of(self, slots: Ints) -> TupleBatch:
        """The tuples in some slots, in their order, for another store."""
        tuples, directory = self.live.tuples, self.directory
        followed: dict[int, StreamTuple] = {}
        if followed_slots := set(directory.slots.followed_slots(slots)):
            tuples_by_position = (
                (position, directory.slots.at(slot))
                for position, slot in enumerate(slots.tolist())
                if slot in followed_slots
            )
            followed = {position: member for position, member in tuples_by_position if member is not None}
        return TupleBatch(
            tuples.relation.take(slots),
            directory.some_rows(slots),
            tuples.start.take(slots),
            tuples.end.take(slots),
            directory.times.take(slots),
            tuples.place.take(slots),
            followed,
        )

    def identity(self, slot: int) -> Row:
        """The key of a tuple, or its row if it has none."""
        row = self.directory.row(slot)
        key = self.schema.relations[self.live.tuple_in(slot)[0]].key_of(row)
        return row if key is None else key

    def truly_joined(self, tree: Tree, slots: list[int]) -> bool:
        """True if the tuples of a result agree on all joins by value, not only by 64-bit integers."""
        for node in range(1, len(tree.edges)):
            if self.values.exact(tree.edges[node]):
                continue
            edge = self._edges[tree.edges[node]]
            source, target = self.directory.row(slots[tree.parents[node]]), self.directory.row(slots[node])
            for near, far in zip(edge.source_columns, edge.target_columns, strict=True):
                if source[near] != target[far]:
                    return False
        return True
