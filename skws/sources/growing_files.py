"""A file or directory as a source: the new records of all its files, without incomplete ones."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import orjson

from skws.data.batch import NOTHING, BadRecord, Chunk, Item, Record
from skws.formats.files import BLOCK, END, Format, Split, line_count, opened
from skws.formats.jsonl import CHUNK_BYTES, chunk_reader, reads_columns
from skws.formats.parquet import parquet
from skws.formats.splits import chunks, names_relations, read_split
from skws.formats.tabular import (
    HEAD_LINES,
    OPEN_QUOTE,
    CsvLayout,
    CsvReader,
    as_text,
    csv_fault,
    fields_of,
    read_layout,
)
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
from skws.sources.file_parts import (
    ROW_BYTES,
    Backlogs,
    BatchContext,
    divides,
    first_unread,
    last_read,
    parts_of,
)
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
from skws_schema.model import AttributeType, Schema


@dataclass(frozen=True, slots=True)
class FilePortion:
    """Records of a file, and the position after them.

    ``done``: the file has no more. ``layout``: as in ``FilePosition``.
    """

    read: Chunk
    end: int
    done: bool = False
    layout: int = 0


def read_part(
    source_file: SourceFile, schema: Schema, start: int, *, limit: int = END, end: int = END, layout: int = 0
) -> FilePortion:
    """At most ``limit`` records from byte ``start`` on that begin before ``end``. Raises SourceError.

    ``layout``: the bytes of the lines that determine the layout of a CSV file; 0 if all lines so far do.
    """
    if source_file.format is Format.CSV:
        return _csv_part(source_file, schema, start, limit, end, layout)
    return _json_part(source_file, schema, start, limit, end)


def _json_part(source_file: SourceFile, schema: Schema, start: int, limit: int, end: int) -> FilePortion:
    if end == END:
        end = _lines_end(source_file.path, start, limit)
    if end == start:
        return FilePortion(NOTHING, start)
    split = Split(
        source_file.path, Format.JSON_LINES, source_file.relation(schema), start, end, end - start, 0
    )
    # A smaller part is read faster line by line.
    if end - start >= CHUNK_BYTES and reads_columns(split, schema):
        return FilePortion(Chunk.concat(chunk_reader(schema).read(split)), end)
    return FilePortion(Chunk.of(read_split(split, schema)), end)


def _lines_end(path: Path, offset: int, limit: int) -> int:
    """The end of ``limit`` whole lines from ``offset`` on, or of all lines.

    A last line without a line end counts if it is a JSON object, since no proper prefix of an object is one.
    """
    with opened(path) as file:
        file.seek(offset)
        for line in islice(file, limit):
            if not line.endswith(b"\n") and not _is_object(line):
                break
            offset += len(line)
    return offset


def _is_object(line: bytes) -> bool:
    try:
        return type(orjson.loads(line)) is dict
    except orjson.JSONDecodeError:
        return False


def _csv_part(
    source_file: SourceFile, schema: Schema, offset: int, limit: int, end: int, layout_bytes: int
) -> FilePortion:
    def portion(items: list[Item], end: int) -> FilePortion:
        is_settled = layout_bytes or any(isinstance(item, Record) for item in items)
        layout = sum(map(len, lines)) if items else 0
        return FilePortion(Chunk.of(items), end, layout=layout if is_settled else -layout)

    with opened(source_file.path) as file:
        lines = _head_lines(file, layout_bytes)
        head = _header(lines)
        if head is None:
            return FilePortion(NOTHING, offset)
        header, layout = head
        size = sum(map(len, header))
        if end < size:  # only lines before the header, which was not there yet
            return FilePortion(NOTHING, end)
        if offset >= size:
            layout = layout._replace(passed_over=0)  # reported before
        start = max(offset, size)
        file.seek(start)
        split = Split(source_file.path, Format.CSV, source_file.relation(schema), 0, END, source_file.size, 0)
        reader = CsvReader(split, schema, chain(header, _whole_lines(file, start, end)), layout)
        items: list[Item] = []
        offset, lines_before = start, None
        for item in reader.items():
            if isinstance(item, BadRecord):
                if item.reason == OPEN_QUOTE:
                    return portion([*items, *reader.notes()], offset)
                lines_before = (
                    _lines_before(source_file.path, start) if lines_before is None else lines_before
                )
                item = replace(  # noqa: PLW2901 - the reader had the header, then the lines from ``start`` on
                    item, line=item.line + lines_before - len(header), offset=item.offset + start - size
                )
            items.append(item)
            offset = reader.end + start - size
            if len(items) >= limit:
                return portion([*items, *reader.notes()], offset)
        return portion(items, reader.end + start - size)


def _head_lines(file: IO[bytes], size: int) -> list[bytes]:
    """The lines that determine the layout: those in the first ``size`` bytes, or all so far if it is 0."""
    lines: list[bytes] = []
    for line in islice(file, HEAD_LINES):
        if not line.endswith(b"\n") or 0 < size <= sum(map(len, lines)):
            break
        lines.append(line)
    return lines


def _header(lines: list[bytes]) -> tuple[list[bytes], CsvLayout] | None:
    """The lines up to the header, and the layout; None without a complete header.

    None also if the last line may be the header, and the others a title, as the next line will show.
    """
    layout, texts = read_layout(lines)
    if layout.before >= len(lines):
        return None
    if len(lines) < HEAD_LINES and read_layout([*lines, _values_below(lines[-1])])[0].before != layout.before:
        return None
    reader: Any = fields_of(map(as_text, texts), layout)
    try:
        next(reader)
    except csv.Error as error:
        if csv_fault(error) == OPEN_QUOTE and len(lines) < HEAD_LINES:
            return None
        return lines[: layout.before + 1], layout  # the reader of the rows reports it
    return lines[: layout.before + reader.line_num], layout


def _values_below(header: bytes) -> bytes:
    """A line of values below a header."""
    return re.sub(rb"[^,;\t|]+", b"0", header)


def _whole_lines(file: IO[bytes], offset: int, end: int) -> Iterator[bytes]:
    for line in file:
        if offset >= end or not line.endswith(b"\n"):
            return
        offset += len(line)
        yield line


def _lines_before(path: Path, offset: int) -> int:
    with opened(path) as file:
        return line_count(file, offset)


class WholeFiles:
    """Reads files that arrive whole, in portions; each stays open from one portion to the next."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._open: dict[int, tuple[int, Iterator[Item]]] = {}

    def part(self, number: int, source_file: SourceFile, start: int, limit: int) -> FilePortion:
        """The items of at most ``limit`` rows of the file with the id ``number``, from the ``start``-th on.

        Raises SourceError if the file is incomplete or damaged.
        """
        next_row, items = self._open.pop(number, (-1, iter(())))
        if next_row != start:
            check_whole(source_file)
            items = whole_items(source_file, self._schema)
            _items_of_rows(items, start)
        portion_items, rows = _items_of_rows(items, limit)
        is_done = rows < limit
        if not is_done:
            self._open[number] = (start + limit, items)
        return FilePortion(Chunk.of(portion_items), start + rows, done=is_done)

    def close_others(self, numbers: Collection[int]) -> None:
        """Close the files with other ids, such as deleted ones, whose space the system cannot free before."""
        for number in self._open.keys() - numbers:
            del self._open[number]

    def close(self) -> None:
        self._open.clear()


