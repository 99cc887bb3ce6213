"""Events of saved searches, in order, with ids that do not change when the process restarts.

An event's position is its micro-batch, and its number there. A restarted job repeats batches with the same
numbers and results, so a subscriber may continue after the last id that it has seen.

A frame contains the events of one batch, so a killed process leaves a whole batch or none. A segment begins
with a frame of the state after earlier segments: the position of their last event, and the open digests.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import orjson

from skws.durable import (
    PRIVATE,
    GrowingFile,
    encode_frame,
    explained,
    frames,
    private_folder,
    read_file,
    sync_folder,
)

Kind: TypeAlias = Literal["result", "added", "removed", "replaced", "digest"]
ENDING: Final = ("removed", "replaced")
"""Events that end a saved search; their data describes it."""
START: Final = (0, 0)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class EventPosition(NamedTuple):
    """The position of an event: the number of a micro-batch, and the number among its events from 1."""

    batch: int
    place: int

    def text(self, run: str) -> str:
        """The id of the event, given the id of the run."""
        return f"{run[:12]}-{self.batch}-{self.place}"

    @classmethod
    def of(cls, text: str, run: str) -> EventPosition | None:
        """The position that an id encodes; None if it belongs to another run, or is not an id."""
        of_run, _, batch = text.rpartition("-")[0].rpartition("-")
        number = text.rpartition("-")[2]
        if of_run != run[:12] or not (_NUMBER.fullmatch(batch) and _NUMBER.fullmatch(number)):
            return None
        return cls(int(batch), int(number))


class SearchEvent(NamedTuple):
    """An event. ``name``: the name of its saved search. ``data``: JSON."""

    at: EventPosition
    kind: Kind
    name: str
    data: bytes


class EventLog:
    """The latest events, up to ``most`` bytes of them. One thread appends, any thread reads.

    ``floor``: the position of the last event that was dropped. ``most_floors``: the most searches for which
    this position is known separately.
    """

    def __init__(self, most: int, most_floors: int = 1 << 17) -> None:
        self._max_bytes = most
        self._most_floors = most_floors
        self._lock = Lock()
        self._events: deque[SearchEvent] = deque()
        self._by_name: defaultdict[str, deque[SearchEvent]] = defaultdict(deque)
        self._endings: defaultdict[str, list[SearchEvent]] = defaultdict(list)
        self.bytes = 0
        self.count = 0
        self.floor = self.last = EventPosition(*START)
        self._common_floor = self.floor
        self._floors: dict[str, EventPosition] = {}  # by name, the last event that was dropped since then

    def begin(self, floor: EventPosition, events: Iterable[SearchEvent]) -> None:
        """Begin with the events of an earlier process."""
        self.floor = self.last = self._common_floor = floor
        stored_events = list(events)
        self.end(stored_events)
        self.append(stored_events)

    def end(self, events: Iterable[SearchEvent]) -> None:
        """Record the searches that end with events about to be appended."""
        with self._lock:
            for event in events:
                if event.kind in ENDING:
                    self._endings[event.name].append(event)

    def append(self, events: Sequence[SearchEvent]) -> None:
        if not events:
            return
        with self._lock:
            for event in events:
                self._events.append(event)
                self.bytes += len(event.data)
                self._by_name[event.name].append(event)
            self.count += len(events)
            self.last = events[-1].at
            while self.bytes > self._max_bytes and len(self._events) > 1:
                self._drop()

    def floor_of(self, name: str | None) -> EventPosition:
        """A position after which no event of a search was dropped; of all searches without a name."""
        return self.floor if name is None else self._floors.get(name, self._common_floor)

    def after(self, position: EventPosition, name: str, most: int) -> list[SearchEvent]:
        """The first ``most`` events of a search after a position."""
        with self._lock:
            return _events_after(self._by_name.get(name, ()), position)[:most]

    def all_after(
        self, position: EventPosition, matches: Callable[[SearchEvent], bool], most: int
    ) -> list[SearchEvent]:
        """The first ``most`` events after a position that match."""
        with self._lock:
            events = _events_after(self._events, position)
        return list(islice(filter(matches, events), most))

    def end_of(self, name: str, position: EventPosition) -> SearchEvent | None:
        """The end of the search that had a name at a position; None if it still exists, or never did."""
        with self._lock:
            endings = self._endings.get(name, [])
            index = bisect_left(endings, position, key=lambda event: event.at)
            return endings[index] if index < len(endings) else None

    def _drop(self) -> None:
        oldest = self._events.popleft()
        self.bytes -= len(oldest.data)
        self.floor = oldest.at
        name = oldest.name
        self._floors[name] = oldest.at
        if len(self._floors) > self._most_floors:
            self._common_floor, self._floors = self.floor, {}
        of_name = self._by_name[name]
        of_name.popleft()
        if not of_name:
            del self._by_name[name]
        if oldest.kind in ENDING:
            del self._endings[name][0]
            if not self._endings[name]:
                del self._endings[name]


def _events_after(events: Iterable[SearchEvent], position: EventPosition) -> list[SearchEvent]:
    """The events after a position, in order; most subscribers are near the end."""
    later_events: list[SearchEvent] = []
    for event in reversed(events):  # type: ignore[call-overload]  # a deque, or an empty tuple
        if event.at <= position:
            break
        later_events.append(event)
    later_events.reverse()
    return later_events


SEGMENT: Final = 4 << 20  # bytes
_SUFFIX: Final = ".events"


class _StoredEvent(msgspec.Struct, array_like=True):
    kind: Kind
    name: str
    data: msgspec.Raw


class _Frame(msgspec.Struct):
    """Events of a batch; ``first``: the number of the first one."""

    batch: int
    first: int
    events: list[_StoredEvent]


class _Head(msgspec.Struct):
    floor: tuple[int, int]
    digests: dict[str, Any]


_frame: Final = msgspec.json.Decoder(_Frame)
_head: Final = msgspec.json.Decoder(_Head)


class EventFiles:
    """Segments in a folder, with about ``segment`` bytes of events; one process writes.

    A segment has at least as many bytes of events as its head, which repeats all open digests. ``most``: the
    bytes of events to keep. All methods raise StateError.
    """

    def __init__(self, folder: Path, run: str, most: int, segment: int = SEGMENT) -> None:
        self._segment_bytes = segment
        self._folder = folder
        self._run = run
        self._max_bytes = most
        self._file: GrowingFile | None = None
        self._sizes: dict[Path, int] = {}
        """The bytes of events in each segment, without its head."""
        self._head_size = 0
        """The bytes of the head of the last segment."""
        self.floor = EventPosition(0, 0)
        self.digests: dict[str, Any] = {}
        """The open digests at the beginning of the last segment."""
        self.segment_events: list[SearchEvent] = []
        """The events of the last segment."""

    def load(self) -> list[SearchEvent]:
        """All stored events, oldest first; an incomplete frame is removed."""
        with explained(f"{self._folder}: cannot be a folder of events"):
            private_folder(self._folder)
            paths = sorted(self._folder.glob(f"*{_SUFFIX}"))
        events: list[SearchEvent] = []
        for path in paths:
            segment, head_size, end = self._segment(path)
            if segment is None:
                path.unlink()  # its writer ended before its head was complete
                continue
            if end < path.stat().st_size:
                with path.open("r+b") as file:
                    file.truncate(end)
            self._sizes[path], self._head_size = end - head_size, head_size
            head, self.segment_events = segment
            if not events:
                self.floor = EventPosition(*head.floor)
            self.digests = head.digests
            events += self.segment_events
        return events

    def append(
        self, events: Sequence[SearchEvent], floor: EventPosition, digests: Callable[[], dict[str, Any]]
    ) -> None:
        """Append the events of a batch, which survive a kill of this process.

        ``floor``: the position of the last event before them. ``digests``: the digests that were open then.
        """
        with explained(f"{self._folder}: cannot write events"):
            file = self._file or self._reopen()
            if file is None or self._sizes[file.path] > max(self._segment_bytes, self._head_size):
                file = self._next_segment(floor, digests)
            self._sizes[file.path] += self._put(file, _text(events))

    def sync(self) -> None:
        """Make all events durable, and drop the oldest segments beyond the limit."""
        if self._file is None:
            return
        with explained(f"{self._folder}: cannot write events"):
            self._file.sync()
            paths = sorted(self._sizes)
            while len(paths) > 1 and sum(self._sizes.values()) > self._max_bytes:
                obsolete = paths.pop(0)
                obsolete.unlink(missing_ok=True)
                del self._sizes[obsolete]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _segment(self, path: Path) -> tuple[tuple[_Head, list[SearchEvent]] | None, int, int]:
        """Head and events of a segment, or None; the ends of its head and of its last frame."""
        frames_read = frames(read_file(path), f"{self._run}/{path.name}")
        text, head_end = next(frames_read, (b"", 0))
        end = head_end
        if not text:
            return None, 0, 0
        events: list[SearchEvent] = []
        head = _head.decode(text)
        for text, end in frames_read:  # noqa: B007 - the last end counts
            events += _events(text)
        return (head, events), head_end, end

    def _reopen(self) -> GrowingFile | None:
        if self._sizes:
            self._file = GrowingFile(max(self._sizes), mode=PRIVATE)
        return self._file

    def _next_segment(self, floor: EventPosition, digests: Callable[[], dict[str, Any]]) -> GrowingFile:
        self.close()
        number = int(max(self._sizes).stem) + 1 if self._sizes else 1
        self._file = GrowingFile(self._folder / f"{number:012d}{_SUFFIX}", mode=PRIVATE, anew=True)
        self._sizes[self._file.path] = 0
        head = orjson.dumps({"floor": tuple(floor), "digests": digests()})
        self._head_size = self._put(self._file, head)
        sync_folder(self._folder)
        return self._file

    def _put(self, file: GrowingFile, text: bytes) -> int:
        """Append a frame; returns its size."""
        frame = encode_frame(text, f"{self._run}/{file.path.name}", file.size)
        file.append(frame)
        return len(frame)


def _text(events: Sequence[SearchEvent]) -> bytes:
    position = events[0].at
    texts = (
        b"[" + orjson.dumps(event.kind) + b"," + orjson.dumps(event.name) + b"," + event.data + b"]"
        for event in events
    )
    return b'{"batch":%d,"first":%d,"events":[%b]}' % (position.batch, position.place, b",".join(texts))


def _events(text: bytes) -> Iterator[SearchEvent]:
    frame = _frame.decode(text)
    for number, item in zip(count(frame.first), frame.events, strict=False):
        yield SearchEvent(EventPosition(frame.batch, number), item.kind, item.name, bytes(item.data))
