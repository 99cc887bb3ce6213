"""Turns records into tuples with lifespans.

One step takes the records of one instant together, since tuples with equal
time are simultaneous: a tuple deleted or replaced in the instant of its
insertion never lives. Steps may arrive out of order.

Lifespans of the last window can be rebuilt from the records of the last two,
except in queues of equal rows: which of them a deletion ends depends on earlier
deletions without end. The live rows of a queue are the latest ones inserted. So
the oldest one alive a window ago, the *front*, is all that a replay must know.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from skws_purging.expiry import ExpiryQueue
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_purging.versions import Changes, Group, Mark, due, is_successor
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, Window

GroupKey = tuple[int, Row, bool]
RowChange: TypeAlias = tuple[int, Row, bool, int, int]
"""Relation, row, delete, time and place of a record."""


class Front(NamedTuple):
    """The oldest row of a queue of equal rows that was alive just before a tick; ``occurrence`` as in
    ``StreamTuple``.
    """

    relation: int
    row: Row
    start: int
    occurrence: int
    tick: int


def identity(schema: Schema, relation: int, row: Row) -> GroupKey:
    """The identity that versions of a tuple share: its key if the row has one (True), else the whole row."""
    key = schema.relations[relation].key_of(row)
    return (relation, row, False) if key is None else (relation, key, True)


def static_tuples(schema: Schema, rows: Iterable[tuple[int, Row]]) -> list[StreamTuple]:
    """The tuples of static tables, alive for ever; of rows with equal keys the last one."""
    kept: dict[tuple[GroupKey, int], StreamTuple] = {}
    seen: Counter[GroupKey] = Counter()
    for relation, row in rows:
        key = identity(schema, relation, row)
        _, _, keyed = key
        occurrence = 0 if keyed else seen[key]
        seen[key] += 1
        kept[key, occurrence] = StreamTuple(relation, row, ALWAYS, FOREVER, occurrence=occurrence)
    return list(kept.values())


class Lifespans:
    """The lifespans of live tuples under a window; remembers tuples that later records may end."""

    def __init__(self, schema: Schema, window: Window) -> None:
        self._window = window
        self._schema = schema
        self._known: dict[GroupKey, StreamTuple | Group] = {}
        self._due: ExpiryQueue[GroupKey] = ExpiryQueue()
        self._arrival = count()
        self._queues: set[GroupKey] = set()  # in which a deletion met several rows
        self._fronts: dict[GroupKey, Front] = {}
        self._fronts_end = ALWAYS  # the latest of their ticks

    def __len__(self) -> int:
        """Number of identities remembered."""
        return len(self._known)

    def step(self, tick: int, records: Iterable[RowChange]) -> Changes:
        """Apply the records (relation, row, delete, time, place) of one tick, in order of arrival."""
        changes = Changes()
        alone: dict[GroupKey, StreamTuple] = {}
        touched: dict[GroupKey, Group] = {}
        fresh: set[StreamTuple] = set()
        end = self._window.end(tick)
        for relation, row, delete, time, place in self._with_fronts(tick, records):
            key = identity(self._schema, relation, row)
            if not delete and key not in self._known and key not in self._fronts:
                # Nearly every tuple is the only one of its identity, and needs no group.
                self._known[key] = alone[key] = StreamTuple(relation, row, tick, end, time=time, place=place)
                self._due.push(end, key)
                continue
            if key in alone:
                fresh.add(alone.pop(key))
            group = touched[key] = self._group(key)
            new = None
            if not delete:
                new = self._named(StreamTuple(relation, row, tick, end, time=time, place=place), group)
                fresh.add(new)
            mark = Mark(tick, next(self._arrival), new)
            group.add(mark)
            self._due.push(due(mark, self._window, group.keyed), key)
        for key, group in touched.items():
            group.settle(self._window, fresh, changes)
            if group.queued is not None:
                self._queues.add(key)
        changes.inserted += alone.values()
        return changes

    def remember(self, known: StreamTuple) -> None:
        """Add a live tuple that is not remembered yet. Equal ones come in the order of their start."""
        key = identity(self._schema, known.relation, known.row)
        self._group(key).add(Mark(known.start, next(self._arrival), known))
        self._due.push(known.end, key)

    def fronts(self, horizon: int) -> list[Front]:
        """The fronts a window before ``horizon``, where later records begin.

        They are those of queues that a replay of the last two windows may get wrong.
        """
        tick = horizon - self._window.end(0)
        return [front for key in self._queues if (front := self._front(key, tick))]

    def expect(self, fronts: Iterable[Front]) -> None:
        """Take the result of ``fronts`` before a replay; that of an earlier horizon still holds.

        In these queues no row before the front lives, and no deletion before its
        tick ends any. This holds for late records too, unless a deletion that
        arrived before the row it ended has left the log earlier than that row.
        """
        self._fronts = {(each.relation, each.row, False): each for each in fronts}
        self._fronts_end = max((each.tick for each in self._fronts.values()), default=ALWAYS)

    def change_schema(self, schema: Schema) -> None:
        """Use a changed schema, whose relations keep their positions; removed ones are forgotten."""
        removed = schema.evolution.removed_relations
        self._schema = schema
        self._known = {key: known for key, known in self._known.items() if key[0] not in removed}
        self._queues &= self._known.keys()

    def forget(self, horizon: int) -> None:
        """Drop tuples that no record at or after ``horizon`` can change."""
        for _, key in list(self._due.expired(horizon - 1)):
            known = self._known.get(key)
            if isinstance(known, StreamTuple):
                gone = known.end < horizon
            else:
                gone = known is not None and known.forget(self._window, horizon)
                if known is not None and not gone and not known.marks:
                    self._due.push(self._window.end(known.ended[-1][-1]), key)
            if gone:
                del self._known[key]
                self._queues.discard(key)
        if horizon > self._fronts_end:
            self._fronts.clear()

    def _with_fronts(self, tick: int, records: Iterable[RowChange]) -> Iterable[RowChange]:
        """The records, made to lead to the expected fronts."""
        return self._leading_to_fronts(tick, records) if tick < self._fronts_end else records

    def _leading_to_fronts(self, tick: int, records: Iterable[RowChange]) -> Iterator[RowChange]:
        for record in records:
            relation, row, delete, time, place = record
            key = identity(self._schema, relation, row)
            front = self._fronts.get(key)
            if front is None or tick >= front.tick:
                yield record
            elif not delete and tick >= front.start:
                yield record
                if tick == front.start and front.occurrence:
                    # An equal row of the same instant came before the front: it counts, and is dead.
                    self._fronts[key] = front._replace(occurrence=front.occurrence - 1)
                    yield relation, row, True, time, place

    def _front(self, key: GroupKey, tick: int) -> Front | None:
        group, (relation, row, _) = self._group(key), key
        if group.queued is None or group.queued >= tick:
            return None  # all of the queue is in the log
        oldest = group.oldest(tick)
        return None if oldest is None else Front(relation, row, *oldest, tick)

    def _group(self, key: GroupKey) -> Group:
        """The group of an identity; a tuple that was alone becomes its first mark."""
        known = self._known.get(key)
        if isinstance(known, Group):
            return known
        front = self._fronts.get(key)
        group = self._known[key] = Group(keyed=key[2], queued=None if front is None else front.start)
        if known is not None:
            group.add(Mark(known.start, -1, known))
        return group

    def _named(self, new: StreamTuple, group: Group) -> StreamTuple:
        """Set the fields that distinguish the tuple from others of its identity."""
        if group.keyed:
            before = bisect_right(group.marks, new.start, key=itemgetter(0))
            new.successor = is_successor(group.marks, before, new.start, self._window)
        else:
            new.occurrence = sum(1 for m in group.marks if m.inserted and m.tick == new.start)
        return new