def _items_of_rows(items: Iterator[Item], limit: int) -> tuple[list[Item], int]:
    """The next items up to those of ``limit`` rows, and the number of rows.

    An item on values that were passed over is no row: plans count rows (``file_parts.py``).
    """
    portion: list[Item] = []
    rows = 0
    while rows < limit and (item := next(items, None)) is not None:
        portion.append(item)
        rows += not (type(item) is BadRecord and item.passed_over)
    return portion, rows


def whole_items(source_file: SourceFile, schema: Schema) -> Iterator[Item]:
    """All items of a file. Raises SourceError."""
    return read_split(_split_until(_end(source_file), source_file, schema), schema)


def present_records(source_file: SourceFile, schema: Schema) -> Iterator[Chunk]:
    """The present records of a file, without an incomplete one at its end. Raises SourceError."""
    if source_file.whole:
        yield from chunks(_split_until(_end(source_file), source_file, schema), schema)
        return
    for chunk in chunks(_split_until(_complete_bytes(source_file), source_file, schema), schema):
        # The rest of a quoted field may be written later.
        yield replace(chunk, bad=[bad for bad in chunk.bad if bad.reason != OPEN_QUOTE])


def _split_until(end: int, source_file: SourceFile, schema: Schema) -> Split:
    """The file up to ``end``."""
    return Split(
        source_file.path, source_file.format, source_file.relation(schema), 0, end, source_file.size, 0
    )


