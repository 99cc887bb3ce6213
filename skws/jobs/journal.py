"""The live records of a run, on disk before they are worked on: what a run goes on from.

Entries are appended to segments, files named by the number of their first
entry. A segment begins with the standing queries before that entry. Segments
leave from the front, when all in them has long ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import orjson

from skws.data.batch import NO_RECORDS, RecordBatch
from skws.data.record import Record
from skws.durable.files import PRIVATE, GrowingFile, damaged, missing, read, synced
from skws.durable.frames import checked, frames
from skws.jobs.control import Command
from skws.queries.session import Session
from skws.queries.stream_state import LoggedBatch
from skws.sources.feed import Offset
from skws.spec.query import Query
from skws_purging.retention import LogPart, Retention
from skws_purging.tuples import ALWAYS
from skws_schema.errors import StateError


@dataclass(frozen=True, slots=True)
class Entry:
    """What came between two offsets of the source, and between two of the control folder.

    ``letters``: bad records as lines of the dead letter file. ``bad``: their number.
    ``ended``: so has the source.
    """

    number: int
    end: Offset
    control: int
    commands: tuple[Command, ...] = ()
    records: RecordBatch = NO_RECORDS
    letters: tuple[str, ...] = ()
    bad: int = 0
    ended: bool = False

    @property
    def insertions(self) -> int:
        return len(self.records) - int(self.records.deletes().sum())

    def to_json(self) -> bytes:
        """What the journal keeps."""
        shown = {
            "number": self.number,
            "end": self.end,
            "control": self.control,
            "commands": [asdict(command) for command in self.commands],
            "records": [tuple(record) for record in self.records.records()],
            "letters": self.letters,
            "bad": self.bad,
            "ended": self.ended,
        }
        return orjson.dumps(shown)

    @classmethod
    def from_json(cls, text: bytes) -> Entry:
        """Inverse of ``to_json``."""
        told = orjson.loads(text)
        told["commands"] = tuple(Command(**command) for command in told["commands"])
        told["records"] = RecordBatch.of(
            [Record(r, time, tuple(row), delete) for r, time, row, delete in told["records"]]
        )
        told["letters"] = tuple(told["letters"])
        return cls(**told)


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
    standing: tuple[Query, ...] = ()
    schemas: tuple[str, ...] = ()
    latest: int | None = None
    after: int = 0
    size: int = 0

    @property
    def kept(self) -> LogPart:
        return LogPart(self.latest, self.after)

    def head(self) -> bytes:
        shown = {
            "position": self.position,
            "now": self.now,
            "standing": [one.to_dict() for one in self.standing],
            "schemas": self.schemas,
        }
        return orjson.dumps(shown)

    def count(self, entry: Entry, size: int) -> None:
        """An entry is in it now."""
        if len(entry.records):
            latest = int(entry.records.time.max())
            self.latest = latest if self.latest is None else max(self.latest, latest)
        self.after += entry.insertions
        self.size += size


@dataclass(slots=True)
class Journal:
    """A folder of segments of a ``run``; one process writes. Raises StateError.

    ``last``: the number of the last entry that was there when it was opened.
    """

    folder: Path
    run: str = ""
    segments: list[Segment] = field(default_factory=list)
    last: int = 0
    _file: GrowingFile | None = None
    _leaving: list[Path] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Of all segments, in bytes."""
        return sum(segment.size for segment in self.segments)

    def open(self, first: int = 1) -> None:
        """Find the segments that are there, from that with entry ``first`` on."""
        found = sorted(path for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())
        paths = [path for path in found if int(path.stem) >= first]
        self._leaving = found[: len(found) - len(paths)]
        if paths and self._headless(paths[-1]):
            self._leaving.append(paths.pop())
        if paths and self._path(first) not in paths:
            raise missing(self._path(first))
        self.segments = [self._opened(path) for path in paths]
        if paths:
            whole = sum(1 for _ in self._frames(paths[-1])) - 1
            self.last = self.segments[-1].first + whole - 1

    def entries(self) -> Iterator[Entry]:
        """All entries, oldest first; what a broken run left half written at the end is passed over."""
        number = self.segments[0].first if self.segments else 1
        for segment in self.segments:
            if segment.first != number:
                raise damaged(self.folder, f" (micro-batch {number:,} is missing)")
            for entry in self._read(segment, last=segment is self.segments[-1]):
                if entry.number != number:
                    raise damaged(segment.path)
                number += 1
                yield entry

    def go_on(self) -> None:
        """Remove what a broken run left half written or was about to drop; entries may be appended then."""
        with self._told():
            for path in self._leaving:
                path.unlink(missing_ok=True)
            if self.segments:
                last = GrowingFile(self.segments[-1].path)
                last.cut(self._end(self.segments[-1].path))
                last.sync()
                last.close()

    def before(self, number: int) -> Iterator[LoggedBatch]:
        """The records before an entry, oldest first, as a live search is told them."""
        for segment in self.segments:
            for text, _ in islice(self._frames(segment.path), 1, None):
                entry = Entry.from_json(text)
                if entry.number >= number:
                    return
                yield LoggedBatch(segment.position, segment.now, entry.records)

    def append(
        self,
        entry: Entry,
        standing: tuple[Query, ...],
        position: int,
        now: int,
        schemas: tuple[str, ...] = (),
    ) -> None:
        """Keep an entry, also if this process is killed.

        ``standing``, ``schemas``: those before it; ``position`` and ``now``: where the stream stands.
        """
        with self._told():
            if self._file is None or self.segments[-1].size > SEGMENT_BYTES:
                path = self._path(entry.number)
                self._file = self._roll(
                    Segment(path, entry.number, position, now, standing, schemas, after=position)
                )
            frame = checked(entry.to_json(), self._of(self._file.path), self._file.size)
            self._file.append(frame)
        self.segments[-1].count(entry, len(frame))

    def sync(self) -> None:
        """What was appended is there for good, also after a loss of power. Takes the disk's time."""
        if self._file is not None:
            with self._told():
                self._file.sync()

    def first_to_keep(self, committed: int, over: Callable[[Segment], bool]) -> int:
        """The first entry of the oldest segment that is not ``over``, or in which not all is committed."""
        at = 0
        while (
            at + 1 < len(self.segments)
            and self.segments[at + 1].first <= committed + 1
            and over(self.segments[at])
        ):
            at += 1
        return self.segments[at].first if self.segments else 1

    def trim(self, first: int) -> None:
        """Drop the segments before the one that begins with an entry."""
        while self.segments and self.segments[0].first < first:
            self.segments.pop(0).path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:012d}{_SUFFIX}"

    def _of(self, path: Path) -> str:
        return f"{self.run}/{path.name}"

    def _roll(self, segment: Segment) -> GrowingFile:
        self.sync()
        self.close()
        if self.segments and self.segments[-1].path == segment.path:
            self.segments.pop()  # begun by a process that did not get to its first entry
        file = GrowingFile(segment.path, mode=PRIVATE, anew=True)
        file.append(checked(segment.head(), self._of(segment.path)))
        synced(self.folder)
        self.segments.append(segment)
        return file

    def _read(self, segment: Segment, *, last: bool) -> Iterator[Entry]:
        found = self._frames(segment.path)
        _, good = next(found, (b"", 0))
        for text, end in found:
            entry = Entry.from_json(text)
            segment.count(entry, end - good)
            good = end
            yield entry
        if not last and good < segment.path.stat().st_size:
            raise damaged(segment.path, f" behind byte {good:,}")

    def _frames(self, path: Path) -> Iterator[tuple[bytes, int]]:
        return frames(read(path), self._of(path))

    def _end(self, path: Path) -> int:
        """Where the last whole entry of a segment ends."""
        return max((end for _, end in self._frames(path)), default=0)

    def _opened(self, path: Path) -> Segment:
        head, _ = next(self._frames(path), (None, 0))
        if head is None:
            raise damaged(path)
        told = orjson.loads(head)
        standing = tuple(Query.from_dict(one) for one in told["standing"])
        position, now, schemas = told["position"], told["now"], tuple(told["schemas"])
        return Segment(path, int(path.stem), position, now, standing, schemas, after=position)

    def _headless(self, path: Path) -> bool:
        """True for a segment that holds less than its head, which its writer left just as it began it."""
        return next(self._frames(path), None) is None and b"\n" not in read(path).rstrip(b"\n")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(f"{self.folder}: cannot write the journal: {error.strerror}") from None


@dataclass(slots=True)
class Recent:
    """In memory, for as long as a journal would keep them."""

    _parts: deque[tuple[LogPart, LoggedBatch]] = field(default_factory=deque)

    def keep(self, entry: Entry, position: int, now: int) -> None:
        """What is about to be worked on, where the stream stands at ``position`` and tick ``now``."""
        if len(entry.records):
            kept = LogPart(int(entry.records.time.max()), position + entry.insertions)
            self._parts.append((kept, LoggedBatch(position, now, entry.records)))

    def trim(self, live: Session) -> None:
        """Forget what nothing that is alive can depend on."""
        retention = Retention(live.keeps, live.stream.lateness)
        latest = live.latest or 0
        while self._parts and retention.over(self._parts[0][0], latest, live.position):
            self._parts.popleft()

    def told(self) -> Iterator[LoggedBatch]:
        """Oldest first."""
        return (told for _, told in self._parts)
