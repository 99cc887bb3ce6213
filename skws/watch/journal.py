"""The live records of a run, on disk before they are worked on: what a run goes on from.

Entries are appended to segments, files named by the number of their first
entry. A segment begins with the standing queries before that entry. Segments
leave from the front, when all in them has long ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

import orjson

from skws.batches import RecordBatch
from skws.live.retention import Kept
from skws.live.search import Told
from skws.live.standing import Standing
from skws.watch.atomic import StateError, damaged, synced
from skws.watch.entry import Entry, checked, unchecked
from windows.tuples import ALWAYS

SEGMENT_BYTES: Final = 4 << 20
_SUFFIX: Final = ".log"


@dataclass(slots=True)
class Segment:
    """``first``: the number of its first entry; ``position`` and ``now``: where the stream stood before it.

    ``schemas``: those that the run's first one has changed to. ``latest``: the
    latest time in it. ``after``: the position behind it.
    """

    path: Path
    first: int
    position: int = 0
    now: int = ALWAYS
    standing: tuple[Standing, ...] = ()
    schemas: tuple[str, ...] = ()
    latest: int | None = None
    after: int = 0
    size: int = 0

    @property
    def kept(self) -> Kept:
        return Kept(self.latest, self.after)

    def head(self) -> bytes:
        shown = {
            "position": self.position,
            "now": self.now,
            "standing": [asdict(one) for one in self.standing],
            "schemas": self.schemas,
        }
        return checked(orjson.dumps(shown))

    def count(self, entry: Entry, size: int) -> None:
        """An entry is in it now."""
        times = [record.time for record in entry.records]
        if times:
            self.latest = max(times) if self.latest is None else max(self.latest, *times)
        self.after += entry.insertions
        self.size += size


@dataclass(slots=True)
class Journal:
    """A folder of segments; one process writes. Raises StateError."""

    folder: Path
    segments: list[Segment] = field(default_factory=list)
    _file: IO[bytes] | None = None
    _synced: bool = True

    @property
    def size(self) -> int:
        """Of all segments, in bytes."""
        return sum(segment.size for segment in self.segments)

    def open(self) -> None:
        """Find the segments that are there."""
        paths = sorted(self.folder.glob(f"*{_SUFFIX}"))
        if paths and _headless(paths[-1]):
            paths.pop().unlink()
        self.segments = [_opened(path) for path in paths]

    def entries(self) -> Iterator[Entry]:
        """All entries, oldest first; to be read to the end before any is appended.

        What a broken run left half written at the end is cut off.
        """
        for segment in self.segments:
            yield from self._read(segment, last=segment is self.segments[-1])

    def before(self, number: int) -> Iterator[Told]:
        """The records before an entry, oldest first, as a live search is told them."""
        for segment in self.segments:
            with segment.path.open("rb") as file:
                file.readline()
                for line in file:
                    entry = Entry.of_line(line)
                    if entry is None or entry.number >= number:
                        return
                    yield Told(segment.position, segment.now, RecordBatch.of(entry.records))

    def append(
        self,
        entry: Entry,
        standing: tuple[Standing, ...],
        position: int,
        now: int,
        schemas: tuple[str, ...] = (),
    ) -> None:
        """Keep an entry, also if this process is killed.

        ``standing``, ``schemas``: those before it; ``position`` and ``now``: where the stream stands.
        """
        try:
            if self._file is None or self.segments[-1].size > SEGMENT_BYTES:
                path = self._path(entry)
                self._roll(Segment(path, entry.number, position, now, standing, schemas, after=position))
            line = entry.to_line()
            assert self._file is not None  # noqa: S101 - rolled just now
            self._file.write(line)
            self._file.flush()
            self._synced = False
        except OSError as error:
            raise StateError(f"{self.folder}: cannot write the journal: {error.strerror}") from None
        self.segments[-1].count(entry, len(line))

    def sync(self) -> None:
        """What was appended is there for good, also after a loss of power. Takes the disk's time."""
        if self._file is None or self._synced:
            return
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise StateError(f"{self.folder}: cannot write the journal: {error.strerror}") from None
        self._synced = True

    def trim(self, committed: int, over: Callable[[Segment], bool]) -> None:
        """Drop the oldest segments that are ``over``, as far as all in them is committed."""
        while len(self.segments) > 1 and self.segments[1].first <= committed + 1 and over(self.segments[0]):
            self.segments.pop(0).path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, first: Entry) -> Path:
        return self.folder / f"{first.number:012d}{_SUFFIX}"

    def _roll(self, segment: Segment) -> None:
        self.sync()
        self.close()
        if self.segments and self.segments[-1].path == segment.path:
            self.segments.pop()  # begun by a process that did not get to its first entry
        self._file = segment.path.open("wb")
        self._file.write(segment.head())
        synced(self.folder)
        self.segments.append(segment)

    def _read(self, segment: Segment, *, last: bool) -> Iterator[Entry]:
        with segment.path.open("rb") as file:
            good = len(file.readline())
            for line in file:
                entry = Entry.of_line(line)
                if entry is None:
                    break
                good += len(line)
                segment.count(entry, len(line))
                yield entry
        if good == segment.path.stat().st_size:
            return
        if not last:
            raise damaged(segment.path, f" behind byte {good:,}")
        os.truncate(segment.path, good)


def _opened(path: Path) -> Segment:
    with path.open("rb") as file:
        head = unchecked(file.readline())
    if head is None:
        raise damaged(path)
    told = orjson.loads(head)
    standing = tuple(Standing(**one) for one in told["standing"])
    position, now = told["position"], told.get("now", ALWAYS)
    schemas = tuple(told.get("schemas", ()))
    return Segment(path, int(path.stem), position, now, standing, schemas, after=position)


def _headless(path: Path) -> bool:
    """True for a segment that holds less than its head, which its writer left just as it began it."""
    with path.open("rb") as file:
        return unchecked(file.readline()) is None and not file.readline()
