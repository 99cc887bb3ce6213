"""A replay as if it happened now: records come out when their time has come, so many times faster.

Offsets count items, bad ones first (they have no time), and the records of the
latest time: so they hold, too, when the schema changes which are bad. Only
what is given when depends on the clock; what lies between two offsets does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, dropwhile, islice
from pathlib import Path

from schema.errors import SourceError
from schema.model import Schema
from skws.choices import OnError
from skws.records import BadRecord, Record
from skws.replay import BadRecordLog, Replay
from skws.sources.clock import Clock, SystemClock
from skws.sources.feed import Batch, Feed, Item, Offset


class _Bad(BadRecordLog):
    """Keeps bad records, to be given on."""

    def __init__(self) -> None:
        super().__init__(OnError.SKIP)
        self.all: list[BadRecord] = []

    def add(self, bad: BadRecord) -> None:
        self.all.append(bad)


class PacedFeed:
    """Gives the records of replay files in order of time, ``speed`` seconds of them in each second."""

    def __init__(self, path: Path, schema: Schema, speed: float, clock: Clock) -> None:
        self._path = path
        self._replay = Replay.open(path, schema)
        self._mark = _Mark()
        self._speed = speed
        self._clock = clock
        self._items: Iterator[Item] = iter(())
        self._open = False
        self._next: Item | None = None
        # A record's time and when it was or would have been given: all others follow from these.
        self._origin: tuple[int, int] | None = None

    def start(self) -> Offset:
        return _Mark().offset()

    def adopt(self, schema: Schema) -> None:
        self._replay = Replay.open(self._path, schema)
        self._open = False

    def tables(self) -> Iterator[Item]:
        log = _Bad()
        yield from self._replay.tables(log)
        yield from log.all

    def poll(self, start: Offset, limit: int) -> Batch:
        """The items whose time has come."""
        self._go_to(_Mark.of(start))
        items: list[Item] = []
        now = self._clock.now()
        while len(items) < limit and self._next is not None and self._due(self._next, now):
            items.append(self._next)
            self._next = next(self._items, None)
        self._mark = self._mark.behind(items)
        return Batch(items, self._mark.offset(), ended=self._next is None)

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        return islice(self._behind(_Mark.of(start)), _Mark.of(end).items - _Mark.of(start).items)

    def commit(self, end: Offset) -> None:
        """Replays stay as they are."""

    def behind(self, offset: Offset) -> str:  # noqa: ARG002 - a replay is never late
        return ""

    def close(self) -> None:
        self._items = iter(())

    def _go_to(self, mark: _Mark) -> None:
        if not self._open or mark != self._mark:
            moved = mark != self._mark
            self._items = self._behind(mark)
            self._next = next(self._items, None)
            self._mark, self._open = mark, True
            self._origin = None if moved else self._origin

    def _behind(self, mark: _Mark) -> Iterator[Item]:
        """What comes behind ``mark``: by its time, or by the number of bad records alone."""
        items = self._all()
        if mark.time is None:
            return islice(items, mark.items, None)
        left = dropwhile(lambda item: isinstance(item, BadRecord) or item.time < (mark.time or 0), items)
        first = [item for item in islice(left, mark.same) if isinstance(item, Record)]
        # Fewer are of that time now, if their relation has gone: those that follow are given.
        return chain((item for item in first if item.time > (mark.time or 0)), left)

    def _due(self, item: Item, now: int) -> bool:
        if isinstance(item, BadRecord):
            return True
        if self._origin is None:
            self._origin = item.time, now
        first, began = self._origin
        return item.time - first <= (now - began) * self._speed

    def _all(self) -> Iterator[Item]:
        """All items; the replay is read and sorted before the first comes out."""
        log = _Bad()
        records = self._replay.stream(log)
        first: list[Record] = list(islice(records, 1))
        yield from log.all
        yield from first
        yield from records


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

    def behind(self, items: list[Item]) -> _Mark:
        """Behind the next ones."""
        if not items:
            return self
        number, last = self.items + len(items), items[-1]
        if isinstance(last, BadRecord):
            return _Mark(number)
        same = 0
        for item in reversed(items):
            if isinstance(item, BadRecord) or item.time != last.time:
                break
            same += 1
        known = self.same if same == len(items) and self.time == last.time else 0
        return _Mark(number, last.time, known + same)
