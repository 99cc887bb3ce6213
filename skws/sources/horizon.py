"""Limits how far ahead of the clock a record of a live source may be.

One record from a wrong clock, ten years ahead, would make all later records late forever. So records beyond a
*horizon* are bad records. A feed that merges its parts by time checks them itself (Kafka's partitions); the
records of all other feeds pass through ``BoundedFeed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import time_ns
from typing import Final, NamedTuple

from skws.data.batch import BadRecord, Chunk, Record
from skws.data.value_conversion import LATEST
from skws.formats.dead_letters import record_line
from skws.sources.feed import Batch, BatchPlan, Feed, FeedPart, Offset, OuterFeed, Source
from skws_schema.model import Schema, iso
from skws_windows.window import duration_text

HORIZON: Final = "horizon"


def _now() -> int:
    return time_ns() // 1_000


FAR_AHEAD: Final = "ahead of the clock"
"""In the reasons of records beyond a horizon, the first of which a feed reports."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """The latest time that a record may have: ``ahead`` microseconds after the clock; None for any time.

    ``now``: microseconds since the epoch, of the real time, since the clock of a source may be that of a
    replay.
    """

    ahead: int | None = None
    now: Callable[[], int] = _now

    def latest(self) -> int:
        return LATEST if self.ahead is None else min(LATEST, self.now() + self.ahead)

    def fixed(self, latest: int) -> Horizon:
        """The horizon with the latest time ``latest``."""
        ahead = self.ahead or 0
        return Horizon(ahead, lambda: latest - ahead)

    def reason(self, time: int, latest: int) -> str:
        """The reason why a record of ``time`` is bad: it is after ``latest``."""
        ahead = self.ahead or 0
        return (
            f"the time {iso(time)} is more than {duration_text(ahead)} {FAR_AHEAD}, which is"
            f" {iso(latest - ahead)}: it would make all later ones late (--ahead allows more, 'none' any)"
        )


ANY_TIME: Final = Horizon()


class RefusalMark(NamedTuple):
    """A mark of refusals in offsets: the latest allowed time at the last refusal, and a number.

    Without the number, refusals while the clock does not advance would be invisible.
    """

    latest: int
    number: int

    @classmethod
    def of(cls, offset: Offset) -> RefusalMark | None:
        """The mark in an offset. Raises the errors of malformed offsets."""
        pair = offset.get(HORIZON)
        return None if pair is None else cls(*map(int, pair))

    @classmethod
    def after(cls, mark: RefusalMark | None, latest: int) -> RefusalMark:
        """The mark after further refusals."""
        return cls(latest, 1 if mark is None else mark.number + 1)


def latest_between(start: Offset, end: Offset) -> int:
    """The latest possible time of a record between two offsets."""
    mark = RefusalMark.of(end)
    return LATEST if mark is None or mark == RefusalMark.of(start) else mark.latest


def bounded(chunk: Chunk, latest: int, horizon: Horizon, name: str, schema: Schema) -> Chunk:
    """The records of a source; those after ``latest`` become bad records."""
    records = chunk.records
    if not len(records) or int(records.time.max()) <= latest:
        return chunk

    def bad_record(record: Record) -> BadRecord:
        where = f"({schema.relations[record.relation].name})"
        return BadRecord(name, 0, 0, record_line(record, schema), horizon.reason(record.time, latest), where)

    is_good = records.time <= latest
    return replace(chunk.only(is_good), bad=[*chunk.bad, *map(bad_record, records.take(~is_good).records())])


@dataclass(frozen=True, slots=True)
class BoundedPart(FeedPart):
    """A part of a feed, without records after ``latest``, which was ``ahead`` of the clock."""

    part: FeedPart
    name: str
    latest: int
    ahead: int

    @property
    def partition(self) -> int | None:
        return self.part.partition

    @property
    def may_grow(self) -> bool:
        return self.part.may_grow

    @property
    def until(self) -> int | None:
        return self.part.until

    def read(self, schema: Schema) -> Iterator[Chunk]:
        for chunk in self.part.read(schema):
            yield bounded(chunk, self.latest, Horizon(self.ahead), self.name, schema)


class BoundedFeed(OuterFeed):
    """Refuses the records of a feed that are beyond a horizon.

    An offset after refusals has their horizon, so that ``replay`` refuses the same records.
    """

    def __init__(self, feed: Feed, name: str, schema: Schema, horizon: Horizon) -> None:
        """``name``: the name of the source."""
        super().__init__(feed)
        self._name = name
        self._schema = schema
        self._horizon = horizon
        self._has_notified = False
        # A feed may recognize the offset object that it returned.
        self._last_offsets: tuple[Offset, Offset] = ({}, {})

    def poll(self, start: Offset, limit: int) -> Batch:
        inner_start = self._inner_offset(start)
        batch = self._feed.poll(inner_start, limit)
        latest = self._horizon.latest()
        bounded_chunk = self._bounded(batch.read, latest)
        if bounded_chunk is batch.read:
            end = start if batch.end is inner_start else self._with_mark(batch.end, RefusalMark.of(start))
            return batch if end is batch.end else replace(batch, end=end)
        notices = (
            batch.notices if self._has_notified else (*batch.notices, self._notice(batch.read, bounded_chunk))
        )
        self._has_notified = True
        return replace(
            batch,
            read=bounded_chunk,
            end=self._with_mark(batch.end, RefusalMark.after(RefusalMark.of(start), latest)),
            notices=notices,
        )

    def replay(self, start: Offset, end: Offset) -> Chunk:
        return self._bounded(
            self._feed.replay(self._inner_offset(start), self._inner_offset(end)), latest_between(start, end)
        )

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:
        """The plan, whose end always has a horizon, as records may be refused later.

        If the last record of a partition is among them, the time of the last accepted one is unknown.
        """
        latest = self._horizon.latest()
        plan = self._feed.plan(self._inner_offset(start), limit)
        if plan is None:
            return None
        reached = {
            partition: None if time is None or time > latest else time
            for partition, time in plan.reached.items()
        }
        end = self._with_mark(plan.end, RefusalMark.after(RefusalMark.of(start), latest))
        return replace(plan, end=end, reached=reached)

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:
        parts = self._feed.parts(self._inner_offset(start), self._inner_offset(end), number)
        latest, ahead = latest_between(start, end), self._horizon.ahead or 0
        return None if parts is None else [BoundedPart(part, self._name, latest, ahead) for part in parts]

    def change_schema(self, schema: Schema) -> None:
        super().change_schema(schema)
        self._schema = schema

    def _inner_offset(self, offset: Offset) -> Offset:
        if HORIZON not in offset:
            return offset
        if offset is not self._last_offsets[0]:
            self._last_offsets = offset, {name: value for name, value in offset.items() if name != HORIZON}
        return self._last_offsets[1]

    def _with_mark(self, inner_offset: Offset, mark: RefusalMark | None) -> Offset:
        if mark is None:
            return inner_offset
        self._last_offsets = {**inner_offset, HORIZON: list(mark)}, inner_offset
        return self._last_offsets[0]

    def _bounded(self, chunk: Chunk, latest: int) -> Chunk:
        return bounded(chunk, latest, self._horizon, self._name, self._schema)

    @staticmethod
    def _notice(chunk: Chunk, accepted: Chunk) -> str:
        first = accepted.bad[len(chunk.bad)]
        return f"{first.source} {first.where}: {first.reason}; such records are left out and counted"


@dataclass(frozen=True)
class BoundedSource(Source):
    """A live source without the records beyond a horizon."""

    source: Source
    horizon: Horizon

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def bounded(self) -> bool:
        return self.source.bounded

    @property
    def local_only(self) -> bool:
        return self.source.local_only

    @property
    def divisible(self) -> bool:
        return self.source.divisible

    def open(self, schema: Schema) -> Feed:
        return BoundedFeed(self.source.open(schema), self.name, schema, self.horizon)

    def leave_nothing(self) -> str:
        return self.source.leave_nothing()