def _complete_bytes(source_file: SourceFile) -> int:
    """The size of the whole lines of a growing file; 0 while the header of a CSV file is incomplete."""
    position = end = 0
    with opened(source_file.path) as file:
        if source_file.format is Format.CSV and _header(_head_lines(file, 0)) is None:
            return 0
        file.seek(0)
        while block := file.read(BLOCK):
            line_end = block.rfind(b"\n") + 1
            end = position + line_end if line_end else end
            position += len(block)
        if source_file.format is Format.JSON_LINES:
            end = _lines_end(source_file.path, end, 1)
    return end


def check_whole(source_file: SourceFile) -> None:
    """Raises SourceError if the file ends too early, or is damaged."""
    if source_file.format is Format.PARQUET:
        _end(source_file)
        return
    with opened(source_file.path) as file:
        if source_file.size == 0:
            raise SourceError(f"{source_file.path}: empty")
        while file.read(BLOCK):
            pass


def _end(source_file: SourceFile) -> int:
    if source_file.format is not Format.PARQUET:
        return END
    ranges = parquet().group_ranges(source_file.path, END)
    return ranges[-1][1] if ranges else 0


_WORTH: Final = 4
"""The least part of a poll's records that must wait so that parts are worthwhile, as a divisor."""
_FEW_NOTICES: Final = 64
# A file may be removed between listing and reading.
_TRIES: Final = 5


