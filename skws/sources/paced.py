"""A replay as if it happened now: records come out when their time has come, so many times faster.

Offsets count items, bad ones first (they have no time), and the records of the
latest time: so they hold, too, when the schema changes which are bad. Only
what is given when depends on the clock; what lies between two offsets does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np

from schema.errors import SourceError
from schema.model import Schema
from skws.batches import Ints, RecordBatch
from skws.choices import OnError
from skws.records import BadRecord
from skws.replay import BadRecordLog, Replay
from skws.replay.merge import MEMORY_RECORDS
from skws.sources.clock import Clock, SystemClock
from skws.sources.columns import Columns, items_of
from skws.sources.feed import Batch, Feed, Item, Offset
from skws.sources.timeline import Timeline

_LATEST: Final = (1 << 62) - 1  # behind every time that a record can have


class _Bad(BadRecordLog):
    """Keeps bad records, to be given on."""

    def __init__(self) -> None:
        super().__init__(OnError.SKIP)
        self.all: list[BadRecord] = []

    def add(self, bad: BadRecord) -> None:
        self.all.append(bad)


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a look through files that are in order has found. ``kept``: all records, if they are few."""

    bad: list[BadRecord]
    kept: list[RecordBatch] | None


class PacedFeed:
    """Gives the records of replay files in order of time, ``speed`` seconds of them in each second."""

    tables_come = False

    def __init__(self, path: Path, schema: Schema, speed: float, clock: Clock) -> None:
        self._path = path
        self._mark = _Mark()
        self._speed = speed
        self._clock = clock
        self._bad: list[BadRecord] = []
        self._records = Timeline(iter(()))
        # A record's time and when it was or would have been given: all others follow from these.
        self._origin: tuple[int, int] | None = None
        self.adopt(schema)

    def start(self) -> Offset:
        return _Mark().offset()

    def adopt(self, schema: Schema) -> None:
        self._replay = Replay.open(self._path, schema)
        self._looked: _Looked | None = None
        self._open = False

    def tables(self) -> Iterator[Item]:
        log = _Bad()
        yield from self._replay.tables(log)
        yield from log.all

    def poll(self, start: Offset, limit: int) -> Batch:
        """The items whose time has come."""
        self._go_to(_Mark.of(start))
        now = self._clock.now()
        bad, self._bad = self._bad[:limit], self._bad[limit:]
        taken = RecordBatch.of(())
        if (first := self._records.next_time) is not None:
            self._origin = self._origin or (first, now)
            taken = self._records.take(limit - len(bad), self._due_until(now))
        self._mark = self._mark.behind(len(bad), taken.time)
        ended = not self._bad and self._records.next_time is None
        return Batch(items_of([bad, Columns(taken)]), self._mark.offset(), ended=ended)

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        bad, records = self._behind(_Mark.of(start))
        count = _Mark.of(end).items - _Mark.of(start).items
        bad = bad[:count]
        return chain(bad, Columns(records.take(count - len(bad))))

    def commit(self, end: Offset) -> None:
        """Replays stay as they are."""

    def behind(self, offset: Offset) -> str:  # noqa: ARG002 - a replay is never late
        return ""

    def close(self) -> None:
        self._bad, self._records, self._looked = [], Timeline(iter(())), None

    def _go_to(self, mark: _Mark) -> None:
        if not self._open or mark != self._mark:
            moved = mark != self._mark
            self._bad, self._records = self._behind(mark)
            self._mark, self._open = mark, True
            self._origin = None if moved else self._origin

    def _behind(self, mark: _Mark) -> tuple[list[BadRecord], Timeline]:
        """What comes behind ``mark``: by its time, or by the number of bad records alone."""
        bad, batches = self._all()
        records = Timeline(batches)
        if mark.time is None:
            records.take(max(0, mark.items - len(bad)))
            return bad[mark.items :], records
        # Fewer are of that time now, if their relation has gone: those that follow are given.
        records.skip_to(mark.time, mark.same)
        return [], records

    def _due_until(self, now: int) -> int:
        first, began = self._origin or (0, now)
        return min(_LATEST, first + int((now - began) * self._speed))

    def _all(self) -> tuple[list[BadRecord], Iterator[RecordBatch]]:
        """The bad records, and the others in order of time. Everything is read before the first comes out.

        Files that are in order are then read a second time, unless few records are in them; others
        are sorted.
        """
        log = _Bad()
        if not self._replay.in_order:
            batches = self._replay.batches(log)
            first = list(islice(batches, 1))
            return log.all, chain(first, batches)
        if self._looked is None:
            kept: list[RecordBatch] = []
            count = 0
            for batch in self._replay.batches(log):
                count += len(batch)
                if count <= MEMORY_RECORDS:
                    kept.append(batch)
            self._looked = _Looked(log.all, kept if count <= MEMORY_RECORDS else None)
        kept_all = self._looked.kept
        return list(self._looked.bad), self._replay.batches(_Bad()) if kept_all is None else iter(kept_all)


@dataclass(frozen=True)
class PacedReplay:
    """The replay files at ``path``, ``speed`` times as fast as they happened."""

    path: Path
    speed: float = 1.0
    clock: Clock = field(default_factory=SystemClock)
    local_only: bool = False

    @property
    def name(self) -> str:
        return f"replay:{self.path}?speed={self.speed:g}"

    def open(self, schema: Schema) -> Feed:
        return PacedFeed(self.path, schema, self.speed, self.clock)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A place among the items: how many came before, the latest time and how many are of it."""

    items: int = 0
    time: int | None = None
    same: int = 0

    @classmethod
    def of(cls, offset: Offset) -> _Mark:
        """Raises SourceError."""
        try:
            time = offset.get("time")
            return cls(int(offset["items"]), None if time is None else int(time), int(offset.get("same", 0)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SourceError(f"{offset!r} is no offset of a replay") from None

    def offset(self) -> Offset:
        found: Offset = {"items": self.items}
        return found if self.time is None else {**found, "time": self.time, "same": self.same}

    def behind(self, bad: int, times: Ints) -> _Mark:
        """Behind the next ones: bad records, and records of these times, in order."""
        if not len(times):
            return _Mark(self.items + bad, self.time, self.same)
        last: int = times.item(-1)
        same = len(times) - int(np.searchsorted(times, last, "left"))
        known = self.same if same == len(times) and not bad and self.time == last else 0
        return _Mark(self.items + bad + len(times), last, known + same)
