"""Replay files as a source: read as fast as possible, or at the pace of their records' times.

An offset counts the items before it: bad records, which come first since they
have no time, and the records of the latest time. So offsets remain valid when a
new schema changes which records are bad. The clock determines only when an item
is returned; the items between two offsets do not depend on it.

To seek an instant, reading begins at the part of the files that contains its first
record: the first reading stores the earliest time of each part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from skws.data.batch import (
    MEMORY_RECORDS,
    NO_RECORDS,
    BadRecord,
    Chunk,
    Ints,
    RecordBatch,
    concat_batches,
)
from skws.formats.dead_letters import BadRecordLog
from skws.formats.replay_files import Replay
from skws.sources.feed import (
    Batch,
    Clock,
    Feed,
    Offset,
    Source,
    SystemClock,
    parse_offset,
)
from skws.spec.enums import OnError
from skws_schema.model import Schema

if TYPE_CHECKING:
    from skws.data.batch import Ints

MOST: Final = 1024
"""The most buckets: more than a terminal has columns."""


class TimeBuckets:
    """Counts by time, in buckets of one width, a power of two that doubles as the time between events grows.

    ``most``: the most buckets, at least 2. Times are in microseconds. One thread adds, any thread reads.
    ``first``, ``last``: the earliest and the latest time, None before the first event.
    """

    def __init__(self, most: int = MOST) -> None:
        self._max_buckets = most
        self.first: int | None = None
        self.last: int | None = None
        self._buckets: tuple[int, dict[int, int]] = (1, {})  # width, counts by number; replaced together

    def add(self, events: Ints | Sequence[int]) -> None:
        """Count events at these times, in any order."""
        if not len(events):
            return
        import numpy as np  # noqa: PLC0415 - loads after the terminal UI's first picture

        times = np.asarray(events, dtype=np.int64)
        first, last = int(times.min()), int(times.max())
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        width = self._buckets[0]
        while self.last // width - self.first // width >= self._max_buckets:
            width *= 2
        counts = self._counts(width)
        numbers, increments = np.unique(times // width, return_counts=True)
        for number, count in zip(numbers.tolist(), increments.tolist(), strict=True):
            counts[number] = counts.get(number, 0) + count
        self._buckets = width, counts

    def larger(self, other: TimeBuckets) -> TimeBuckets:
        """The larger of two counts in each bucket, for events of which some were counted in both."""
        larger = TimeBuckets(self._max_buckets)
        larger.first = min(_defined(self.first, other.first), default=None)
        larger.last = max(_defined(self.last, other.last), default=None)
        width = max(self._buckets[0], other._buckets[0])
        while larger.last is not None and larger.first is not None:
            if larger.last // width - larger.first // width < self._max_buckets:
                break
            width *= 2
        counts, other_counts = self._counts(width), other._counts(width)
        larger._buckets = (
            width,
            {n: max(counts.get(n, 0), other_counts.get(n, 0)) for n in counts.keys() | other_counts},
        )
        return larger

    def before(self, time: int) -> int:
        """The start of the last bucket with events before that of ``time``; at least the first event."""
        assert self.first is not None  # noqa: S101 - there are events
        width, counts = self._buckets
        earlier = [bucket for bucket in counts if bucket < time // width]
        return max(max(earlier) * width, self.first) if earlier else self.first

    def columns(self, number: int, first: int, last: int) -> list[int]:
        """Counts in ``number`` columns of equal length, from the time ``first`` to ``last``."""
        totals = [0] * number
        width, counts = self._buckets
        length = max(last - first, 1)
        for bucket, count in list(counts.items()):
            middle = min(max(bucket * width + width // 2, first), last)
            if first < (bucket + 1) * width and bucket * width <= last:
                totals[min((middle - first) * number // length, number - 1)] += count
        return totals

    def _counts(self, width: int) -> dict[int, int]:
        """The counts in buckets of a width that is a multiple of the present one."""
        present, counts = self._buckets
        if present == width:
            return dict(counts)
        return _sum_by_bucket(((bucket * present) // width, count) for bucket, count in counts.items())


def _sum_by_bucket(counts: Iterable[tuple[int, int]]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for bucket, count in counts:
        sums[bucket] = sums.get(bucket, 0) + count
    return sums


def _defined(*times: int | None) -> Iterable[int]:
    return [time for time in times if time is not None]


_LATEST: Final = (1 << 62) - 1  # later than any time of a record
_SEEK_BATCH: Final = 16_384
"""The records of a batch while seeking an instant."""


class RecordTimeline:
    """Records of ``batches``, which are in order of time; a batch is read when its first record is needed."""

    def __init__(self, batches: Iterator[RecordBatch]) -> None:
        self._batches = batches
        self._head: RecordBatch | None = None

    @property
    def next_time(self) -> int | None:
        """The time of the next record; None at the end."""
        batch = self._head_batch()
        return None if batch is None else batch.time.item(0)

    def take(self, limit: int, until: int = _LATEST) -> RecordBatch:
        """The next records whose time is at most ``until``."""
        batches: list[RecordBatch] = []
        count = 0
        while count < limit and (batch := self._head_batch()) is not None:
            due_count = min(int(np.searchsorted(batch.time, until, "right")), limit - count)
            if due_count:
                batches.append(self._cut(batch, due_count))
                count += due_count
            if due_count < len(batch):
                break
        return concat_batches(batches).compact() if batches else NO_RECORDS

    def skip_to(self, time: int, same: int) -> None:
        """Skip all records before ``time``, and at most ``same`` records of that time."""
        while (batch := self._head_batch()) is not None:
            before = int(np.searchsorted(batch.time, time, "left"))
            same_count = int(np.searchsorted(batch.time, time, "right")) - before
            skipped = before + min(same, same_count)
            same -= skipped - before
            if skipped:
                self._cut(batch, skipped)
            if skipped < len(batch):
                return

    def _head_batch(self) -> RecordBatch | None:
        while self._head is None:
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._head = batch if len(batch) else None
        return self._head

    def _cut(self, batch: RecordBatch, index: int) -> RecordBatch:
        """Take the first records of the front batch."""
        if index == len(batch):
            self._head = None
            return batch
        head, self._head = batch.cut(index)
        return head


class _BadRecords(BadRecordLog):
    """Collects bad records, which the feed returns as items."""

    def __init__(self) -> None:
        super().__init__(OnError.SKIP)
        self.all: list[BadRecord] = []

    def add(self, bad: BadRecord) -> None:
        self.all.append(bad)


@dataclass(frozen=True, slots=True)
class _Scan:
    """The result of the first reading.

    ``batches``: all records, if there are few. ``starts``: the earliest time from each part of the files on,
    if these are in order of time.
    """

    bad: list[BadRecord]
    batches: list[RecordBatch] | None
    times: TimeBuckets
    starts: list[int]


class ReplayFeed(Feed):
    """The records of replay files in order of time.

    ``speed``: seconds of the replay per second; None for no pace. ``memory_records``: if there are more
    records, they do not stay in memory, but are read a second time.
    """

    def __init__(
        self, path: Path, schema: Schema, speed: float | None, clock: Clock, memory_records: int
    ) -> None:
        self._path = path
        self._position = _Position()
        self._speed = speed
        self._clock = clock
        self._memory_records = memory_records
        self._bad_records: deque[BadRecord] = deque()
        self._records = RecordTimeline(iter(()))
        # The time of the first record and the time of its return; they determine those of all others.
        self._origin: tuple[int, int] | None = None
        self.change_schema(schema)

    def start(self) -> Offset:
        return _Position().offset()

    def change_schema(self, schema: Schema) -> None:
        self._replay = Replay.open(self._path, schema)
        self._notices = self._replay.notes
        self._scan: _Scan | None = None
        self._open = False

    def tables(self) -> Iterator[Chunk]:
        log = _BadRecords()
        yield from map(Chunk, self._replay.tables(log))
        yield Chunk(NO_RECORDS, log.all)

    def poll(self, start: Offset, limit: int) -> Batch:
        """The bad records, and the records that are due."""
        self._seek(_Position.of(start))
        now = self._clock.now()
        bad = [self._bad_records.popleft() for _ in range(min(limit, len(self._bad_records)))]
        records = NO_RECORDS
        if (first := self._records.next_time) is not None:
            self._origin = self._origin or (first, now)
            records = self._records.take(limit - len(bad), self._due_until(now))
        self._position = self._position.after(len(bad), records.time)
        ended = not self._bad_records and self._records.next_time is None
        notices, self._notices = self._notices, ()
        return Batch(Chunk(records, bad), self._position.offset(), notices, ended=ended)

    @property
    def times(self) -> TimeBuckets | None:
        """The times of all records; None until they are known."""
        self._seek(self._position)  # after a change of the schema, everything is read again
        return None if self._scan is None else self._scan.times

    @property
    def next_time(self) -> int | None:
        """The time of the next record; None at the end."""
        self._seek(self._position)
        return self._records.next_time

    def seek(self, start: int | None, now: int) -> Iterator[Batch]:
        """The records from the time ``start`` to ``now``; later polls continue from there at the feed's pace.

        ``start``: None to continue at the current position. There is at least one batch, perhaps an empty
        one.
        """
        if start is not None:
            self._position = _Position(0, start)
            self._bad_records, self._records = self._items_after(self._position)
            self._open = True
        self._seek(self._position)
        self._origin = (now, self._clock.now())
        while True:
            records = self._records.take(_SEEK_BATCH, now)
            self._position = self._position.after(0, records.time)
            yield Batch(Chunk(records), self._position.offset())
            if len(records) < _SEEK_BATCH:
                return

    def replay(self, start: Offset, end: Offset) -> Chunk:
        bad_records, records = self._items_after(_Position.of(start))
        count = _Position.of(end).items - _Position.of(start).items
        bad = list(islice(bad_records, count))
        return Chunk(records.take(count - len(bad)), bad)

    def close(self) -> None:
        self._bad_records, self._records, self._scan = deque(), RecordTimeline(iter(())), None

    def _seek(self, position: _Position) -> None:
        if not self._open or position != self._position:
            is_new = position != self._position
            self._bad_records, self._records = self._items_after(position)
            self._position, self._open = position, True
            self._origin = None if is_new else self._origin

    def _items_after(self, position: _Position) -> tuple[deque[BadRecord], RecordTimeline]:
        """The items after ``position``, which is found by its time, or by the number of bad records alone."""
        bad, batches = self._read_since(position.time)
        records = RecordTimeline(batches)
        if position.time is None:
            records.take(max(0, position.items - len(bad)))
            return deque(islice(bad, position.items, None)), records
        # If their relation was removed, there are now fewer of that time: later ones are returned.
        records.skip_to(position.time, position.same)
        return deque(), records

    def _due_until(self, now: int) -> int:
        if self._speed is None:
            return _LATEST
        first, start = self._origin or (0, now)
        return min(_LATEST, first + int((now - start) * self._speed))

    def _read_since(self, since: int | None = None) -> tuple[list[BadRecord], Iterator[RecordBatch]]:
        """The bad records, and the others in order of time; all are read before the first is returned.

        Unless there are few, they are then read a second time: of files in order of time, only the parts with
        records of the time ``since`` or later; other files are sorted again.
        """
        scan = self._scan = self._scan or self._read_files()
        if scan.batches is not None:
            return scan.bad, iter(scan.batches)
        first_split = 0 if since is None else max(bisect_left(scan.starts, since) - 1, 0)
        return scan.bad, self._replay.since(first_split).batches(BadRecordLog(OnError.SKIP))

    def _read_files(self) -> _Scan:
        log, times = _BadRecords(), TimeBuckets()
        pending: list[RecordBatch] = []
        starts: list[int] = []
        count = 0
        for part in self._replay.parts():
            start = _LATEST
            for batch in part.batches(log):
                count += len(batch)
                times.add(batch.time)
                if len(batch):
                    start = min(start, batch.time.item(0))
                if count <= self._memory_records:
                    pending.append(batch)
            starts.append(start)
        # A part without records has the time of the next part.
        starts = list(accumulate(reversed(starts), min))[::-1]
        return _Scan(log.all, pending if count <= self._memory_records else None, times, starts)


@dataclass(frozen=True)
class ReplaySource(Source):
    """The replay files at ``path``, ``speed`` times as fast as their records happened; None: unpaced."""

    path: Path
    speed: float | None = None
    clock: Clock = field(default_factory=SystemClock)
    memory_records: int = MEMORY_RECORDS

    @property
    def name(self) -> str:
        return f"replay:{self.path}" + ("" if self.speed is None else f"?speed={self.speed:g}")

    @property
    def bounded(self) -> bool:
        return True

    def open(self, schema: Schema) -> Feed:
        return ReplayFeed(self.path, schema, self.speed, self.clock, self.memory_records)


@dataclass(frozen=True, slots=True)
class _Position:
    """The number of items before it, the latest time, and the number of records of that time."""

    items: int = 0
    time: int | None = None
    same: int = 0

    @classmethod
    def of(cls, offset: Offset) -> _Position:
        """The position in an offset. Raises SourceError."""
        return parse_offset(offset, "a replay", lambda: cls._parse(offset))

    @classmethod
    def _parse(cls, offset: Offset) -> _Position:
        time = offset.get("time")
        return cls(int(offset["items"]), None if time is None else int(time), int(offset.get("same", 0)))

    def offset(self) -> Offset:
        offset: Offset = {"items": self.items}
        return offset if self.time is None else {**offset, "time": self.time, "same": self.same}

    def after(self, bad: int, times: Ints) -> _Position:
        """The position after ``bad`` more bad records and records of these times, in order."""
        if not len(times):
            return _Position(self.items + bad, self.time, self.same)
        last: int = times.item(-1)
        same = len(times) - int(np.searchsorted(times, last, "left"))
        earlier = self.same if same == len(times) and not bad and self.time == last else 0
        return _Position(self.items + bad + len(times), last, earlier + same)
