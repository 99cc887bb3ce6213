"""The log of past records, for later queries and schemas and for a restart of the run.

A ``Journal`` keeps its entries in segments: files named by the number of their first entry. A segment
begins with the standing queries before that entry. An entry is followed by the begins of the results that it
updated. Old segments are dropped once nothing alive depends on them; where rows live long, ``rewrite``
replaces all entries by one with the live rows, most of which are in row files. ``Recent`` keeps
the same records in memory, for a run without a checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from skws.data.batch import NO_RECORDS, LongBatch
from skws.data.packing import WORD, decode, encode
from skws.durable import (
    PRIVATE,
    GrowingFile,
    damaged,
    encode_frame,
    explained,
    frames,
    is_torn,
    missing,
    read_file,
    remove_file,
    replace_file,
)
from skws.jobs.control import JobCommand
from skws.queries.keywords.updates import Begin
from skws.queries.operator import Begins, LoggedBatch, record_count
from skws.sources.feed import Offset
from skws.sources.partitions import stream_time_before
from skws.spec.query_spec import Query
from skws.store.live_store import LiveRecords
from skws.store.row_files import RowFiles
from skws_purging.lifespans import ALWAYS
from skws_purging.retention import LogPart


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A micro-batch: the input up to the offset ``end`` of the source and ``control`` of the control folder.

    ``records``: a batch, unless the entry replaces all earlier ones and some records are in row files.
    ``letters``: bad records as lines of the dead letter file. ``bad``: their number.
    ``ended``: the source has ended. ``reached``: the time of the stream, if the entry replaces all earlier
    ones. ``begins``: those of the results that it updated. ``files``: row files with the other records, as
    ``RowFiles`` names them. ``recent``: as in ``LoggedBatch``, if it replaces all earlier ones.
    """

    number: int
    end: Offset
    control: int
    commands: tuple[JobCommand, ...] = ()
    records: LongBatch = NO_RECORDS
    letters: tuple[str, ...] = ()
    bad: int = 0
    ended: bool = False
    reached: int | None = None
    begins: Begins = field(default_factory=dict)
    files: Sequence[dict[str, Any]] = ()
    recent: Sequence[LoggedBatch] = ()

    @property
    def insertions(self) -> int:
        return self.records.insertions

    @property
    def size(self) -> int:
        """The number of its records, recent ones included."""
        return len(self.records) + record_count(self.recent)

    @property
    def latest(self) -> int | None:
        """The latest time in it."""
        return _latest([self.records.latest, *(batch.batch.latest for batch in self.recent)])

    def to_bytes(self) -> bytes:
        """The entry as the journal stores it: its fields as JSON, then the records by column."""
        recent = [_pad_to_words(encode(batch.batch)) for batch in self.recent]
        fields = {
            "number": self.number,
            "end": self.end,
            "control": self.control,
            "commands": [command.to_dict() for command in self.commands],
            "letters": self.letters,
            "bad": self.bad,
            "ended": self.ended,
            "reached": self.reached,
            "files": self.files,
            "recent": [
                (batch.position, batch.now, len(data))
                for batch, data in zip(self.recent, recent, strict=True)
            ],
        }
        head = orjson.dumps(fields)
        if not len(self.records) and not recent:
            return head
        space = b" " * (-(len(head) + 1) % WORD)
        return b"".join((head, space, b"\n", *recent, encode(self.records.whole)))

    @classmethod
    def from_bytes(cls, text: bytes) -> JournalEntry:
        """Inverse of ``to_bytes``. Columns of the records are views of the text."""
        view, end = memoryview(text), text.find(b"\n")
        fields = orjson.loads(view if end < 0 else view[:end])
        fields["commands"] = tuple(map(JobCommand.of, fields["commands"]))
        recent, offset = [], end + 1
        for position, now, size in fields.get("recent", ()):
            recent.append(LoggedBatch(position, now, decode(view[offset : offset + size])[0]))
            offset += size
        fields["recent"] = recent
        if end >= 0:
            fields["records"], _ = decode(view[offset:])
        fields["letters"] = tuple(fields["letters"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class PriorState:
    """The state of the stream before an entry, with the standing queries.

    ``schemas``: the changes from the first schema to that before the entry, as YAML.
    """

    position: int = 0
    now: int = ALWAYS
    standing_queries: tuple[Query, ...] = ()
    schemas: tuple[str, ...] = ()


class LogReplacement(NamedTuple):
    """An entry that replaces a whole log, and the state before it. Its records are the ``live`` ones."""

    entry: JournalEntry
    prior_state: PriorState
    live: LiveRecords

    @property
    def size(self) -> int:
        """The number of its records."""
        return len(self.live) + record_count(self.entry.recent)

    @property
    def latest(self) -> int | None:
        """The latest time in it."""
        return _latest([self.live.latest, *(batch.batch.latest for batch in self.entry.recent)])


def _latest(times: Iterable[int | None]) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _pad_to_words(data: bytes) -> bytes:
    return data + bytes(-len(data) % WORD)


_BEGINS: Final = b'{"begins":'
"""The first bytes of the begins that follow an entry."""


def _with_begins(entry: JournalEntry, texts: Sequence[bytes]) -> JournalEntry:
    if not texts:
        return entry
    begins = {name: [*items] for name, items in entry.begins.items()}
    for text in texts:
        for name, items in orjson.loads(text)["begins"].items():
            begins.setdefault(name, []).extend(Begin(*fields) for fields in items)
    return replace(entry, begins=begins)


SEGMENT_BYTES: Final = 4 << 20
_MANY: Final = 1024  # entries with at least this number of records stay in memory as arrays
_SUFFIX: Final = ".log"


@dataclass(slots=True)
class Segment:
    """``first``: the number of its first entry.

    ``latest``: the latest time in it. ``after``: the position after it. ``records``: their number.
    """

    path: Path
    first: int
    prior_state: PriorState = PriorState()
    latest: int | None = None
    after: int = 0
    size: int = 0
    records: int = 0

    @property
    def log_part(self) -> LogPart:
        return LogPart(self.latest, self.after)

    def head(self) -> bytes:
        prior_state = self.prior_state
        fields = {
            "position": prior_state.position,
            "now": prior_state.now,
            "standing_queries": [query.to_dict() for query in prior_state.standing_queries],
            "schemas": prior_state.schemas,
        }
        return orjson.dumps(fields)

    def count(self, entry: JournalEntry, size: int) -> None:
        self.grow(size, entry.size, entry.insertions, entry.latest)

    def grow(self, size: int, records: int, insertions: int, latest: int | None) -> None:
        """An entry of some bytes and records was appended."""
        if latest is not None:
            self.latest = latest if self.latest is None else max(self.latest, latest)
        self.after += insertions
        self.size += size
        self.records += records


@dataclass(slots=True)
class Journal:
    """A log in a folder of segments; one process writes. Raises StateError.

    ``run``: its id, part of all checksums. ``last``: the number of the last entry when it was opened.
    """

    folder: Path
    run: str = ""
    segments: list[Segment] = field(default_factory=list)
    last: int = 0
    tail: int = 0
    """Bytes of the entries since the log was last replaced by one entry."""
    _idle: int = 0  # bytes among these of dead letters, and of entries without records
    _files: RowFiles = field(init=False)
    _file: GrowingFile | None = None
    _dropped_paths: list[Path] = field(default_factory=list)
    _needed_files: Sequence[dict[str, Any]] = ()  # the row files that the first entry needs
    _extends_last: bool = False  # the next entry belongs to the last segment in any case

    def __post_init__(self) -> None:
        self._files = RowFiles(self.folder)

    @property
    def size(self) -> int:
        """Bytes of all segments, and of row files."""
        return sum(segment.size for segment in self.segments) + self._files.size

    @property
    def is_idle(self) -> bool:
        """True if most bytes are of dead letters or of entries without records, such as commands."""
        return 2 * self._idle > self.size

    @property
    def records(self) -> int:
        """Records of all segments."""
        return sum(segment.records for segment in self.segments)

    def open(self, first: int = 1) -> None:
        """Find the segments, beginning with the one of entry ``first``.

        An unfinished entry at the end is skipped. A damaged one is refused: sinks may have its results.
        """
        segments = sorted(path for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())
        paths = [path for path in segments if int(path.stem) >= first]
        self._dropped_paths = segments[: len(segments) - len(paths)]
        if paths and self._is_headless(paths[-1]):
            self._dropped_paths.append(paths.pop())
        if len(paths) > 1 and int(paths[-1].stem) <= self._last_number(paths[-2]):
            # It should begin with an entry that replaces all earlier ones, but may lack it: a commit would
            # have dropped the segments before it.
            self._dropped_paths.append(paths.pop())
        if paths and self._path(first) not in paths:
            raise missing(self._path(first))
        self.segments = [self._open_segment(path) for path in paths]
        if paths:
            self._check_end(paths[-1])
            self.last = self._last_number(paths[-1])

    def entries(self) -> Iterator[JournalEntry]:
        """All entries, oldest first; an unfinished one at the end is skipped."""
        number = self.segments[0].first if self.segments else 1
        previous: JournalEntry | None = None
        for segment in self.segments:
            if segment.first != number:
                raise damaged(self.folder, f" (micro-batch {number:,} is missing)")
            first_begins: list[bytes] = []
            for entry in self._read(segment, first_begins, last=segment is self.segments[-1]):
                if entry.number != number:
                    raise damaged(segment.path)
                number += 1
                if previous is not None:
                    yield _with_begins(previous, first_begins)
                previous, first_begins = entry, []
            if previous is not None:
                previous = _with_begins(previous, first_begins)
        if previous is not None:
            yield previous

    def repair(self) -> None:
        """Remove an unfinished entry and dropped segments; before results are written or entries appended.

        The last segment is rewritten: after a failed sync the system considers the page written, so syncing
        an earlier process's appends again proves nothing.
        """
        for path in self._dropped_paths:
            remove_file(path)
        first = self.first_entry()
        self._needed_files = () if first is None else first.files
        self._files.trim(self._needed_files)
        if self.segments:
            path = self.segments[-1].path
            replace_file(path, read_file(path)[: self._end(path)], durable=True, mode=PRIVATE)

    def first_entry(self) -> JournalEntry | None:
        """The oldest entry, without the records that are in row files; None if there is none."""
        entries = self._entries(self.segments[0].path) if self.segments else iter(())
        return next((entry for entry, _ in entries), None)

    def before(self, number: int) -> Iterator[LoggedBatch]:
        """The records before the entry of a number, oldest first."""
        end: Offset | None = None
        for segment in self.segments:
            for entry, _ in self._entries(segment.path):
                if entry.number >= number:
                    return
                prior_state = segment.prior_state
                records, final = self._with_row_files(entry).records.whole, stream_time_before(end, entry.end)
                yield LoggedBatch(prior_state.position, prior_state.now, records, final, entry.recent)
                end = entry.end

    def recent(self) -> Iterator[LoggedBatch]:
        """The records as they arrived, as far as they are in the log; oldest first."""
        for segment in self.segments:
            for entry, _ in self._entries(segment.path):
                if entry.reached is None:
                    yield LoggedBatch(
                        segment.prior_state.position, segment.prior_state.now, entry.records.whole
                    )
                else:
                    yield from entry.recent

    def append(self, entry: JournalEntry, prior_state: PriorState) -> JournalEntry:
        """Append an entry, which survives a kill of this process; returns it, with many records as arrays."""
        with self._writing():
            if self._file is None and self.segments:  # a repaired segment of an earlier process
                self._file = GrowingFile(self.segments[-1].path, mode=PRIVATE)
            if self._file is None or (self.segments[-1].size > SEGMENT_BYTES and not self._extends_last):
                path = self._path(entry.number)
                self._file = self._roll(Segment(path, entry.number, prior_state, after=prior_state.position))
            text = entry.to_bytes()
            frame = encode_frame(text, self._checksum_name(self._file.path), self._file.size)
            self._file.append(frame)
        self._count(self.segments[-1], entry, len(frame))
        return (
            entry
            if len(entry.records) < _MANY
            else replace(entry, records=JournalEntry.from_bytes(text).records)
        )

    def replaceable(self, number: int) -> bool:
        """True if ``rewrite`` can replace the log at its last entry: the last segment does not begin with it.

        Otherwise the next entries join this segment, however large it is, so that it becomes replaceable.
        """
        self._extends_last = bool(self.segments) and self.segments[-1].first == number
        return not self._extends_last

    def append_begins(self, begins: Begins) -> None:
        """Append the begins of results after the last entry; does nothing without entries."""
        if not (begins and self.segments):
            return
        with self._writing():
            if self._file is None:
                self._file = GrowingFile(self.segments[-1].path, mode=PRIVATE)
            text = orjson.dumps({"begins": {name: list(map(list, items)) for name, items in begins.items()}})
            frame = encode_frame(text, self._checksum_name(self._file.path), self._file.size)
            self._file.append(frame)
        self.segments[-1].size += len(frame)

    def rewrite(self, replacement: LogReplacement) -> int:
        """Begin a segment with an entry that replaces the whole log; returns the first entry to keep.

        Call it before a commit if the log is ``replaceable`` at the entry, and ``trim`` after the commit.
        """
        entry, prior_state, live_records = replacement
        path = self._path(entry.number)
        stored = self._files.store(live_records, path.stem)
        text = replace(entry, records=stored.rest, files=stored.files).to_bytes()
        with self._writing():
            self._file = self._roll(Segment(path, entry.number, prior_state, after=prior_state.position))
            frame = encode_frame(text, self._checksum_name(path), self._file.size)
            self._file.append(frame)
        self.segments[-1].grow(len(frame), replacement.size, live_records.insertions, replacement.latest)
        self.append_begins(entry.begins)
        self.sync()
        self._needed_files, self.tail = stored.files, len(frame) if record_count(entry.recent) else 0
        self._idle = 0
        return entry.number

    def sync(self) -> None:
        """Make all appended entries survive a loss of power. Waits for the disk."""
        if self._file is not None:
            with self._writing():
                self._file.sync()

    def first_to_keep(self, is_over: Callable[[Segment], bool]) -> int:
        """The first entry of the oldest segment that is not ``is_over``, or of the last; all are committed.

        The last segment may have lost its entries; the previous one then has the position of the run.
        """
        nonempty = [segment for segment in self.segments if segment.size] or self.segments
        first_numbers = (segment.first for segment in nonempty[:-1] if not is_over(segment))
        return next(first_numbers, nonempty[-1].first if nonempty else 1)

    def trim(self, first: int) -> None:
        """Drop the segments before the one that begins with entry ``first``."""
        while self.segments and self.segments[0].first < first:
            remove_file(self.segments.pop(0).path)
        self._files.trim(self._needed_files)

    def release_pages(self) -> None:
        """Release the pages of row files; call it once all entries have been read."""
        self._files.release_pages()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:012d}{_SUFFIX}"

    def _checksum_name(self, path: Path) -> str:
        return f"{self.run}/{path.name}"

    def _roll(self, segment: Segment) -> GrowingFile:
        self.sync()
        self.close()
        file = GrowingFile(segment.path, mode=PRIVATE, anew=True)
        file.append(encode_frame(segment.head(), self._checksum_name(segment.path)))
        self.segments.append(segment)
        return file

    def _read(self, segment: Segment, first_begins: list[bytes], *, last: bool) -> Iterator[JournalEntry]:
        _, good_end = next(self._frames(segment.path), (b"", 0))
        for stored_entry, end in self._entries(segment.path, first_begins):
            entry = self._with_row_files(stored_entry)
            self._count(segment, entry, end - good_end)
            good_end = end
            yield entry
        if not last and good_end < segment.path.stat().st_size:
            raise damaged(segment.path, f" after byte {good_end:,}")

    def _count(self, segment: Segment, entry: JournalEntry, size: int) -> None:
        segment.count(entry, size)
        if entry.reached is not None:
            self.tail = self._idle = 0
        else:
            self.tail += size
            self._idle += sum(map(len, entry.letters)) if entry.size else size

    def _with_row_files(self, entry: JournalEntry) -> JournalEntry:
        """An entry with the records that are in row files."""
        if not entry.files:
            return entry
        return replace(entry, records=self._files.read(entry.files, entry.records.whole))

    def _entries(
        self, path: Path, first_begins: list[bytes] | None = None
    ) -> Iterator[tuple[JournalEntry, int]]:
        """The entries of a segment, each with the end of its begins.

        ``first_begins`` receives the begins before the first entry. They belong to the last entry of the
        previous segment: this one had lost its entries when they were written.
        """
        entry, entry_end = None, 0
        for text, end in islice(self._frames(path), 1, None):
            if text.startswith(_BEGINS):
                if entry is not None:
                    entry, entry_end = _with_begins(entry, [text]), end
                elif first_begins is not None:
                    first_begins.append(text)
                continue
            if entry is not None:
                yield entry, entry_end
            entry, entry_end = JournalEntry.from_bytes(text), end
        if entry is not None:
            yield entry, entry_end

    def _frames(self, path: Path) -> Iterator[tuple[bytes, int]]:
        return frames(read_file(path), self._checksum_name(path))

    def _end(self, path: Path) -> int:
        """The end of the last whole entry of a segment."""
        return max((end for _, end in self._frames(path)), default=0)

    def _check_end(self, path: Path) -> None:
        """Raises StateError if the last whole entry is followed by more than an unfinished one."""
        data, end = read_file(path), self._end(path)
        if not is_torn(data, end, self._checksum_name(path)):
            raise damaged(path, f" after byte {end:,}")

    def _open_segment(self, path: Path) -> Segment:
        head, _ = next(self._frames(path), (None, 0))
        if head is None:
            raise damaged(path)
        fields = orjson.loads(head)
        queries = tuple(Query.from_dict(query) for query in fields["standing_queries"])
        prior_state = PriorState(fields["position"], fields["now"], queries, tuple(fields["schemas"]))
        return Segment(path, int(path.stem), prior_state, after=prior_state.position)

    def _is_headless(self, path: Path) -> bool:
        """True for a segment without a complete header: its writer ended just after creating it."""
        return next(self._frames(path), None) is None and b"\n" not in read_file(path).rstrip(b"\n")

    def _last_number(self, path: Path) -> int:
        """The number of the last whole entry of a segment; one less than its first if it has none."""
        entry_count = sum(not text.startswith(_BEGINS) for text, _ in self._frames(path)) - 1
        return int(path.stem) + entry_count - 1

    def _writing(self) -> AbstractContextManager[None]:
        return explained(f"{self.folder}: cannot write the journal")


class Recent:
    """A log in memory. ``is_over`` is true for parts on which nothing alive depends."""

    tail = 0  # its size in bytes is never a reason to replace it
    is_idle = False

    def __init__(self, is_over: Callable[[LogPart], bool]) -> None:
        self._is_over = is_over
        self._parts: deque[tuple[int, LogPart, LoggedBatch]] = deque()
        self.records = 0
        """The number of records of all parts."""
        self._end: Offset | None = None  # of the last entry

    def append(self, entry: JournalEntry, prior_state: PriorState) -> JournalEntry:
        while self._parts and self._is_over(self._parts[0][1]):
            *_, batch = self._parts.popleft()
            self.records -= len(batch.batch) + record_count(batch.recent)
        self._add(entry, prior_state)
        return entry

    def replaceable(self, number: int) -> bool:  # noqa: ARG002 - it has no segments
        """As ``Journal.replaceable``."""
        return True

    def rewrite(self, replacement: LogReplacement) -> int:
        """Replace all entries by one; returns its number."""
        self._parts.clear()
        self.records = 0
        entry = replace(replacement.entry, records=replacement.live.records.compact())
        self._add(entry, replacement.prior_state)
        return entry.number

    def recent(self) -> Iterator[LoggedBatch]:
        """The records as they arrived, as far as they are in the log; oldest first."""
        return chain.from_iterable(batch.recent or (batch,) for *_, batch in self._parts)

    def _add(self, entry: JournalEntry, prior_state: PriorState) -> None:
        self.records += entry.size
        if len(entry.records) or entry.recent:
            log_part = LogPart(entry.latest, prior_state.position + entry.insertions)
            final = stream_time_before(self._end, entry.end)
            batch = LoggedBatch(
                prior_state.position, prior_state.now, entry.records.whole, final, entry.recent
            )
            self._parts.append((entry.number, log_part, batch))
        self._end = entry.end

    def before(self, number: int) -> Iterator[LoggedBatch]:
        return (batch for entry_number, _, batch in self._parts if entry_number < number)
