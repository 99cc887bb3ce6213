"""Tuples with their lifespans, made of records.

One step takes the records of one instant together, since tuples with equal
time are simultaneous: a tuple deleted or replaced in the instant of its
insertion never lives. Steps may arrive out of order.

Tuples with equal keys replace each other; equal rows without a key, or with a
NULL in it, queue up, and a deletion ends the oldest live one. Each such group
keeps its marks (insertions and deletions) in order of event time; lifespans
follow from the marks alone, whatever the order of arrival.

Lifespans of the last window can be rebuilt from the records of the last two,
except in queues of equal rows: which of them a deletion ends depends on earlier
deletions without end. The live rows of a queue are the latest ones inserted. So
the oldest one alive a window ago, the *front*, is all that a replay must know.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count
from operator import itemgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, ExpressionWindow, Unbounded, Window

ALWAYS = -FOREVER  # the start of static tuples


@dataclass(eq=False, slots=True)
class StreamTuple:
    """One tuple; compared by identity, since two equal rows are two tuples.

    ``keywords`` is the bitmap of the query's keywords that it contains.
    ``occurrence`` counts equal tuples with the same start; ``successor``: an
    earlier tuple with the same key started less than a window before.
    ``time`` is the event time in microseconds, which for time windows is the
    start; ``ended_at`` the event time of its deletion or replacement, if known beforehand.
    ``place`` grows with the order of arrival, which orders tuples with the same start.
    """

    relation: int
    row: Row
    start: int
    end: int
    keywords: int = 0
    occurrence: int = 0
    successor: bool = False
    time: int = 0
    ended_at: int | None = None
    place: int = 0

    @property
    def static(self) -> bool:
        return self.start == ALWAYS


Members: TypeAlias = tuple[StreamTuple, ...]
"""A composite tuple: its members, in the order of an operator's tree."""


def end_of(members: Iterable[StreamTuple]) -> int:
    """The tick at which the first of the members ends."""
    return min(member.end for member in members)


def compatible(members: Iterable[StreamTuple], new: StreamTuple) -> bool:
    """True if ``new`` is none of the members and all are alive at one instant."""
    start, end = new.start, new.end
    for member in members:
        if member is new:
            return False
        if member.start > start:
            start = member.start
        if member.end < end:
            end = member.end
    return start < end


class Mark(NamedTuple):
    """An insertion (``inserted`` is its tuple) or a deletion (None) at a tick; ``arrival`` breaks ties."""

    tick: int
    arrival: int
    inserted: StreamTuple | None


class Ends(NamedTuple):
    """Lifespans: the end of each insertion, by its position among the marks.

    ``unmatched``: deletions that met no live tuple. ``queued``: the tick of the
    first deletion that met several equal rows, None without one.
    """

    ends: dict[int, int]
    unmatched: int
    queued: int | None


def lifespan_ends(marks: Sequence[Mark], window: Window, keyed: bool) -> Ends:
    """Lifespans of the tuples of one identity; ``marks`` are in order.

    Keyed: each mark ends the tuple before it. Else a deletion ends the oldest
    live tuple.
    """
    ends: dict[int, int] = {}
    live: list[int] = []
    unmatched = 0
    queued: int | None = None
    for position, mark in enumerate(marks):
        live = [p for p in live if ends[p] > mark.tick]
        if mark.inserted is None:
            unmatched += not live
            if queued is None and not keyed and len(live) > 1:
                queued = mark.tick
        if live and (keyed or mark.inserted is None):
            ends[live.pop(0)] = mark.tick
        if mark.inserted is not None:
            ends[position] = window.end(mark.tick)
            live.append(position)
    return Ends(ends, unmatched, queued)


@dataclass(slots=True)
class Changes:
    """The changes of one step: (tuple, new end) of known tuples, and new tuples."""

    ended: list[tuple[StreamTuple, int]] = field(default_factory=list)
    prolonged: list[tuple[StreamTuple, int]] = field(default_factory=list)
    inserted: list[StreamTuple] = field(default_factory=list)
    unmatched: int = 0


