"""A file or directory as a source: the new records of all its files; a half-written record waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final

import orjson

from skws.data.batch import NOTHING, BadRecord, Chunk, Item, Record
from skws.formats.files import BLOCK, END, Format, Split, line_count, opened
from skws.formats.jsonl import CHUNK_BYTES, chunk_reader, reads_columns
from skws.formats.splits import names_relations, read_split
from skws.formats.tabular import HEAD_LINES, OPEN_QUOTE, CsvLayout, CsvReader, begun
from skws.sources.feed import (
    Backlog,
    Batch,
    BatchPlan,
    Clock,
    Feed,
    FeedPart,
    Offset,
    Source,
    SystemClock,
    static_relations,
)
from skws.sources.file_parts import ROW_BYTES, Backlogs, divides, first_unread, parts_of
from skws.sources.folder import (
    FileMatcher,
    FilePosition,
    Listing,
    Lookout,
    Positions,
    SourceFile,
    arrival,
    check_path,
)
from skws_schema.errors import SourceError
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class FilePortion:
    """What was read of a file, and the position after it; ``done``: the file has no more."""

    read: Chunk
    at: int
    done: bool = False


def read_part(found: SourceFile, schema: Schema, at: int, *, limit: int = END, end: int = END) -> FilePortion:
    """At most ``limit`` records from byte ``at`` on, those that begin before ``end``. Raises SourceError."""
    if found.format is Format.CSV:
        return _csv_part(found, schema, at, limit, end)
    return _json_part(found, schema, at, limit, end)


def _json_part(found: SourceFile, schema: Schema, at: int, limit: int, end: int) -> FilePortion:
    if end == END:
        end = _lines_end(found.path, at, limit)
    if end == at:
        return FilePortion(NOTHING, at)
    split = Split(found.path, Format.JSON_LINES, found.relation(schema), at, end, end - at, 0)
    # A smaller part is faster read line by line.
    if end - at >= CHUNK_BYTES and reads_columns(split, schema):
        return FilePortion(Chunk.together(chunk_reader(schema).read(split)), end)
    return FilePortion(Chunk.of(read_split(split, schema)), end)


def _lines_end(path: Path, at: int, limit: int) -> int:
    """The end of ``limit`` whole lines from ``at`` on, or of all lines.

    A last line without a line end counts if it is a JSON object: the beginning of
    an object is not one.
    """
    with opened(path) as file:
        file.seek(at)
        for line in islice(file, limit):
            if not line.endswith(b"\n") and not _is_object(line):
                break
            at += len(line)
    return at


def _is_object(line: bytes) -> bool:
    try:
        return type(orjson.loads(line)) is dict
    except orjson.JSONDecodeError:
        return False


def _csv_part(found: SourceFile, schema: Schema, at: int, limit: int, end: int) -> FilePortion:
    with opened(found.path) as file:
        head = _header(file)
        if head is None:
            return FilePortion(NOTHING, at)
        header, layout = head
        size = sum(map(len, header))
        if at >= size:
            layout = layout._replace(passed_over=0)  # told before
        start = max(at, size)
        file.seek(start)
        split = Split(found.path, Format.CSV, found.relation(schema), 0, END, found.size, 0)
        reader = CsvReader(split, schema, chain(header, _whole_lines(file, start, end)), layout)
        items: list[Item] = []
        at = start
        for item in reader.items():
            if isinstance(item, BadRecord):
                if item.reason == OPEN_QUOTE:
                    return FilePortion(Chunk.of([*items, *reader.notes()]), at)
                item = _placed(item, found.path, start, header)  # noqa: PLW2901
            items.append(item)
            at = reader.end + start - size
            if len(items) >= limit:
                return FilePortion(Chunk.of([*items, *reader.notes()]), at)
        return FilePortion(Chunk.of(items), reader.end + start - size)


def _header(file: IO[bytes]) -> tuple[list[bytes], CsvLayout] | None:
    """The lines up to the header, and the layout of the file; None if there is no whole header yet."""
    lines = [line for line in islice(file, HEAD_LINES) if line.endswith(b"\n")]
    layout = begun(lines)[0]
    return (lines[: layout.before + 1], layout) if layout.before < len(lines) else None


def _whole_lines(file: IO[bytes], at: int, end: int) -> Iterator[bytes]:
    for line in file:
        if at >= end or not line.endswith(b"\n"):
            return
        at += len(line)
        yield line


def _placed(bad: BadRecord, path: Path, start: int, header: list[bytes]) -> BadRecord:
    """A bad record with its line and offset in the file; the header and the part from ``start`` were read."""
    with opened(path) as file:
        lines = line_count(file, start)
    size = sum(map(len, header))
    return replace(bad, line=bad.line + lines - len(header), offset=bad.offset + start - size)


class WholeFiles:
    """Reads files that arrive whole, in portions; each stays open from one portion to the next."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._open: dict[int, tuple[int, Iterator[Item]]] = {}

    def part(self, number: int, found: SourceFile, at: int, limit: int) -> FilePortion:
        """At most ``limit`` items of the file with the id ``number``, from the ``at``-th on.

        Raises SourceError if the file is not whole, or damaged.
        """
        at_item, items = self._open.pop(number, (-1, iter(())))
        if at_item != at:
            check_whole(found)
            items = islice(whole_items(found, self._schema), at, None)
        taken = list(islice(items, limit))
        done = len(taken) < limit
        if not done:
            self._open[number] = (at + limit, items)
        return FilePortion(Chunk.of(taken), at + len(taken), done=done)

    def close(self) -> None:
        self._open.clear()