class FilesFeed(Feed):
    """Follows the files at ``root``. A poll reads from every file that has new records."""

    def __init__(self, root: Path, schema: Schema, clock: Clock | None = None) -> None:
        """Follow a path. Raises SourceError if it does not exist, or is a file of unknown format."""
        check_path(root)
        self._root = root
        self._clock = clock
        # By line, the name of the file that it is about, or an empty one.
        self._past_notices: dict[str, str] = {}
        self._most_past_notices = _FEW_NOTICES
        self._new_notices: list[str] = []
        self.change_schema(schema)
        self._table_states: dict[str, tuple[int, int, int]] = {}

    def change_schema(self, schema: Schema) -> None:
        """Use a changed schema; files named after a new relation are read from their present position."""
        self._schema = schema
        self._static = static_relations(schema)
        self._whole = WholeFiles(schema)
        self._lookout = Lookout(self._root, schema, self._clock)
        self._matcher = FileMatcher()
        # The listing and offset of the last poll, if it found no records.
        self._idle: tuple[Listing, Offset] | None = None
        # By inode: the state of a file that belongs to no relation; None if it belongs to one.
        self._foreign: dict[int, tuple[int, int, int] | None] = {}
        # Files without records in their present state, which are read again only after a change.
        self._exhausted: dict[int, tuple[int, int, int]] = {}

    @property
    def partitioned(self) -> bool:
        return True

    def start(self) -> Offset:
        """The offset before the first byte of every file."""
        return Positions({}).offset()

    def tables(self) -> Iterator[Chunk]:
        """The present rows of static tables, in files of their own or among streams."""
        if not self._static:
            return
        for source_file in self._lookout.look(everything=True).files:
            self._table_states[source_file.name] = source_file.state
            if self._is_foreign(source_file):
                continue
            is_table = self._is_table(source_file)
            if not is_table and source_file.relation(self._schema) is not None:
                continue
            for chunk in present_records(source_file, self._schema):
                yield chunk if is_table else self._table_rows(chunk)

    def poll(self, start: Offset, limit: int) -> Batch:
        """The new items, file by file."""
        for turn in range(_TRIES):
            listing = self._lookout.look(everything=turn > 0)
            if self._idle is not None and self._idle[0] is listing and self._idle[1] is start:
                return Batch(NOTHING, start)
            try:
                return self._read_batch(listing, start, limit)
            except (OSError, SourceError) as error:
                if all(source_file.path.exists() for source_file in listing.files):
                    raise self._failure(error) from None
        raise SourceError(f"{self._root}: its files appear and disappear faster than they can be read")

    def _read_batch(self, listing: Listing, start: Offset, limit: int) -> Batch:
        self._forget_notices(listing)
        for name in listing.unknown:
            self._notify(f"skipped {name}: unknown format", name)
        before = Positions.of(start)
        positions, moves = self._matcher.match(before, listing.files)
        self._notify_missing(before, listing.files)
        files = [source_file for source_file in listing.files if source_file.name in positions.files]
        self._whole.close_others({positions.files[source_file.name].id for source_file in files})
        chunk, after = self._read_new(positions, files, limit)
        over = _ended_partitions(positions.files, after)
        end_positions = replace(positions, files=after)
        end = start if end_positions == before else end_positions.offset()
        self._idle = (listing, end) if end is start and not len(chunk) else None
        answered = bool(files) or not before.files
        return Batch(chunk, end, (*moves, *self._take_notices()), over=over, answered=answered)

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:
        """None unless all files with new records can be divided, and a quarter of ``limit`` waits."""
        try:
            return self._plan_batch(self._lookout.look(), start, limit)
        except (OSError, SourceError):  # A poll reports a file that was removed or is incomplete.
            return None

    def _plan_batch(self, listing: Listing, start: Offset, limit: int) -> BatchPlan | None:
        before = Positions.of(start)
        readable = [
            f for f in listing.files if (p := before.files.get(f.name)) is None or self._has_news(f, p)
        ]
        streams = [f for f in readable if not (self._is_table(f) or self._is_foreign(f))]
        if not streams or not all(divides(source_file, self._schema) for source_file in streams):
            return None
        start_positions = {source_file.name: FilePosition(0) for source_file in streams}
        if Backlogs({**start_positions, **before.files}, streams, self._schema).records * _WORTH < limit:
            return None
        positions, moves = self._matcher.match(before, listing.files)
        self._notify_missing(before, listing.files)
        files = [source_file for source_file in listing.files if source_file.name in positions.files]
        pending = self._pending(positions, files)
        if not all(divides(source_file, self._schema) for source_file in pending):
            return None
        backlogs = Backlogs(positions.files, pending, self._schema)
        after = backlogs.ends(limit)
        if all(positions.files[name] == position for name, position in after.items()):
            return None
        reached = {
            partition_of(f.name): last_read(f, self._schema, positions.files[f.name].offset, after[f.name])
            for f in pending
            if f.name in after
        }
        end = replace(positions, files={**positions.files, **after}).offset()
        over = _ended_partitions(positions.files, after)
        return BatchPlan(end, backlogs.records > limit, (*moves, *self._take_notices()), reached, over)

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:
        spans = list(self._spans(start, end))
        if not all(divides(source_file, self._schema) for _, source_file, _, _ in spans):
            return None
        sizes = [
            (position.offset - first) * (ROW_BYTES if source_file.whole else 1)
            for _, source_file, position, first in spans
        ]
        parts: list[FeedPart] = []
        unread = self._least_unread_time(Positions.of(end))
        for (name, source_file, position, first), size in zip(spans, sizes, strict=True):
            part_count = max(1, round(number * size / max(sum(sizes), 1)))
            context = BatchContext(partition_of(name), self._static, unread)
            parts_of_file = parts_of(source_file, self._schema, first, position, context, part_count)
            if parts_of_file is None:
                return None
            parts += parts_of_file
        return parts

    def _least_unread_time(self, positions: Positions) -> int | None:
        """The least time after the positions of all files, each of which is in order; None if there is none.

        A file may have no record between two offsets, because its next record is later than the time at which
        the batch ends in other files.
        """
        times = [
            first_unread(source_file, self._schema, position)
            for source_file in self._lookout.look().files
            if (position := positions.files.get(source_file.name)) is not None
            and self._has_news(source_file, position)
            and not self._is_foreign(source_file)
            and divides(source_file, self._schema)
        ]
        return min((time for time in times if time is not None), default=None)

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """Reads the same bytes. Raises SourceError if a file was removed or has changed."""
        return Chunk.concat(
            _with_partition(
                name, self._portion_between(source_file, position, first).read.without(self._static)
            )
            for name, source_file, position, first in self._spans(start, end)
        )

    def _spans(self, start: Offset, end: Offset) -> Iterator[tuple[str, SourceFile, FilePosition, int]]:
        """The files with records between two offsets, each with its name then, its end position and start."""
        before, after = Positions.of(start).by_id, Positions.of(end)
        files = {matching.name: matching for matching in self._lookout.look(everything=True).files}
        inodes = {matching.inode: matching for matching in files.values()}
        for name, position in sorted(after.files.items(), key=lambda entry: arrival(entry[0])):
            first = before.get(position.id, FilePosition(position.id)).offset
            if first >= position.offset:
                continue
            candidates = (files.get(name), inodes.get(position.inode))
            matching = next((f for f in candidates if f is not None and position.matches(f)), None)
            if matching is None:  # the file was copied, then cut
                copies = (f for f in files.values() if f.size >= position.offset and position.matches_copy(f))
                matching = next(copies, None)
            if matching is None:
                raise SourceError(f"{self._root}: {name} is gone or has changed, and cannot be read again")
            yield name, matching, position, first

    def backlog(self, offset: Offset) -> Backlog:
        positions, _ = self._matcher.match(Positions.of(offset), self._lookout.look().files)
        files = [
            source_file for source_file in self._lookout.look().files if source_file.name in positions.files
        ]
        streams = [
            source_file
            for source_file in files
            if not (self._is_table(source_file) or self._is_foreign(source_file))
        ]
        unread_bytes = sum(
            source_file.size - positions.files[source_file.name].offset
            for source_file in streams
            if not source_file.whole
        )
        unread_files = sum(
            source_file.whole and not positions.files[source_file.name].done for source_file in streams
        )
        return Backlog(
            f"{unread_bytes:,} bytes behind" + (f" and {unread_files:,} whole files" if unread_files else "")
        )

    def close(self) -> None:
        self._whole.close()

    def _read_new(
        self, positions: Positions, files: Sequence[SourceFile], limit: int
    ) -> tuple[Chunk, dict[str, FilePosition]]:
        after = dict(positions.files)
        pending = self._pending(positions, files)
        parts: list[Chunk] = []
        for source_file, portion in self._portions(positions, pending, limit):
            position = positions.files[source_file.name]
            parts.append(_with_partition(source_file.name, portion.read.without(self._static)))
            if len(parts[-1]) < len(portion.read):
                self._notify_of_table(source_file)
            if portion.end != position.offset or portion.done:
                after[source_file.name] = position.after(
                    source_file, portion.end, done=portion.done, layout=portion.layout
                )
            elif not len(portion.read):
                self._exhausted[position.id] = source_file.state
        return Chunk.concat(parts), after

    def _portions(
        self, positions: Positions, pending: Sequence[SourceFile], limit: int
    ) -> list[tuple[SourceFile, FilePortion]]:
        """The next records of files, about ``limit`` in all, in the order of the files.

        Each file has an equal share. A file with fewer bytes comes first and leaves the rest of its share to
        the others: a poll that is not full means that nothing waits, so batches would not grow.
        """
        portions: dict[str, FilePortion] = {}
        remaining = limit
        by_size = sorted(pending, key=lambda file: file.size - positions.files[file.name].offset)
        for number, source_file in enumerate(by_size):
            share = max(1, -(-remaining // (len(by_size) - number)))
            portion = self._part(source_file, positions.files[source_file.name], share)
            portions[source_file.name] = portion
            remaining -= len(portion.read)
        return [(source_file, portions[source_file.name]) for source_file in pending]

    def _pending(self, positions: Positions, files: Sequence[SourceFile]) -> list[SourceFile]:
        """The files with new records of the stream."""
        for source_file in files:
            if self._is_table(source_file):
                self._notify_of_table(source_file)
        updated = [f for f in files if self._has_news(f, positions.files[f.name])]
        for source_file in updated:
            if self._is_foreign(source_file):
                self._notify(
                    f"{source_file.name} is skipped: its records name no relation, and no relation of schema"
                    f" {self._schema.name} has its name",
                    source_file.name,
                )
        return [f for f in updated if not self._is_foreign(f)]

    def _part(self, source_file: SourceFile, position: FilePosition, share: int) -> FilePortion:
        if not source_file.whole:
            return read_part(
                source_file, self._schema, position.offset, limit=share, layout=max(position.layout, 0)
            )
        try:
            return self._whole.part(position.id, source_file, position.offset, share)
        except SourceError as error:
            if position.offset:
                raise
            self._notify(f"{error}; reading it once it is complete", source_file.name)
            return FilePortion(NOTHING, 0)

    def _has_news(self, source_file: SourceFile, position: FilePosition) -> bool:
        if self._exhausted.get(position.id) == source_file.state:
            return False
        news = not position.done if source_file.whole else source_file.size > position.offset
        return news and not self._is_table(source_file)

    def _is_foreign(self, source_file: SourceFile) -> bool:
        """True for a file of the folder whose rows belong to no relation of the schema."""
        if source_file.named_relation is not None or source_file.path == self._root:
            return False
        if source_file.inode in self._foreign and self._foreign[source_file.inode] in (
            None,
            source_file.state,
        ):
            return self._foreign[source_file.inode] is not None
        try:
            has_relations = names_relations(source_file.path, source_file.format, self._schema, None)
        except SourceError:  # it is incomplete or cannot be read, which is reported where it is read
            return False
        if has_relations is not None:
            self._foreign[source_file.inode] = None if has_relations else source_file.state
        return has_relations is False

    def _portion_between(self, source_file: SourceFile, position: FilePosition, first: int) -> FilePortion:
        if source_file.whole:
            return WholeFiles(self._schema).part(position.id, source_file, first, position.offset - first)
        return read_part(source_file, self._schema, first, end=position.offset, layout=abs(position.layout))

    def _table_rows(self, chunk: Chunk) -> Chunk:
        """The rows of static tables among records of streams, which are read again with the bad records."""
        return Chunk(chunk.records.take(np.isin(chunk.records.relation, list(self._static))))

    def _is_table(self, source_file: SourceFile) -> bool:
        return source_file.named_relation in self._static and source_file.relation(self._schema) is not None

    def _notify_of_table(self, source_file: SourceFile) -> None:
        earlier_state = self._table_states.get(source_file.name)
        if earlier_state is not None and earlier_state != source_file.state:
            self._notify(
                f"{source_file.name} has changed; rows of static tables are read again only at the next"
                f" start; to follow new rows, {self._way_to_stream(source_file)}",
                source_file.name,
            )

    def _way_to_stream(self, source_file: SourceFile) -> str:
        """How the user can make the table of a file a stream."""
        relation = self._schema.relations[source_file.named_relation or 0]
        times = [each.name for each in relation.attributes if each.type is AttributeType.TIMESTAMP]
        if not times:
            return "give each row a time, in a column 'time', and leave out 'table: true' in the schema"
        return f"write 'time: {times[0]}' in the schema in place of 'table: true'"

    def _notify_missing(self, before: Positions, files: tuple[SourceFile, ...]) -> None:
        """Notify the user that all files are missing, each time that happens."""
        line = f"{self._root}: all files are gone; reading continues when they return"
        if before.files and not files:
            self._notify(line)
        else:
            self._past_notices.pop(line, None)

    def _failure(self, error: OSError | SourceError) -> SourceError:
        if isinstance(error, SourceError):
            return error
        return SourceError(f"{error.filename or self._root}: cannot read: {error.strerror}")

    def _notify(self, line: str, name: str = "") -> None:
        """Add a notice, unless it was given before, to the next batch or plan; ``name``: that of its file."""
        if line not in self._past_notices:
            self._past_notices[line] = name
            self._new_notices.append(line)

    def _forget_notices(self, listing: Listing) -> None:
        """Forget the notices of files that are gone, each time that the number of notices has doubled."""
        if len(self._past_notices) > self._most_past_notices:
            names = {"", *listing.unknown, *(source_file.name for source_file in listing.files)}
            self._past_notices = {line: name for line, name in self._past_notices.items() if name in names}
            self._most_past_notices = max(_FEW_NOTICES, 2 * len(self._past_notices))

    def _take_notices(self) -> list[str]:
        notices, self._new_notices = self._new_notices, []
        return notices


def _ended_partitions(
    before: Mapping[str, FilePosition], after: Mapping[str, FilePosition]
) -> frozenset[int]:
    """The partitions of whole files that are read to their ends between two positions, by name."""
    return frozenset(
        partition_of(name) for name, position in after.items() if position.done and not before[name].done
    )


def _with_partition(name: str, chunk: Chunk) -> Chunk:
    """A chunk of a file, with its partition; a file that replaces another one continues its partition."""
    return replace(chunk, partitions=np.full(len(chunk.records), partition_of(name), dtype=np.int64))


@lru_cache(maxsize=1 << 16)
def partition_of(name: str) -> int:
    """The partition number of a file, from its name: above 0, and the same in all processes."""
    return int.from_bytes(blake2b(name.encode(), digest_size=5).digest()) + 1


@dataclass(frozen=True)
class FilesSource(Source):
    """A growing file, or a directory of growing files to which others are added."""

    path: Path
    clock: Clock = field(default_factory=SystemClock, compare=False)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def divisible(self) -> bool:
        return True

    def open(self, schema: Schema) -> Feed:
        return FilesFeed(self.path, schema, self.clock)