@dataclass(slots=True)
class Group:
    """The marks of one identity that later records may still affect.

    ``queued``: the tick of the first deletion that met several equal rows, of
    which it ended the oldest; None if the log has all of what it keeps. From then
    on ``ended`` has the start, occurrence and end of rows for a window after their
    end.
    """

    keyed: bool
    marks: list[Mark] = field(default_factory=list)
    unmatched: int = 0
    queued: int | None = None
    ended: deque[tuple[int, int, int]] = field(default_factory=deque)

    def add(self, mark: Mark) -> None:
        insort(self.marks, mark, key=itemgetter(0, 1))

    def settle(self, window: Window, fresh: set[StreamTuple], changes: Changes) -> None:
        """Recompute lifespans; ``fresh`` are the tuples whose insertion is part of this step."""
        ends, unmatched, queued = lifespan_ends(self.marks, window, self.keyed)
        if queued is not None and not isinstance(window, Unbounded | ExpressionWindow):
            self.queued = queued if self.queued is None else min(queued, self.queued)
        changes.unmatched += max(0, unmatched - self.unmatched)
        self.unmatched = unmatched
        for position, end in ends.items():
            inserted = self.marks[position].inserted
            assert inserted is not None  # noqa: S101 - only insertions have ends
            self._apply(inserted, end, inserted in fresh, changes)

    def _apply(self, changed: StreamTuple, end: int, fresh: bool, changes: Changes) -> None:
        former = changed.end
        if fresh:
            changed.end = end
            if changed.start < end:
                changes.inserted.append(changed)
        elif end < former:
            changes.ended.append((changed, end))
        elif end > former:
            changes.prolonged.append((changed, end))

    def oldest(self, tick: int) -> tuple[int, int] | None:
        """Start and occurrence of the oldest row alive just before a tick after ``queued``; or None."""
        rows = chain(self.ended, (_row(mark.inserted) for mark in self.marks if mark.inserted))
        return next(((start, number) for start, number, end in rows if start < tick <= end), None)

    def forget(self, window: Window, horizon: int) -> bool:
        """Drop marks that no record at or after ``horizon`` can affect; True if nothing is left.

        A deletion is dropped together with the tuple it ended, since the tuple's end is
        the deletion's tick; so the other marks give the same lifespans.
        """
        marks = self.marks
        self.marks = [m for m in marks if self._due(m, window) >= horizon]
        if self.queued is not None:
            gone = (m.inserted for m in marks if m.inserted and self._due(m, window) < horizon)
            self.ended.extend(map(_row, gone))
            while self.ended and window.end(self.ended[0][-1]) < horizon:
                self.ended.popleft()
        self.unmatched = lifespan_ends(self.marks, window, self.keyed).unmatched
        return not (self.marks or self.ended)

    def _due(self, mark: Mark, window: Window) -> int:
        return due(mark, window, self.keyed)


def _row(known: StreamTuple) -> tuple[int, int, int]:
    return known.start, known.occurrence, known.end


def due(mark: Mark, window: Window, keyed: bool) -> int:
    """The tick after which a mark has no effect.

    A key's marks stay for a window's length, to distinguish its tuples.
    """
    if keyed and not isinstance(window, Unbounded):
        return window.end(mark.tick)
    return mark.inserted.end if mark.inserted else mark.tick


def is_successor(marks: Sequence[Mark], position: int, tick: int, window: Window) -> bool:
    """True if a tuple that starts at ``tick`` follows another of its key within a window.

    Without a window: while the other is alive. ``marks`` before ``position`` came
    before the tuple.
    """
    unbounded = isinstance(window, Unbounded)
    for mark in (marks[p] for p in range(position - 1, -1, -1)):
        if mark.inserted is None:
            if unbounded:
                return False
        elif mark.tick < tick:
            return tick < window.end(mark.tick)
    return False


T = TypeVar("T")


class ExpiryQueue(Generic[T]):
    """Items leave when their end has come. An item may be queued again when its end changes.

    Most tuples expire in the order of their arrival: those are in a plain queue,
    at a tenth of a heap's cost, the others in a heap.
    """

    def __init__(self) -> None:
        self._in_order: deque[tuple[int, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        self._last = -(1 << 63)
        self._order = count()  # items need no order of their own

    def __len__(self) -> int:
        return len(self._in_order) + len(self._heap)

    def push(self, end: int, item: T) -> None:
        if end >= self._last:
            self._last = end
            self._in_order.append((end, item))
        else:
            heappush(self._heap, (end, next(self._order), item))

    def expired(self, horizon: int) -> Iterator[tuple[int, T]]:
        """Remove and return (end as queued, item) up to ``horizon``."""
        queue, heap = self._in_order, self._heap
        while queue and queue[0][0] <= horizon:
            yield queue.popleft()
        if not queue:
            self._last = -(1 << 63)
        while heap and heap[0][0] <= horizon:
            end, _, item = heappop(heap)
            yield end, item


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
