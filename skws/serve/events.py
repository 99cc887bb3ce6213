"""Events of saved searches: in order, with ids that are the same after any end of the process.

An event's position is the micro-batch it came with, and its place there. A job that starts again repeats
batches with the same numbers and results, so a subscriber may go on behind the last id that it has seen.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["result", "added", "removed", "replaced", "digest"]
ENDING: Final = ("removed", "replaced")
"""Events with which a saved search is gone; their data describes it."""
START: Final = (0, 0)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class Position(NamedTuple):
    """Of an event: the number of a micro-batch, and the place among its events from 1."""

    batch: int
    place: int

    def text(self, run: str) -> str:
        """The id of an event, by the id of the run."""
        return f"{run[:12]}-{self.batch}-{self.place}"

    @classmethod
    def of(cls, text: str, run: str) -> Position | None:
        """The position of an id; None if it is of another run, or no id."""
        of_run, _, rest = text.rpartition("-")[0].rpartition("-")
        place = text.rpartition("-")[2]
        if of_run != run[:12] or not (_NUMBER.fullmatch(rest) and _NUMBER.fullmatch(place)):
            return None
        return cls(int(rest), int(place))


class Event(NamedTuple):
    """``names``: the saved searches that it belongs to. ``data``: JSON."""

    at: Position
    kind: Kind
    names: tuple[str, ...]
    data: bytes


class EventLog:
    """The latest events, up to ``most`` bytes of them. One thread appends, any thread reads.

    ``floor``: the position of the last event that was dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._events: deque[Event] = deque()
        self._by_name: defaultdict[str, deque[Event]] = defaultdict(deque)
        self._endings: dict[str, tuple[Event, ...]] = {}
        self.bytes = 0
        self.count = 0
        self.floor = self.last = Position(*START)

    def begin(self, floor: Position, events: Iterable[Event]) -> None:
        """Take up the events of an earlier process."""
        self.floor = self.last = floor
        known = list(events)
        self.end(known)
        self.append(known)

    def end(self, events: Iterable[Event]) -> None:
        """Know which searches end with events that are to be appended."""
        for event in events:
            if event.kind in ENDING:
                (name,) = event.names
                self._endings[name] = (*self._endings.get(name, ()), event)

    def append(self, events: Sequence[Event]) -> None:
        if not events:
            return
        with self._lock:
            for event in events:
                self._events.append(event)
                self.bytes += len(event.data)
                for name in event.names:
                    self._by_name[name].append(event)
            self.count += len(events)
            self.last = events[-1].at
            while self.bytes > self._most and len(self._events) > 1:
                self._drop()

    def after(self, at: Position, name: str, most: int) -> list[Event]:
        """The first ``most`` events of a search behind a position."""
        with self._lock:
            return _behind(self._by_name.get(name, ()), at)[:most]

    def all_after(self, at: Position, wanted: Callable[[Event], bool], most: int) -> list[Event]:
        """The first ``most`` events behind a position that are wanted."""
        with self._lock:
            found = _behind(self._events, at)
        return [event for event in found if wanted(event)][:most]

    def ended(self, name: str, at: Position) -> Event | None:
        """How the search ended that had a name at a position; None if it still stands, or never stood."""
        return next((event for event in self._endings.get(name, ()) if event.at >= at), None)

    def _drop(self) -> None:
        gone = self._events.popleft()
        self.bytes -= len(gone.data)
        self.floor = gone.at
        for name in gone.names:
            of_name = self._by_name[name]
            of_name.popleft()
            if not of_name:
                del self._by_name[name]
            if gone.kind in ENDING:
                self._endings[name] = self._endings[name][1:]
                if not self._endings[name]:
                    del self._endings[name]


def _behind(events: Iterable[Event], at: Position) -> list[Event]:
    """The events behind a position, in order; most subscribers are near the end."""
    found: list[Event] = []
    for event in reversed(events):  # type: ignore[call-overload]  # a deque, or an empty tuple
        if event.at <= at:
            break
        found.append(event)
    found.reverse()
    return found