def whole_items(found: SourceFile, schema: Schema) -> Iterator[Item]:
    """All items of a file. Raises SourceError."""
    split = Split(found.path, found.format, found.relation(schema), 0, _end(found), found.size, 0)
    return read_split(split, schema)


def check_whole(found: SourceFile) -> None:
    """Raises SourceError if the file ends too early, or is damaged."""
    if found.format is Format.PARQUET:
        _end(found)
        return
    with opened(found.path) as file:
        if found.size == 0:
            raise SourceError(f"{found.path}: empty")
        while file.read(BLOCK):
            pass


def _end(found: SourceFile) -> int:
    if found.format is not Format.PARQUET:
        return END
    from skws.formats.parquet_files import group_ranges  # noqa: PLC0415 - Arrow is slow to import

    ranges = group_ranges(found.path, END)
    return ranges[-1][1] if ranges else 0


_PORTION: Final = 10_000
_WORTH: Final = 4
"""Of what a poll may give, one in so many records have to wait for parts to be worth it."""
# A file may go between the moment it is found and that at which it is read.
_TRIES: Final = 5


class FilesFeed(Feed):
    """Follows the files at ``root``. A poll reads from every file that has new records."""

    def __init__(self, root: Path, schema: Schema, clock: Clock | None = None) -> None:
        """Raises SourceError if the path does not exist, or is a file of unknown format."""
        check_path(root)
        self._root = root
        self._clock = clock
        self._noticed: set[str] = set()
        self.change_schema(schema)
        self._tables_read: dict[str, tuple[int, int, int]] = {}

    def change_schema(self, schema: Schema) -> None:
        """Files named after a new relation are read on from their present position."""
        self._schema = schema
        self._static = static_relations(schema)
        self._whole = WholeFiles(schema)
        self._lookout = Lookout(self._root, schema, self._clock)
        self._matcher = FileMatcher()
        # What the last poll saw, and its offset, if it gave nothing.
        self._idle: tuple[Listing, Offset] | None = None
        # By inode: the state in which a file was of no relation, None if it is of one.
        self._foreign: dict[int, tuple[int, int, int] | None] = {}
        # Files that gave nothing in their present state: not read again before they change.
        self._exhausted: dict[int, tuple[int, int, int]] = {}

    def start(self) -> Offset:
        """Before the first byte of every file."""
        return Positions({}).offset()

    def tables(self) -> Iterator[Item]:
        """The present rows of static tables, in files of their own or among streams."""
        if not self._static:
            return
        for found in self._lookout.look(everything=True).files:
            self._tables_read[found.name] = found.state
            if self._is_foreign(found):
                continue
            own = self._is_table(found)
            if not own and found.relation(self._schema) is not None:
                continue
            for item in whole_items(found, self._schema) if found.whole else self._grown(found):
                if own or (isinstance(item, Record) and item.relation in self._static):
                    yield item

    def poll(self, start: Offset, limit: int) -> Batch:
        """The new items, file by file."""
        for turn in range(_TRIES):
            listed = self._lookout.look(everything=turn > 0)
            if self._idle is not None and self._idle[0] is listed and self._idle[1] is start:
                return Batch(NOTHING, start)
            try:
                return self._polled(listed, start, limit)
            except (OSError, SourceError) as error:
                if all(found.path.exists() for found in listed.files):
                    raise self._failure(error) from None
        raise SourceError(f"{self._root}: its files appear and disappear faster than they can be read")

    def _polled(self, listed: Listing, start: Offset, limit: int) -> Batch:
        notices = [line for name in listed.unknown for line in self._once(f"skipped {name}: unknown format")]
        before = Positions.of(start)
        positions, moves = self._matcher.match(before, listed.files)
        notices += self._all_gone(before, listed.files)
        files = [found for found in listed.files if found.name in positions.files]
        read, after = self._read_new(positions, files, limit, notices)
        now = replace(positions, files=after)
        end = start if now == before else now.offset()
        self._idle = (listed, end) if end is start and not len(read) else None
        return Batch(read, end, tuple(moves + notices))

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:
        """None unless all files with new records can be divided, and there is a quarter of ``limit``."""
        try:
            return self._planned(self._lookout.look(), start, limit)
        except (OSError, SourceError):  # of a file that has gone, or is not complete: a poll says so
            return None

    def _planned(self, listed: Listing, start: Offset, limit: int) -> BatchPlan | None:
        before = Positions.of(start)
        known = [f for f in listed.files if (p := before.files.get(f.name)) is None or self._has_news(f, p)]
        streams = [f for f in known if not (self._is_table(f) or self._is_foreign(f))]
        if not streams or not all(divides(found, self._schema) for found in streams):
            return None
        new = {found.name: FilePosition(0) for found in streams}
        if Backlogs({**new, **before.files}, streams, self._schema).records * _WORTH < limit:
            return None
        positions, moves = self._matcher.match(before, listed.files)
        notices = moves + self._all_gone(before, listed.files)
        files = [found for found in listed.files if found.name in positions.files]
        pending = self._pending(positions, files, notices)
        if not all(divides(found, self._schema) for found in pending):
            return None
        backlogs = Backlogs(positions.files, pending, self._schema)
        after = backlogs.ends(limit)
        if all(positions.files[name] == position for name, position in after.items()):
            return None
        end = replace(positions, files={**positions.files, **after}).offset()
        return BatchPlan(end, backlogs.records > limit, tuple(notices))

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:
        stretches = list(self._stretches(start, end))
        if not all(divides(found, self._schema) for found, _, _ in stretches):
            return None
        sizes = [
            (position.at - first) * (ROW_BYTES if found.whole else 1) for found, position, first in stretches
        ]
        parts: list[FeedPart] = []
        unread = self._unread(Positions.of(end))
        for (found, position, first), size in zip(stretches, sizes, strict=True):
            own = max(1, round(number * size / max(sum(sizes), 1)))
            some = parts_of(found, self._schema, first, position, self._static, unread, own)
            if some is None:
                return None
            parts += some
        return parts

    def _unread(self, positions: Positions) -> int | None:
        """The least time behind the positions of all files, each of which is in order; None if there is none.

        A file may have nothing between two offsets, as what comes next there is later than a place where
        others were looked at: they may have come further than that in between.
        """
        times = [
            first_unread(found, self._schema, position)
            for found in self._lookout.look().files
            if (position := positions.files.get(found.name)) is not None
            and self._has_news(found, position)
            and not self._is_foreign(found)
            and divides(found, self._schema)
        ]
        return min((time for time in times if time is not None), default=None)

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """Reads the same bytes. Raises SourceError if a file is gone or has changed."""
        return Chunk.together(
            self._between(found, position, first).read.without(self._static)
            for found, position, first in self._stretches(start, end)
        )

    def _stretches(self, start: Offset, end: Offset) -> Iterator[tuple[SourceFile, FilePosition, int]]:
        """The files with something between two offsets: where reading comes to, and where it begins."""
        before, after = Positions.of(start).by_id, Positions.of(end)
        files = {found.name: found for found in self._lookout.look(everything=True).files}
        inodes = {found.inode: found for found in files.values()}
        for name, position in sorted(after.files.items(), key=lambda entry: arrival(entry[0])):
            first = before.get(position.id, FilePosition(position.id)).at
            if first >= position.at:
                continue
            places = (files.get(name), inodes.get(position.inode))
            found = next((f for f in places if f is not None and position.holds_for(f)), None)
            if found is None:  # the file was copied, then cut
                copies = (f for f in files.values() if f.size >= position.at and position.is_of_copy(f))
                found = next(copies, None)
            if found is None:
                raise SourceError(f"{self._root}: {name} is gone or has changed, and cannot be read again")
            yield found, position, first

    def backlog(self, offset: Offset) -> Backlog:
        positions, _ = self._matcher.match(Positions.of(offset), self._lookout.look().files)
        files = [found for found in self._lookout.look().files if found.name in positions.files]
        streams = [found for found in files if not (self._is_table(found) or self._is_foreign(found))]
        waiting = sum(found.size - positions.files[found.name].at for found in streams if not found.whole)
        whole = sum(found.whole and not positions.files[found.name].done for found in streams)
        return Backlog(f"{waiting:,} bytes behind" + (f" and {whole:,} whole files" if whole else ""))

    def close(self) -> None:
        self._whole.close()

    def _read_new(
        self, positions: Positions, files: Sequence[SourceFile], limit: int, notices: list[str]
    ) -> tuple[Chunk, dict[str, FilePosition]]:
        after = dict(positions.files)
        pending = self._pending(positions, files, notices)
        share = max(1, limit // max(1, len(pending)))
        parts: list[Chunk] = []
        for found in pending:
            position = positions.files[found.name]
            part = self._part(found, position, share, notices)
            parts.append(part.read.without(self._static))
            if len(parts[-1]) < len(part.read):
                notices += self._table_notice(found)
            if part.at != position.at or part.done:
                after[found.name] = position.moved(found, part.at, done=part.done)
            elif not len(part.read):
                self._exhausted[position.id] = found.state
        return Chunk.together(parts), after

    def _pending(
        self, positions: Positions, files: Sequence[SourceFile], notices: list[str]
    ) -> list[SourceFile]:
        """The files with new records of the stream."""
        for found in files:
            if self._is_table(found):
                notices += self._table_notice(found)
        fresh = [f for f in files if self._has_news(f, positions.files[f.name])]
        for found in fresh:
            if self._is_foreign(found):
                notices += self._once(
                    f"{found.name} is skipped: its records name no relation, and no relation of schema"
                    f" {self._schema.name} is called so"
                )
        return [f for f in fresh if not self._is_foreign(f)]

    def _part(self, found: SourceFile, position: FilePosition, share: int, notices: list[str]) -> FilePortion:
        if not found.whole:
            return read_part(found, self._schema, position.at, limit=share)
        try:
            return self._whole.part(position.id, found, position.at, share)
        except SourceError as error:
            if position.at:
                raise
            notices += self._once(f"{error}; it is read once it is complete")
            return FilePortion(NOTHING, 0)

    def _has_news(self, found: SourceFile, position: FilePosition) -> bool:
        if self._exhausted.get(position.id) == found.state:
            return False
        news = not position.done if found.whole else found.size > position.at
        return news and not self._is_table(found)

    def _is_foreign(self, found: SourceFile) -> bool:
        """True for a file of the folder whose rows belong to no relation of the schema."""
        if found.named is not None or found.path == self._root:
            return False
        if found.inode in self._foreign and self._foreign[found.inode] in (None, found.state):
            return self._foreign[found.inode] is not None
        try:
            told = names_relations(found.path, found.format, self._schema, None)
        except SourceError:  # it is not complete, or cannot be read: that is said where it is read
            return False
        if told is not None:
            self._foreign[found.inode] = None if told else found.state
        return told is False

    def _between(self, found: SourceFile, position: FilePosition, first: int) -> FilePortion:
        if found.whole:
            return WholeFiles(self._schema).part(position.id, found, first, position.at - first)
        return read_part(found, self._schema, first, end=position.at)

    def _grown(self, found: SourceFile) -> Iterator[Item]:
        """The items of a growing file up to now."""
        part = read_part(found, self._schema, 0, limit=_PORTION)
        while len(part.read):
            yield from part.read
            part = read_part(found, self._schema, part.at, limit=_PORTION)

    def _is_table(self, found: SourceFile) -> bool:
        return found.named in self._static and found.relation(self._schema) is not None

    def _table_notice(self, found: SourceFile) -> list[str]:
        read = self._tables_read.get(found.name)
        if read is None or read == found.state:
            return []
        return self._once(
            f"{found.name} has changed; its rows of static tables are read again at the next start"
        )

    def _all_gone(self, before: Positions, files: tuple[SourceFile, ...]) -> list[str]:
        """The notice that all files are gone, each time that happens."""
        line = f"{self._root}: the files there are gone; reading continues when they are back"
        if before.files and not files:
            return self._once(line)
        self._noticed.discard(line)
        return []

    def _failure(self, error: OSError | SourceError) -> SourceError:
        if isinstance(error, SourceError):
            return error
        return SourceError(f"{error.filename or self._root}: cannot read: {error.strerror}")

    def _once(self, line: str) -> list[str]:
        if line in self._noticed:
            return []
        self._noticed.add(line)
        return [line]


@dataclass(frozen=True)
class FilesSource(Source):
    """A growing file, or a directory of growing files to which others are added."""

    path: Path
    clock: Clock = field(default_factory=SystemClock, compare=False)

    @property
    def name(self) -> str:
        return str(self.path)

    def open(self, schema: Schema) -> Feed:
        return FilesFeed(self.path, schema, self.clock)
