"""The events of a run with a checkpoint, in segments beside its journal: a restart finds them again.

A frame holds the events of one batch, so a kill leaves a batch whole or out. A segment begins with a frame
of what the segments before it leave behind: the position of their last event, and the open digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from skws.durable.files import PRIVATE, GrowingFile, explained, private_folder, read, synced
from skws.durable.frames import checked, frames
from skws.serve.events import Event, Kind, Position

SEGMENT: Final = 4 << 20  # bytes
_SUFFIX: Final = ".events"


class _Kept(msgspec.Struct, array_like=True):
    kind: Kind
    names: tuple[str, ...]
    data: msgspec.Raw


class _Frame(msgspec.Struct):
    """The events of a batch from a place on."""

    batch: int
    first: int
    events: list[_Kept]


class _Head(msgspec.Struct):
    floor: tuple[int, int]
    digests: dict[str, Any]


_frame: Final = msgspec.json.Decoder(_Frame)
_head: Final = msgspec.json.Decoder(_Head)


class EventFiles:
    """Segments in a folder; one process writes. All methods raise StateError. ``most``: bytes to keep."""

    def __init__(self, folder: Path, run: str, most: int) -> None:
        self._folder = folder
        self._run = run
        self._most = most
        self._file: GrowingFile | None = None
        self._sizes: dict[Path, int] = {}
        self.floor = Position(0, 0)
        self.digests: dict[str, Any] = {}
        """The open digests at the begin of the last segment."""
        self.since: list[Event] = []
        """The events of the last segment."""

    def load(self) -> list[Event]:
        """All events that are kept, oldest first; a frame that was cut off goes."""
        with explained(f"{self._folder}: cannot be a folder of events"):
            private_folder(self._folder)
            paths = sorted(self._folder.glob(f"*{_SUFFIX}"))
        events: list[Event] = []
        for path in paths:
            found, end = self._segment(path)
            if found is None:
                path.unlink()  # its writer ended before its head was whole
                continue
            if end < path.stat().st_size:
                with path.open("r+b") as file:
                    file.truncate(end)
            self._sizes[path] = end
            head, self.since = found
            if not events:
                self.floor = Position(*head.floor)
            self.digests = head.digests
            events += self.since
        return events

    def append(self, events: Sequence[Event], floor: Position, digests: Callable[[], dict[str, Any]]) -> None:
        """Append the events of a batch; they survive a kill of this process.

        ``floor``: the position of the last event before them, and ``digests`` those that were open then.
        """
        with explained(f"{self._folder}: cannot write events"):
            file = self._file or self._reopened()
            if file is None or file.size > SEGMENT:
                file = self._rolled(floor, digests)
            self._put(file, _text(events))

    def sync(self) -> None:
        """Make all events durable, and drop the oldest segments beyond the limit."""
        if self._file is None:
            return
        with explained(f"{self._folder}: cannot write events"):
            self._file.sync()
            paths = sorted(self._sizes)
            while len(paths) > 1 and sum(self._sizes.values()) > self._most:
                gone = paths.pop(0)
                gone.unlink(missing_ok=True)
                del self._sizes[gone]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _segment(self, path: Path) -> tuple[tuple[_Head, list[Event]] | None, int]:
        found = frames(read(path), f"{self._run}/{path.name}")
        text, end = next(found, (b"", 0))
        if not text:
            return None, 0
        events: list[Event] = []
        head = _head.decode(text)
        for text, end in found:  # noqa: B007 - the last end counts
            events += _events(text)
        return (head, events), end

    def _reopened(self) -> GrowingFile | None:
        if self._sizes:
            self._file = GrowingFile(max(self._sizes), mode=PRIVATE)
        return self._file

    def _rolled(self, floor: Position, digests: Callable[[], dict[str, Any]]) -> GrowingFile:
        self.close()
        number = int(max(self._sizes).stem) + 1 if self._sizes else 1
        self._file = GrowingFile(self._folder / f"{number:012d}{_SUFFIX}", mode=PRIVATE, anew=True)
        self._put(self._file, orjson.dumps({"floor": tuple(floor), "digests": digests()}))
        synced(self._folder)
        return self._file

    def _put(self, file: GrowingFile, text: bytes) -> None:
        frame = checked(text, f"{self._run}/{file.path.name}", file.size)
        file.append(frame)
        self._sizes[file.path] = file.size


def _text(events: Sequence[Event]) -> bytes:
    first = events[0].at
    parts = (
        b"[" + orjson.dumps(event.kind) + b"," + orjson.dumps(event.names) + b"," + event.data + b"]"
        for event in events
    )
    return b'{"batch":%d,"first":%d,"events":[%b]}' % (first.batch, first.place, b",".join(parts))


def _events(text: bytes) -> Iterator[Event]:
    frame = _frame.decode(text)
    for place, kept in zip(count(frame.first), frame.events, strict=False):
        yield Event(Position(frame.batch, place), kept.kind, kept.names, bytes(kept.data))
