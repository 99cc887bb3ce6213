"""Makes tuples with lifespans from records.

One step takes all records of one instant, since tuples with equal time are simultaneous: a tuple deleted or
replaced in the instant of its insertion never lives. Steps may arrive out of order, up to a lateness.

Tuples with equal keys replace each other. Equal rows without a key, or with a NULL in the key, form a queue;
a deletion ends its oldest live row. Lifespans follow from the insertions and deletions of an identity (its
*marks*) in order of event time, whatever the order of arrival. No record is earlier than the horizon. So an
identity is stored as its tuples that are alive at the horizon, and its marks from there on: these determine
the live tuples, and late records may still correct them.

A truncation ends all tuples of a relation. It is a mark of each identity that may have a live tuple then, and
is remembered until the horizon passes it: a tuple that arrives late, with an earlier time, ends with it.

Lifespans of the last window can be rebuilt from the records of the last two windows, except in queues of
equal rows, where the row that a deletion ends depends on all earlier deletions. The live rows of a queue are
the latest insertions. So a replay needs only the oldest row alive a window ago, the *front*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count
from operator import itemgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, ExpressionWindow, Unbounded, Window

ALWAYS = -FOREVER  # the start of static tuples

_LEAST_QUEUED: Final = 1024  # dead entries that a queue may have
# More than these are forgotten, which may change the scores of earlier results after a restart.
_MOST_ENDED: Final = 256  # rows of one queue
_MOST_EMPTIED: Final = 4096  # queues


@dataclass(eq=False, slots=True)
class StreamTuple:
    """One tuple; compared by identity, since two equal rows are two tuples.

    ``occurrence`` counts equal tuples with the same start.
    ``time`` is the event time in microseconds, which for time windows is the
    start; ``ended_at`` the event time of its deletion or replacement, if known beforehand.
    ``place`` grows with the order of arrival, which orders tuples with the same start.
    """

    relation: int
    row: Row
    start: int
    end: int
    occurrence: int = 0
    time: int = 0
    ended_at: int | None = None
    place: int = 0

    @property
    def static(self) -> bool:
        return self.start == ALWAYS


class LifeEvent(NamedTuple):
    """An insertion (``inserted`` is its tuple) or a deletion (None) at a tick; ``arrival`` breaks ties.

    ``truncates``: the deletion ends all tuples.
    """

    tick: int
    arrival: int
    inserted: StreamTuple | None
    truncates: bool = False


_TICK = itemgetter(0)
_TICK_AND_ARRIVAL = itemgetter(0, 1)


@dataclass(slots=True)
class Changes:
    """The changes of one step: (tuple, new end) of existing tuples, and new tuples."""

    ended: list[tuple[StreamTuple, int]] = field(default_factory=list)
    prolonged: list[tuple[StreamTuple, int]] = field(default_factory=list)
    inserted: list[StreamTuple] = field(default_factory=list)
    unmatched: int = 0


@dataclass(slots=True)
class IdentityTimeline:
    """The live tuples of one identity, and its past as far as later records may affect it.

    ``before``: the tuples alive just before the first of ``marks``. ``live``: the tuples alive after the last
    applied mark. ``unmatched``: the deletions among the marks that met no live tuple. ``queued``: the tick of
    the first deletion that met several equal rows, and ended the oldest; None if the log has all rows of the
    queue. From then on ``ended`` has the start, occurrence and end of rows for a window after their end.
    """

    window: Window
    keyed: bool
    queued: int | None = None
    before: deque[StreamTuple] = field(default_factory=deque)
    marks: list[LifeEvent] = field(default_factory=list)
    live: deque[StreamTuple] = field(default_factory=deque)
    ended: deque[tuple[int, int, int]] = field(default_factory=deque)
    unmatched: int = 0
    _applied_count: int = 0  # marks
    _has_late: bool = False
    _twins: tuple[int, int] = (ALWAYS, 0)  # the latest tick, and its insertions

    def add(self, mark: LifeEvent) -> None:
        """Add a mark, for ``apply_marks`` to apply."""
        last = self.marks[-1] if self.marks else mark
        if mark.tick > last.tick or (mark.tick == last.tick and mark.arrival >= last.arrival):
            self.marks.append(mark)
        else:
            self.marks.insert(bisect_right(self.marks, _TICK_AND_ARRIVAL(mark), key=_TICK_AND_ARRIVAL), mark)
            self._has_late = True
        if mark.inserted is not None and mark.tick >= self._twins[0]:
            tick, count = self._twins
            self._twins = mark.tick, count + 1 if mark.tick == tick else 1

    def end_all(self, tick: int, arrival: int) -> None:
        """Add the mark of a truncation, unless there is one at its tick, which ended the same tuples."""
        first, end = (at(self.marks, tick, key=_TICK) for at in (bisect_left, bisect_right))
        if not any(mark.truncates for mark in self.marks[first:end]):
            self.add(LifeEvent(tick, arrival, None, truncates=True))

    def lives_at(self, tick: int) -> bool:
        """True if a tuple is alive at a tick."""
        return any(
            member.start <= tick < member.end for member in chain(self.before, _inserted_tuples(self.marks))
        )

    @property
    def is_over(self) -> bool:
        """True if no tuple is alive after the last mark."""
        return not self.live and self._applied_count == len(self.marks)

    def insertions(self, tick: int) -> int:
        """The number of insertions at a tick."""
        latest, count = self._twins
        if tick >= latest:
            return count if tick == latest else 0
        first, end = (at(self.marks, tick, key=_TICK) for at in (bisect_left, bisect_right))
        return sum(mark.inserted is not None for mark in self.marks[first:end])

    def apply_marks(self, new_tuples: set[StreamTuple], changes: Changes) -> None:
        """Apply new marks. ``new_tuples``: the tuples inserted in this step.

        Marks in order take constant time each; after a late one all lifespans since the horizon are
        recomputed.
        """
        ends: dict[StreamTuple, int] = {}
        unmatched = self.unmatched
        if self._has_late:
            self.live, self.unmatched, self._applied_count, self._has_late = deque(self.before), 0, 0, False
            ends.update((member, self.window.end(member.start)) for member in self.before)
        for mark in self.marks[self._applied_count :]:
            self._apply(mark, ends)
        self._applied_count = len(self.marks)
        changes.unmatched += max(0, self.unmatched - unmatched)
        for member, end in ends.items():
            if member in new_tuples:
                member.end = end
                if member.start < end:
                    changes.inserted.append(member)
            elif end < member.end:
                changes.ended.append((member, end))
            elif end > member.end:
                changes.prolonged.append((member, end))

    def trim(self, horizon: int) -> bool:
        """Drop the past that no record at or after ``horizon`` can affect; True if nothing remains.

        Marks before the horizon are replaced by the tuples that they left alive.
        """
        index = bisect_left(self.marks, horizon, key=_TICK)
        dead_tuples: list[StreamTuple] = []
        for mark in self.marks[:index]:
            self.unmatched -= self._apply_mark(self.before, mark, {}, dead_tuples)
        del self.marks[:index]
        self._applied_count = max(0, self._applied_count - index)
        while self.live and self.window.end(self.live[0].start) < horizon:
            self.live.popleft()
        while self.before and self.window.end(self.before[0].start) < horizon:
            dead_tuples.append(self.before.popleft())
        if self.queued is not None:
            self.ended.extend((member.start, member.occurrence, member.end) for member in dead_tuples)
            while self.ended and (
                len(self.ended) > _MOST_ENDED or self.window.end(self.ended[0][-1]) < horizon
            ):
                self.ended.popleft()
        return not (self.before or self.marks or self.ended)

    def oldest(self, tick: int) -> tuple[int, int] | None:
        """Start and occurrence of the oldest row alive just before a tick after ``queued``; or None."""
        live_rows = ((t.start, t.occurrence, t.end) for t in chain(self.before, _inserted_tuples(self.marks)))
        rows = chain(self.ended, live_rows)
        return next(((start, number) for start, number, end in rows if start < tick <= end), None)

    def _apply(self, mark: LifeEvent, ends: dict[StreamTuple, int]) -> None:
        unmatched = self._apply_mark(self.live, mark, ends, [])
        self.unmatched += unmatched
        is_deletion = mark.inserted is None and not mark.truncates
        is_queue = is_deletion and not (self.keyed or unmatched) and bool(self.live)
        if is_queue and not isinstance(self.window, Unbounded | ExpressionWindow):
            self.queued = mark.tick if self.queued is None else min(mark.tick, self.queued)

    def _apply_mark(
        self,
        live: deque[StreamTuple],
        mark: LifeEvent,
        ends: dict[StreamTuple, int],
        dead_tuples: list[StreamTuple],
    ) -> bool:
        """Apply a mark to the live tuples, and add to ``ends`` and ``dead_tuples``.

        With a key, any mark ends the tuple before it; without one, a deletion ends the oldest tuple. A
        truncation ends all. True for a deletion that meets no live tuple.
        """
        tick, inserted = mark.tick, mark.inserted
        while live and self.window.end(live[0].start) <= tick:
            dead_tuples.append(live.popleft())
        if mark.truncates:
            ends.update(dict.fromkeys(live, tick))
            dead_tuples.extend(live)
            live.clear()
            return False
        is_match = bool(live)
        if is_match and (self.keyed or inserted is None):
            oldest = live.popleft()
            ends[oldest] = tick
            dead_tuples.append(oldest)
        if inserted is not None:
            ends[inserted] = self.window.end(tick)
            live.append(inserted)
        return inserted is None and not is_match


def _inserted_tuples(marks: Iterable[LifeEvent]) -> Iterator[StreamTuple]:
    return (mark.inserted for mark in marks if mark.inserted is not None)


T = TypeVar("T")


class ExpiryQueue(Generic[T]):
    """Items in order of their end. An item may be queued again when its end changes.

    Most tuples expire in the order of their arrival. They are in a plain queue, at a tenth of a heap's cost;
    the others are in a heap.
    """

    def __init__(self) -> None:
        self._in_order: deque[tuple[int, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        self._last = -(1 << 63)
        self._order = count()  # items need not be comparable

    def __len__(self) -> int:
        return len(self._in_order) + len(self._heap)

    def push(self, end: int, item: T) -> None:
        if end >= self._last:
            self._last = end
            self._in_order.append((end, item))
        else:
            heappush(self._heap, (end, next(self._order), item))

    def pop_expired(self, horizon: int) -> Iterator[tuple[int, T]]:
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
"""Relation, row, delete, time and arrival number of a record; the row of a truncation is empty."""


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
    """The identity of all versions of a tuple: the key if the row has one (True), else the whole row."""
    key = schema.relations[relation].key_of(row)
    return (relation, row, False) if key is None else (relation, key, True)


@dataclass(slots=True)
class _Truncations:
    """The truncations of one relation that late records may precede, and the relation's identities.

    ``marks``: tick and arrival of each, at most one per tick, in order. ``active``: the identities with a
    record since the latest truncation; ``idle``: the others, which have no live tuple, so that the next
    truncation does not affect them.
    """

    active: dict[GroupKey, None]
    idle: dict[GroupKey, None] = field(default_factory=dict)
    marks: list[tuple[int, int]] = field(default_factory=list)

    def touch(self, key: GroupKey) -> None:
        self.active[key] = None
        self.idle.pop(key, None)

    def drop(self, key: GroupKey) -> None:
        self.active.pop(key, None)
        self.idle.pop(key, None)

    def add(self, tick: int, arrival: int) -> None:
        index = bisect_left(self.marks, tick, key=_TICK)
        exists = index < len(self.marks) and self.marks[index][0] == tick
        self.marks[index : index + exists] = [(tick, arrival)]

    def first_after(self, tick: int) -> tuple[int, int] | None:
        """The first truncation after a tick."""
        index = bisect_right(self.marks, tick, key=_TICK)
        return self.marks[index] if index < len(self.marks) else None

    def at_tick(self, tick: int) -> tuple[int, int] | None:
        """The truncation at a tick."""
        index = bisect_left(self.marks, tick, key=_TICK)
        return self.marks[index] if index < len(self.marks) and self.marks[index][0] == tick else None

    def forget(self, horizon: int) -> None:
        del self.marks[: bisect_left(self.marks, horizon, key=_TICK)]


class Keeper(Protocol):
    """Stores tuples that only a later record can change; ``Lifespans.take_over`` takes them back."""

    def keep(self, live_tuple: StreamTuple) -> None:
        """Store a tuple; its window may have ended it already."""

    def forget_identity(self, key: GroupKey) -> None:
        """Called when ``Lifespans`` has forgotten an identity."""


class Lifespans:
    """The lifespans of live tuples under a window.

    ``lateness``: how late records may arrive, in ticks. ``keeper``: stores single tuples of an identity that
    no earlier record can change; without it they stay here.
    """

    def __init__(
        self, schema: Schema, window: Window, lateness: int = 0, keeper: Keeper | None = None
    ) -> None:
        self._window = window
        self._keeper = keeper
        self._lateness = lateness
        self._schema = schema
        self._entries: dict[GroupKey, StreamTuple | IdentityTimeline] = {}
        self._horizon = self._latest = ALWAYS
        self._truncations: dict[int, _Truncations] = {}  # of the relations that have had one
        self._mark_queue: ExpiryQueue[GroupKey] = ExpiryQueue()  # by their latest mark
        # By the end of their window; some were dropped.
        self._expiry_queue: ExpiryQueue[GroupKey] = ExpiryQueue()
        self._expiry_limit = _LEAST_QUEUED
        self._arrival = count()
        self._queues: set[GroupKey] = set()  # in which a deletion met several rows
        self._empty_queues: dict[GroupKey, None] = {}  # queues without live rows
        self._fronts: dict[GroupKey, Front] = {}
        self._fronts_end = ALWAYS  # the latest of their ticks

    def __len__(self) -> int:
        """The number of remembered identities."""
        return len(self._entries)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._entries

    def await_late(self) -> None:
        """Accept records in any order, as far back as the horizon."""
        self._lateness = FOREVER

    def step(self, tick: int, records: Iterable[RowChange]) -> Changes:
        """Apply the records (relation, row, delete, time, arrival number) of one tick, in order of arrival.

        The time is linear in the records, and in the live tuples of truncated relations.
        """
        self._horizon = max(self._horizon, tick - self._lateness)
        changes = Changes()
        simple_tuples: dict[GroupKey, StreamTuple] = {}
        timelines: dict[GroupKey, IdentityTimeline] = {}
        new_tuples: set[StreamTuple] = set()
        end = self._window.end(tick)
        for relation, row, delete, time, place in self._with_fronts(tick, records):
            if not row:
                self._truncate(relation, tick, simple_tuples, timelines, new_tuples, changes)
                continue
            key = identity(self._schema, relation, row)
            new = None if delete else StreamTuple(relation, row, tick, end, time=time, place=place)
            if self._is_simple(key, tick, new):
                self._apply(key, tick, new, changes)
                if new is not None:
                    simple_tuples[key] = new
                continue
            if key in simple_tuples:
                new_tuples.add(simple_tuples.pop(key))
            timeline = timelines[key] = self._timeline(key)
            if new is not None:
                new_tuples.add(new)
                if not timeline.keyed:
                    new.occurrence = timeline.insertions(tick)
            timeline.add(LifeEvent(tick, next(self._arrival), new))
            if relation in self._truncations:
                truncations = self._truncations[relation]
                truncations.touch(key)
                if new is not None and (truncation := truncations.first_after(tick)) is not None:
                    timeline.end_all(*truncation)
        self._latest = max(self._latest, tick)
        for key, timeline in timelines.items():
            timeline.apply_marks(new_tuples, changes)
            self._mark_queue.push(timeline.marks[-1].tick, key)
            if timeline.queued is not None:
                self._queues.add(key)
        changes.inserted += simple_tuples.values()
        for new in changes.inserted:
            self._expire_later(new)
        return changes

    def _is_simple(self, key: GroupKey, tick: int, new: StreamTuple | None) -> bool:
        """True if an identity has at most one live tuple, before and after a record that is in order.

        This is the usual case, which needs no timeline.
        """
        entry = self._entries.get(key)
        if key in self._fronts:
            return False
        if new is not None and key[0] in self._truncations and self._truncations[key[0]].first_after(tick):
            return False
        if entry is None:
            return new is not None or not self._lateness
        in_order = not self._lateness and isinstance(entry, StreamTuple) and entry.start < tick
        return in_order and (new is None or key[2])

    def _apply(self, key: GroupKey, tick: int, new: StreamTuple | None, changes: Changes) -> None:
        entry = self._entries.pop(key, None)
        assert not isinstance(entry, IdentityTimeline)  # noqa: S101 - it is simple
        if entry is not None and self._window.end(entry.start) > tick:
            changes.ended.append((entry, tick))
        elif new is None:
            changes.unmatched += 1
        truncations = self._truncations.get(key[0])
        if new is not None:
            self._entries[key] = new
            if truncations is not None:
                truncations.touch(key)
            if self._keeper is not None:
                self._mark_queue.push(tick, key)
            return
        if truncations is not None:
            truncations.drop(key)
        if self._keeper is not None:
            self._keeper.forget_identity(key)

    def _truncate(
        self,
        relation: int,
        tick: int,
        simple_tuples: dict[GroupKey, StreamTuple],
        timelines: dict[GroupKey, IdentityTimeline],
        new_tuples: set[StreamTuple],
        changes: Changes,
    ) -> None:
        """End all tuples of a relation; the other arguments are the intermediate state of a step."""
        truncations = self._truncations.get(relation)
        if truncations is None:
            keys = (key for key in self._entries if key[0] == relation)
            truncations = self._truncations[relation] = _Truncations(dict.fromkeys(keys))
        arrival = next(self._arrival)
        is_late = tick < self._latest
        for key in list(chain(truncations.active, truncations.idle) if is_late else truncations.active):
            entry = self._entries[key]
            if key in simple_tuples:
                new_tuples.add(simple_tuples.pop(key))
            elif isinstance(entry, StreamTuple):
                if entry.start > tick or self._window.end(entry.start) <= tick:
                    continue
                if self._is_simple(key, tick, None):
                    self._drop(key)
                    changes.ended.append((entry, tick))
                    continue
            timeline = self._timeline(key)
            if key in timelines or (timeline.lives_at(tick) if is_late else not timeline.is_over):
                timelines[key] = timeline
                timeline.add(LifeEvent(tick, arrival, None, truncates=True))
        if not is_late:
            truncations.idle |= truncations.active
            truncations.active = {}
        truncations.forget(self._horizon)
        truncations.add(tick, arrival)

    def truncations(self) -> list[tuple[int, int, int]]:
        """The truncations that late records may precede: relation, tick and arrival."""
        return [
            (relation, *mark)
            for relation, truncations in self._truncations.items()
            for mark in truncations.marks
        ]

    def take_over(self, live_tuple: StreamTuple) -> None:
        """Take the single tuple of an identity back from the keeper.

        A later tuple of the identity may be here already, if records earlier than both may still arrive.
        """
        key = identity(self._schema, live_tuple.relation, live_tuple.row)
        if key in self._entries:
            timeline = self._timeline(key)
            timeline.add(LifeEvent(live_tuple.start, -1, live_tuple))
            timeline.apply_marks({live_tuple}, Changes())
        else:
            self._entries[key] = live_tuple
        if live_tuple.relation in self._truncations:
            self._truncations[live_tuple.relation].touch(key)
        self._mark_queue.push(live_tuple.start, key)
        self._expire_later(live_tuple)

    def remember(self, live_tuple: StreamTuple) -> None:
        """Add a live tuple that is not remembered. Equal ones are added in the order of their start."""
        key = identity(self._schema, live_tuple.relation, live_tuple.row)
        self._latest = max(self._latest, live_tuple.start)
        timeline = self._timeline(key)
        timeline.add(LifeEvent(live_tuple.start, next(self._arrival), live_tuple))
        if live_tuple.relation in self._truncations:
            self._truncations[live_tuple.relation].touch(key)
        timeline.apply_marks({live_tuple}, Changes())
        self._mark_queue.push(live_tuple.start, key)
        self._expire_later(live_tuple)

    def fronts(self, horizon: int) -> list[Front]:
        """The fronts a window before ``horizon``, of queues that a replay of two windows may get wrong."""
        tick = horizon - self._window.end(0)
        return [front for key in self._queues if (front := self._front(key, tick))]

    def timelines(self) -> list[tuple[GroupKey, IdentityTimeline]]:
        """The timelines of identities with several live tuples, or that late records may correct."""
        return [(key, entry) for key, entry in self._entries.items() if isinstance(entry, IdentityTimeline)]

    def expect(self, fronts: Iterable[Front]) -> None:
        """Set the fronts for a replay, as ``fronts`` returned them for this horizon or an earlier one.

        In these queues no row before the front is alive, and no deletion before its tick ends a row. This is
        true for late records as well, unless a deletion that arrived before its row has left the log earlier
        than the row.
        """
        self._fronts = {(front.relation, front.row, False): front for front in fronts}
        self._fronts_end = max((front.tick for front in self._fronts.values()), default=ALWAYS)

    def change_schema(self, schema: Schema) -> None:
        """Use a changed schema, in which relations keep their positions; removed ones are forgotten."""
        removed = schema.evolution.removed_relations
        self._schema = schema
        self._entries = {key: entry for key, entry in self._entries.items() if key[0] not in removed}
        self._queues &= self._entries.keys()
        self._truncations = {
            relation: truncations
            for relation, truncations in self._truncations.items()
            if relation not in removed
        }

    def forget(self, horizon: int) -> None:
        """Drop everything that no record at or after ``horizon`` can change."""
        self._horizon = max(self._horizon, horizon)
        for _, key in list(self._mark_queue.pop_expired(horizon - 1)):
            self._trim(key, horizon)
        for _, key in list(self._expiry_queue.pop_expired(horizon - 1)):
            self._trim(key, horizon)
        for truncations in self._truncations.values():
            truncations.forget(horizon)
        if horizon > self._fronts_end:
            self._fronts.clear()

    def _trim(self, key: GroupKey, horizon: int) -> None:
        entry = self._entries.get(key)
        if isinstance(entry, IdentityTimeline):
            if entry.trim(horizon):
                self._drop(key)
            elif entry.ended and not (entry.before or entry.marks):
                self._mark_queue.push(self._window.end(entry.ended[-1][-1]), key)
                self._empty_queues[key] = None
                if len(self._empty_queues) > _MOST_EMPTIED:
                    self._drop(next(iter(self._empty_queues)))
            elif not entry.marks and len(entry.before) == 1 and entry.queued is None:
                self._entries[key] = entry.before[0]
                self._hand_over(key, entry.before[0])
        elif entry is not None and entry.end < horizon:
            self._drop(key)
        elif entry is not None and entry.start < horizon:
            self._hand_over(key, entry)

    def _hand_over(self, key: GroupKey, live_tuple: StreamTuple) -> None:
        """Give a tuple to the keeper, unless its name depends on its number among equal tuples."""
        if self._keeper is not None and not live_tuple.occurrence:
            self._drop(key)
            self._keeper.keep(live_tuple)

    def _drop(self, key: GroupKey) -> None:
        if self._entries.pop(key, None) is not None and self._keeper is not None:
            self._keeper.forget_identity(key)
        self._empty_queues.pop(key, None)
        self._queues.discard(key)
        if key[0] in self._truncations:
            self._truncations[key[0]].drop(key)

    def _expire_later(self, live_tuple: StreamTuple) -> None:
        """Queue a tuple to be dropped at the end of its window."""
        end = self._window.end(live_tuple.start)
        if end >= FOREVER:
            return
        key = identity(self._schema, live_tuple.relation, live_tuple.row)
        if self._keeper is not None and key[2]:
            return  # the keeper stores it once no record can correct it
        self._expiry_queue.push(end, key)
        if len(self._expiry_queue) > self._expiry_limit:
            queue: ExpiryQueue[GroupKey] = ExpiryQueue()
            live_tuples = (
                (stream_tuple, key)
                for key, live_tuple in self._entries.items()
                for stream_tuple in _live_tuples(live_tuple)
            )
            for end, key in sorted(((self._window.end(t.start), key) for t, key in live_tuples), key=_TICK):
                queue.push(end, key)
            self._expiry_queue = queue
            self._expiry_limit = 2 * len(queue) + _LEAST_QUEUED

    def _with_fronts(self, tick: int, records: Iterable[RowChange]) -> Iterable[RowChange]:
        """The records, changed so that they lead to the expected fronts."""
        return self._replay_to_fronts(tick, records) if tick < self._fronts_end else records

    def _replay_to_fronts(self, tick: int, records: Iterable[RowChange]) -> Iterator[RowChange]:
        for record in records:
            relation, row, delete, time, place = record
            if not row:
                yield record
                continue
            key = identity(self._schema, relation, row)
            front = self._fronts.get(key)
            if front is None or tick >= front.tick:
                yield record
            elif not delete and tick >= front.start:
                yield record
                if tick == front.start and front.occurrence:
                    # An equal row of the same instant came before the front: it is counted, and dead.
                    self._fronts[key] = front._replace(occurrence=front.occurrence - 1)
                    yield relation, row, True, time, place

    def _front(self, key: GroupKey, tick: int) -> Front | None:
        timeline, (relation, row, _) = self._timeline(key), key
        if timeline.queued is None or timeline.queued >= tick:
            return None  # all of the queue is in the log
        oldest = timeline.oldest(tick)
        return None if oldest is None else Front(relation, row, *oldest, tick)

    def _timeline(self, key: GroupKey) -> IdentityTimeline:
        """The timeline of an identity, up to date; a single tuple begins it."""
        entry = self._entries.get(key)
        if isinstance(entry, IdentityTimeline):
            if entry.marks and entry.marks[0].tick < self._horizon:
                entry.trim(self._horizon)
            self._empty_queues.pop(key, None)
            return entry
        front = self._fronts.get(key)
        queue_start = None if front is None else front.start
        timeline = self._entries[key] = IdentityTimeline(self._window, key[2], queue_start)
        if entry is not None and entry.start < self._horizon:
            timeline.before.append(entry)
            timeline.live.append(entry)
        elif entry is not None:
            arrival = -1
            truncations = self._truncations.get(key[0])
            if truncations is not None and (truncation := truncations.at_tick(entry.start)) is not None:
                timeline.end_all(*truncation)  # the tuple is alive, so it came later
                _, arrival = truncation
            timeline.add(LifeEvent(entry.start, arrival, entry))
        return timeline


def _live_tuples(entry: StreamTuple | IdentityTimeline) -> Iterable[StreamTuple]:
    return entry.live if isinstance(entry, IdentityTimeline) else (entry,)
