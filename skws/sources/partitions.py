"""How far a stream has come that is read from several partitions: growing files, partitions of topics.

A partition is in order, but for the lateness, and no partition knows of another: what is read of one may be
hours behind what is read of the next. So up to the *stream time* everything is final: the least time that all
partitions have come to, without those that are idle. A record is late if it is before the stream time, less
the lateness; so a partition in order loses nothing while it is waited for, however it is read beside others.

A partition is waited for from its first record on, and is idle once the source has had nothing of it for a
while by the clock. Where all are idle, the stream has come to its latest record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from skws.data.batch import Chunk, Ints
from skws.data.value_conversion import EARLIEST
from skws.sources.feed import Batch, Clock, Feed, Offset, OuterFeed


class PartitionEnds:
    """How far partitions have come that a task of Spark reads, one or several.

    Where nothing tells them apart, a record that is earlier than the lateness (microseconds) allows begins
    another one: what is read of a partition ends no later than the last stretch that is in order. ``until``:
    the least time of what nobody has read yet; None if nothing is earlier than what was read.
    """

    def __init__(self, lateness: int, until: int | None = None) -> None:
        self._lateness = lateness
        self._until = until
        self._ended: set[int] = set()
        self._reached: dict[int | None, int] = {}

    def take(self, times: Ints, partition: int | None = None) -> None:
        """Times of records in order of arrival; ``partition``: theirs, None if nobody knows it."""
        if not len(times):
            return
        reached = self._reached.get(partition, int(times[0]))
        before = np.maximum.accumulate(np.concatenate([[reached], times]))
        if partition is not None or (times >= before[:-1] - self._lateness).all():
            self._reached[partition] = int(before[-1])
            return
        for time in times.tolist():
            if time < reached - self._lateness:
                self._ended.add(reached)
                reached = time
            reached = max(reached, time)
        self._reached[partition] = reached

    def all(self) -> Ints:
        """The latest times, each once."""
        return np.array(sorted(self._ended.union(self._reached.values())), dtype=np.int64)

    def told(self) -> Ints:
        """The same as rows of a partition and a time; partition 0 where nobody knows it."""
        rows = [(0, time) for time in sorted(self._ended)]
        rows += [(0 if known is None else known, time) for known, time in self._reached.items()]
        told = np.array(rows, dtype=np.int64).reshape(-1, 2)
        if self._until is not None:
            told[:, 1] = np.minimum(told[:, 1], self._until)
        return told


_GOES_ON: Final = 0xFFFF  # the bits of a partition's number that are not all 0 if it may go on


def named(partition: int, of: int | None) -> int:
    """A number for a partition of one of several inputs, if it may go on after a micro-batch without it.

    ``of``: the number of the input; None for a partition that counts in its micro-batch alone.
    """
    return (partition << 16) + (0 if of is None else of + 1)


class AwaitedPartitions:
    """Partitions that may have more records after micro-batches in which they had none.

    ``known``: of each its number, how far it has come, and when it last brought something, by the clock.
    ``idle``: for how long it is waited for, in microseconds.
    """

    def __init__(self, known: Iterable[Sequence[int]], idle: int) -> None:
        self._known = {number: (end, seen) for number, end, seen in known}
        self._idle = idle

    def ends(self, told: Ints, clock: int) -> Ints:
        """How far all have come that brought something (``PartitionEnds.told``) or are waited for.

        Several tasks may have read of one partition, which has come as far as the last of them.
        """
        brought: dict[int, int] = {}
        for number, end in told.tolist():
            brought[number] = max(end, brought.get(number, end))
        brought.pop(0, None)
        waiting = {
            number: (end, seen)
            for number, (end, seen) in self._known.items()
            if number not in brought and clock - seen <= self._idle
        }
        lasting = {number: (end, clock) for number, end in brought.items() if number & _GOES_ON}
        self._known = waiting | lasting
        tracked_ends = [*brought.values(), *(end for end, _ in waiting.values())]
        return np.concatenate([told[told[:, 0] == 0, 1], np.array(tracked_ends, dtype=np.int64)])

    @property
    def known(self) -> list[list[int]]:
        return [[number, end, seen] for number, (end, seen) in sorted(self._known.items())]


def final_of(ends: Ints, before: int, lateness: int, latest: int) -> int:
    """The stream time after some records; ``before``: that before them.

    ``ends``: how far each partition has come that brought something or is waited for. One whose records were
    all late does not count. ``latest``: the time of the latest record, which all have come to if none is
    waited for.
    """
    if not len(ends):
        return max(before, latest)
    timely = ends[ends >= before - lateness]
    return max(before, int(timely.min())) if len(timely) else before


STREAM_TIME: Final = "stream_time"


@dataclass(frozen=True, slots=True)
class StreamTime:
    """How far a stream of several partitions has come; a part of offsets.

    ``reached``: the latest time in each partition that is waited for, by its number. ``latest``: that of all
    records. ``final``: the stream time; None while it has always been ``latest``, so that nothing that came
    was behind another partition.
    """

    reached: Mapping[int, int] = field(default_factory=dict)
    latest: int = EARLIEST
    final: int | None = None

    @classmethod
    def of(cls, offset: Offset) -> StreamTime:
        """That of an offset. Raises like malformed offsets."""
        stored = offset.get(STREAM_TIME)
        if stored is None:
            return cls()
        return cls(dict(stored["reached"]), int(stored["latest"]), stored["final"])

    def offset(self) -> dict[str, Any]:
        reached = [[one, time] for one, time in sorted(self.reached.items())]
        return {"reached": reached, "latest": self.latest, "final": self.final}

    def after(
        self, brought: Mapping[int, int], ahead: Mapping[int, int], gone: Collection[int], lateness: int
    ) -> StreamTime:
        """The same after a batch.

        ``brought``: the latest times in it, by partition. ``ahead``: the times of records that come next.
        ``gone``: partitions that are waited for no more.
        """
        latest = max((self.latest, *brought.values()))
        reached = dict(self.reached)
        for one, time in (*brought.items(), *ahead.items()):
            reached[one] = max(time, reached.get(one, time))
        for one in gone:
            reached.pop(one, None)
        before = self.latest if self.final is None else self.final
        ends = np.fromiter(reached.values(), dtype=np.int64, count=len(reached))
        final = min(latest, final_of(ends, before, lateness, latest))
        return StreamTime(reached, latest, None if self.final is None and final == latest else final)


def stream_time(offset: Offset) -> int | None:
    """The stream time after an offset; None if the latest record says it."""
    stored = offset.get(STREAM_TIME)
    return None if stored is None else stored["final"]


def stream_time_before(before: Offset | None, after: Offset) -> int | None:
    """The stream time before a batch, by the offsets around it; None if partitions were in step until then.

    Of a batch out of step the offset before it must be known: else it is before all times.
    """
    final = stream_time(after) if before is None else stream_time(before)
    if before is None:
        return None if final is None else EARLIEST
    if final is None and stream_time(after) is not None:
        return StreamTime.of(before).latest  # up to here partitions were in step
    return final


class PartitionedFeed(OuterFeed):
    """Adds the stream time to the offsets of a feed, so that a run that resumes judges as the one before.

    ``lateness`` and ``idle`` in microseconds; ``clock`` says for how long a partition has brought nothing.
    Batches of a feed that tells no partitions (``Chunk.partitions``) pass as they are.
    """

    def __init__(self, feed: Feed, clock: Clock, lateness: int, idle: int) -> None:
        super().__init__(feed)
        self._clock = clock
        self._lateness = lateness
        self._idle = idle
        self._heard: dict[int, int] = {}  # when each partition last brought something
        # A feed may know the object that it has given.
        self._known: tuple[Offset, Offset, StreamTime] = ({}, {}, StreamTime())

    def poll(self, start: Offset, limit: int) -> Batch:
        own, before = self._parts_of(start)
        batch = self._feed.poll(own, limit)
        after = self._moved(before, batch)
        if after is before and batch.end is own:
            return batch if start is own else replace(batch, end=start)
        if after == StreamTime():
            return batch
        self._known = {**batch.end, STREAM_TIME: after.offset()}, batch.end, after
        return replace(batch, end=self._known[0])

    def _own(self, offset: Offset) -> Offset:
        return self._parts_of(offset)[0]

    def _parts_of(self, offset: Offset) -> tuple[Offset, StreamTime]:
        """The offset of the feed within, and the stream time."""
        if STREAM_TIME not in offset:
            return offset, StreamTime()
        if offset is not self._known[0]:
            own = {name: value for name, value in offset.items() if name != STREAM_TIME}
            self._known = offset, own, StreamTime.of(offset)
        return self._known[1:]

    def _moved(self, before: StreamTime, batch: Batch) -> StreamTime:
        """The stream time after a batch; ``before`` itself if nothing has changed."""
        brought, now = latest_by_partition(batch.read), self._clock.now()
        if not (brought or batch.ahead) and before.final is None:
            if not batch.answered:
                self._heard.clear()
            return before
        heard = brought.keys() | batch.ahead.keys() if batch.answered else {*before.reached, *brought}
        self._heard |= dict.fromkeys(heard, now)
        idle = {one for one in before.reached if now - self._heard.setdefault(one, now) > self._idle}
        after = before.after(brought, batch.ahead, idle | batch.over, self._lateness)
        # Also of idle ones that stay in the offset as long as the others keep the stream time where it is.
        self._heard = {one: self._heard[one] for one in {*before.reached, *after.reached}}
        return before if not (brought or batch.ahead) and after.final == before.final else after


def latest_by_partition(chunk: Chunk) -> dict[int, int]:
    """The latest time in each partition of a chunk; empty if it tells none."""
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


_RUNS: Final = 64  # of records of one partition, from which on they are sorted by partition
