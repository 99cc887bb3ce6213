"""The stream time of a stream that is read from several partitions: growing files, partitions of topics.

Each partition is in order, apart from the lateness, but one may be read hours behind another. The *stream
time* is the least of the latest times of all partitions that are not idle; everything before it is final. A
record is late if it is before the stream time minus the lateness. So a partition in order loses no record
while it is waited for, whatever the progress of the others.

A partition is waited for from its first record on. It is idle once the source has had no record of it for
some time by the clock. If all partitions are idle, the stream time is the time of the latest record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from skws.data.batch import Chunk, Ints
from skws.data.value_conversion import EARLIEST
from skws.sources.feed import Batch, BatchPlan, Clock, Feed, FeedPart, Offset, OuterFeed


class PartitionEnds:
    """The latest times of the partitions that a task of Spark reads.

    If partitions are unknown, a record that is earlier than the lateness (microseconds) allows begins another
    one: the records of a partition end no later than the last run of records in order. ``until``: the least
    time of the records that are not read yet; None if none of them is earlier than those that were read.
    """

    def __init__(self, lateness: int, until: int | None = None) -> None:
        self._lateness = lateness
        self._until = until
        self._run_ends: set[int] = set()
        self._ends: dict[int | None, int] = {}

    def take(self, times: Ints, partition: int | None = None) -> None:
        """Add times of records in order of arrival; ``partition``: None if it is unknown."""
        if not len(times):
            return
        end = self._ends.get(partition, int(times[0]))
        before = np.maximum.accumulate(np.concatenate([[end], times]))
        if partition is not None or (times >= before[:-1] - self._lateness).all():
            self._ends[partition] = int(before[-1])
            return
        for time in times.tolist():
            if time < end - self._lateness:
                self._run_ends.add(end)
                end = time
            end = max(end, time)
        self._ends[partition] = end

    def all(self) -> Ints:
        """The distinct latest times, sorted."""
        return np.array(sorted(self._run_ends.union(self._ends.values())), dtype=np.int64)

    def rows(self) -> Ints:
        """The latest times as rows of a partition and a time; partition 0 if it is unknown."""
        rows = [(0, time) for time in sorted(self._run_ends)]
        rows += [(0 if partition is None else partition, time) for partition, time in self._ends.items()]
        ends = np.array(rows, dtype=np.int64).reshape(-1, 2)
        if self._until is not None:
            ends[:, 1] = np.minimum(ends[:, 1], self._until)
        return ends


_INPUT_BITS: Final = 0xFFFF  # these bits of a partition's number are not all 0 if it may continue


def partition_number(partition: int, input_number: int | None) -> int:
    """The number of a partition of one of several inputs.

    ``input_number``: None for a partition that does not continue after its micro-batch.
    """
    return (partition << 16) + (0 if input_number is None else input_number + 1)


class AwaitedPartitions:
    """Partitions that may have more records after micro-batches in which they had none.

    ``rows``: for each partition its number, its latest time, and the time of its last record by the clock.
    ``idle``: the microseconds without records after which a partition is no longer waited for.
    """

    def __init__(self, rows: Iterable[Sequence[int]], idle: int) -> None:
        self._partitions = {number: (end, last_seen) for number, end, last_seen in rows}
        self._idle = idle

    def ends(self, rows: Ints, clock: int) -> Ints:
        """The latest times of partitions that have records (``PartitionEnds.rows``) or are waited for.

        If several tasks have read one partition, the latest of their times counts.
        """
        batch_ends: dict[int, int] = {}
        for number, end in rows.tolist():
            batch_ends[number] = max(end, batch_ends.get(number, end))
        batch_ends.pop(0, None)
        awaited = {
            number: (end, last_seen)
            for number, (end, last_seen) in self._partitions.items()
            if number not in batch_ends and clock - last_seen <= self._idle
        }
        continuing = {number: (end, clock) for number, end in batch_ends.items() if number & _INPUT_BITS}
        self._partitions = awaited | continuing
        tracked_ends = [*batch_ends.values(), *(end for end, _ in awaited.values())]
        return np.concatenate([rows[rows[:, 0] == 0, 1], np.array(tracked_ends, dtype=np.int64)])

    @property
    def rows(self) -> list[list[int]]:
        return [[number, end, last_seen] for number, (end, last_seen) in sorted(self._partitions.items())]


def final_of(ends: Ints, before: int, lateness: int, latest: int) -> int:
    """The stream time after some records; ``before``: the stream time before them.

    ``ends``: the latest times of the partitions that have records or are waited for. A partition whose
    records are all late does not count. ``latest``: the time of the latest record, which is the stream time
    if no partition is waited for.
    """
    if not len(ends):
        return max(before, latest)
    timely_ends = ends[ends >= before - lateness]
    return max(before, int(timely_ends.min())) if len(timely_ends) else before


STREAM_TIME: Final = "stream_time"


@dataclass(frozen=True, slots=True)
class StreamTime:
    """The progress of a stream of several partitions; a part of offsets.

    ``reached``: the latest time in each partition that is waited for, by its number. ``latest``: that of all
    records. ``final``: the stream time; None while it has always been ``latest``, since no record was behind
    those of another partition.
    """

    reached: Mapping[int, int] = field(default_factory=dict)
    latest: int = EARLIEST
    final: int | None = None

    @classmethod
    def of(cls, offset: Offset) -> StreamTime:
        """The stream time of an offset. Raises the errors of malformed offsets."""
        encoded = offset.get(STREAM_TIME)
        if encoded is None:
            return cls()
        return cls(dict(encoded["reached"]), int(encoded["latest"]), encoded["final"])

    def offset(self) -> dict[str, Any]:
        reached = [[partition, time] for partition, time in sorted(self.reached.items())]
        return {"reached": reached, "latest": self.latest, "final": self.final}

    def after(
        self, batch_ends: Mapping[int, int], ahead: Mapping[int, int], removed: Collection[int], lateness: int
    ) -> StreamTime:
        """The stream time after a batch.

        ``batch_ends``: the latest times in the batch, by partition. ``ahead``: the times of the records that
        come next. ``removed``: the partitions that are no longer waited for.
        """
        latest = max((self.latest, *batch_ends.values()))
        reached = dict(self.reached)
        for partition, time in (*batch_ends.items(), *ahead.items()):
            reached[partition] = max(time, reached.get(partition, time))
        for partition in removed:
            reached.pop(partition, None)
        before = self.latest if self.final is None else self.final
        ends = np.fromiter(reached.values(), dtype=np.int64, count=len(reached))
        final = min(latest, final_of(ends, before, lateness, latest))
        return StreamTime(reached, latest, None if self.final is None and final == latest else final)


def stream_time(offset: Offset) -> int | None:
    """The stream time after an offset; None if it is the time of the latest record."""
    encoded = offset.get(STREAM_TIME)
    return None if encoded is None else encoded["final"]


def stream_time_before(before: Offset | None, after: Offset) -> int | None:
    """The stream time before a batch, by the offsets around it; None if it is that of the latest record.

    If the offset before the batch is unknown and a partition was behind, the result is before all times.
    """
    final = stream_time(after) if before is None else stream_time(before)
    if before is None:
        return None if final is None else EARLIEST
    if final is None and stream_time(after) is not None:
        return StreamTime.of(before).latest  # until then no partition was behind
    return final


class PartitionedFeed(OuterFeed):
    """Adds the stream time to the offsets of a feed, so that a resumed run drops the same late records.

    ``lateness`` and ``idle`` are in microseconds; ``clock`` measures how long a partition has been idle.
    Batches without partitions (``Chunk.partitions``) are passed on unchanged.
    """

    def __init__(self, feed: Feed, clock: Clock, lateness: int, idle: int) -> None:
        super().__init__(feed)
        self._clock = clock
        self._lateness = lateness
        self._idle = idle
        self._last_heard: dict[int, int] = {}  # by partition: the time of its last records, by the clock
        # A feed may recognise an offset by its identity.
        self._last_offset: tuple[Offset, Offset, StreamTime] = ({}, {}, StreamTime())

    def poll(self, start: Offset, limit: int) -> Batch:
        inner_start, before = self._split(start)
        batch = self._feed.poll(inner_start, limit)
        after = self._after(
            before, latest_by_partition(batch.read), batch.ahead, batch.over, answered=batch.answered
        )
        if after is before and batch.end is inner_start:
            return batch if start is inner_start else replace(batch, end=start)
        return replace(batch, end=self._with_stream_time(batch.end, after))

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:
        """As of the feed. The stream time after it follows from the last record of each partition.

        None if one of these times is unknown.
        """
        inner_start, before = self._split(start)
        plan = self._feed.plan(inner_start, limit)
        if plan is None:
            return None
        reached = {partition: time for partition, time in plan.reached.items() if time is not None}
        if len(reached) < len(plan.reached):
            return None
        after = self._after(before, reached, {}, plan.over, answered=True)
        return replace(plan, end=self._with_stream_time(plan.end, after))

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:
        return self._feed.parts(self._inner_offset(start), self._inner_offset(end), number)

    def _inner_offset(self, offset: Offset) -> Offset:
        return self._split(offset)[0]

    def _with_stream_time(self, inner_offset: Offset, after: StreamTime) -> Offset:
        if after == StreamTime():
            return inner_offset
        self._last_offset = {**inner_offset, STREAM_TIME: after.offset()}, inner_offset, after
        return self._last_offset[0]

    def _split(self, offset: Offset) -> tuple[Offset, StreamTime]:
        """The offset of the inner feed, and the stream time."""
        if STREAM_TIME not in offset:
            return offset, StreamTime()
        if offset is not self._last_offset[0]:
            inner_offset = {name: value for name, value in offset.items() if name != STREAM_TIME}
            self._last_offset = offset, inner_offset, StreamTime.of(offset)
        return self._last_offset[1:]

    def _after(
        self,
        before: StreamTime,
        batch_ends: Mapping[int, int],
        ahead: Mapping[int, int],
        over: frozenset[int],
        *,
        answered: bool,
    ) -> StreamTime:
        """The stream time after a batch (see ``Batch``); ``before`` itself if nothing has changed.

        ``batch_ends``: as for ``StreamTime.after``.
        """
        now = self._clock.now()
        if not (batch_ends or ahead) and before.final is None:
            if not answered:
                self._last_heard.clear()
            return before
        active = batch_ends.keys() | ahead.keys() if answered else {*before.reached, *batch_ends}
        self._last_heard |= dict.fromkeys(active, now)
        idle = {
            partition
            for partition in before.reached
            if now - self._last_heard.setdefault(partition, now) > self._idle
        }
        after = before.after(batch_ends, ahead, idle | over, self._lateness)
        # Idle partitions stay in the offset, too, as long as the others hold the stream time.
        self._last_heard = {
            partition: self._last_heard[partition] for partition in {*before.reached, *after.reached}
        }
        return before if not (batch_ends or ahead) and after.final == before.final else after


def latest_by_partition(chunk: Chunk) -> dict[int, int]:
    """The latest time in each partition of a chunk; empty if the chunk has no partitions."""
    numbers, times = chunk.partitions, chunk.records.time
    if numbers is None or not len(times):
        return {}
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    if len(begins) > _RUNS:
        order = np.argsort(numbers, kind="stable")
        numbers, times = numbers[order], times[order]
        begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    latest: dict[int, int] = {}
    ends = np.maximum.reduceat(times, begins)
    for number, time in zip(numbers[begins].tolist(), ends.tolist(), strict=True):
        latest[number] = max(time, latest.get(number, time))
    return latest


_RUNS: Final = 64  # if there are more runs of records of one partition, records are sorted by partition
