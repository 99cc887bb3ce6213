"""A replay as if it happened now: records come out when their time has come, so many times faster.

Offsets count items, bad ones first (they have no time). Only what is given
when depends on the clock; what lies between two offsets does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
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
    """Gives the records of ``replay`` in order of time, ``speed`` seconds of it in each second."""

    def __init__(self, replay: Replay, speed: float, clock: Clock) -> None:
        self._replay = replay
        self._speed = speed
        self._clock = clock
        self._at = -1
        self._items: Iterator[Item] = iter(())
        self._next: Item | None = None
        # A record's time and when it was or would have been given: all others follow from these.
        self._origin: tuple[int, int] | None = None

    def start(self) -> Offset:
        return {"items": 0}

    def tables(self) -> Iterator[Item]:
        log = _Bad()
        yield from self._replay.tables(log)
        yield from log.all

    def poll(self, start: Offset, limit: int) -> Batch:
        """The items whose time has come."""
        self._go_to(_count(start))
        items: list[Item] = []
        now = self._clock.now()
        while len(items) < limit and self._next is not None and self._due(self._next, now):
            items.append(self._next)
            self._next = next(self._items, None)
        self._at += len(items)
        return Batch(items, {"items": self._at}, ended=self._next is None)

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        return islice(self._all(), _count(start), _count(end))

    def commit(self, end: Offset) -> None:
        """Replays stay as they are."""

    def behind(self, offset: Offset) -> str:  # noqa: ARG002 - a replay is never late
        return ""

    def close(self) -> None:
        self._items = iter(())

    def _go_to(self, at: int) -> None:
        if at != self._at:
            self._items = islice(self._all(), at, None)
            self._next = next(self._items, None)
            self._at = at
            self._origin = None

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
        return PacedFeed(Replay.open(self.path, schema), self.speed, self.clock)


def _count(offset: Offset) -> int:
    try:
        return int(offset["items"])
    except (KeyError, TypeError, ValueError):
        raise SourceError(f"{offset!r} is no offset of a replay") from None
