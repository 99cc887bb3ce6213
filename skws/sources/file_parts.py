"""Plans batches of files' new records without reading them, and divides them into parts for other processes.

JSON lines are divided at any byte, Parquet between row groups. A batch ends at one time in all files that are
in order: parallel files advance together, and consecutive files are read one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import accumulate, pairwise
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from skws.data.batch import Chunk, Record
from skws.data.value_conversion import EARLIEST
from skws.formats.files import Format, Split
from skws.formats.nested import has_nested
from skws.formats.parquet import parquet
from skws.formats.splits import chunks, read_split
from skws.sources.feed import FeedPart
from skws.sources.folder import FilePosition, SourceFile
from skws_schema.errors import SourceError
from skws_schema.model import Schema

_SAMPLE: Final = 64 << 10  # bytes of a sample for the length of lines
_BLOCK: Final = 64 << 10
ROW_BYTES: Final = 100
"""The weight of a row of Parquet, relative to a line of JSON."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_PROBES: Final = 256  # positions at which a plan reads the time of a record


@dataclass(frozen=True, slots=True)
class BatchContext:
    """How a file relates to the others of its batch.

    ``partition``: its number. ``static``: relations whose rows are left out. ``unread``: see
    ``FeedPart.until``.
    """

    partition: int
    static: frozenset[int]
    unread: int | None


@dataclass(frozen=True, slots=True)
class FilePart(FeedPart):
    """The records of ``split``. ``position``: the position after the batch.

    Since the plan, the file may have been renamed or replaced, so it is identified by its beginning, and not
    by numbers of the file system, which differ between machines.
    """

    split: Split
    position: FilePosition
    context: BatchContext

    @property
    def partition(self) -> int | None:
        return self.context.partition

    @property
    def may_grow(self) -> bool:
        return not self.position.done

    @property
    def until(self) -> int | None:
        return self.context.unread

    def read(self, schema: Schema) -> Iterator[Chunk]:
        path = self._path()
        for chunk in chunks(replace(self.split, path=path), schema):
            yield chunk.without(self.context.static)
        if not self._is_read_file(path):  # truncated or replaced since the plan
            raise self._change_error()

    def _path(self) -> Path:
        planned_path = self.split.path
        if self._is_read_file(planned_path):
            return planned_path
        try:
            return next(filter(self._is_read_file, sorted(planned_path.parent.iterdir())))
        except (StopIteration, OSError):
            raise self._change_error() from None

    def _is_read_file(self, path: Path) -> bool:
        try:
            return self.position.matches_at(path, whole=self.split.format is Format.PARQUET)
        except OSError:  # no file, or gone
            return False

    def _change_error(self) -> SourceError:
        return SourceError(
            f"{self.split.path} is gone or has changed since its records were planned, or a machine of the"
            " cluster does not have it at this path"
        )


def divides(source_file: SourceFile, schema: Schema) -> bool:
    """True if parts of the file can be read without the bytes before them. Raises SourceError."""
    if not source_file.whole:
        return source_file.format is Format.JSON_LINES
    # The number of records in nested rows is unknown.
    return (
        source_file.format is Format.PARQUET
        and source_file.named_relation is not None
        and not has_nested(schema, source_file.named_relation)
    )


class _Step(NamedTuple):
    """A range of a file: the time at its start, its approximate number of records, and its bounds.

    ``last``: its latest time, if the range can only be read as a whole and the file records this time.
    """

    time: int
    records: float
    file: str
    begin: int
    end: int
    last: int = EARLIEST


class Backlogs:
    """The unread records of files that can be divided, about ``records``. Raises SourceError, OSError."""

    def __init__(
        self, positions: Mapping[str, FilePosition], files: Sequence[SourceFile], schema: Schema
    ) -> None:
        self._positions = positions
        self._files = files
        self._schema = schema
        self._groups = {
            source_file.name: _row_groups(source_file.path) for source_file in files if source_file.whole
        }
        self._lines = {f.name: _line_bytes(f.path, positions[f.name].offset) for f in files if not f.whole}
        self.records = sum(map(self._unread_records, files))

    def ends(self, limit: int) -> dict[str, FilePosition]:
        """The positions after about ``limit`` records, at one time in all files.

        No unread record is earlier; otherwise it would be late.
        """
        last_steps: dict[str, _Step] = {}
        records, latest, stop_time = 0.0, EARLIEST, None
        # A step is considered once all earlier ones are used.
        for step in merge(
            *(self._steps(source_file, limit) for source_file in self._files), key=attrgetter("time")
        ):
            if records >= limit and step.time > latest:
                stop_time = step.time
                break
            last_steps[step.file] = step
            records, latest = records + step.records, max(latest, step.last)
        ends = {name: step.end for name, step in last_steps.items()}
        if stop_time is not None:
            for source_file in self._files:
                if not source_file.whole and source_file.name in last_steps:
                    ends[source_file.name] = _line_after(
                        source_file, self._schema, last_steps[source_file.name], stop_time
                    )
        return {
            source_file.name: self._positions[source_file.name].after(
                source_file, ends[source_file.name], done=self._is_done(source_file, ends)
            )
            for source_file in self._files
            if source_file.name in ends
        }

    def _is_done(self, source_file: SourceFile, ends: Mapping[str, int]) -> bool:
        return source_file.whole and ends[source_file.name] == self._groups[source_file.name][-1]

    def _unread_records(self, source_file: SourceFile) -> float:
        offset = self._positions[source_file.name].offset
        if source_file.whole:
            return self._groups[source_file.name][-1] - offset
        return (source_file.size - offset) / self._lines[source_file.name]

    def _steps(self, source_file: SourceFile, limit: int) -> Iterator[_Step]:
        """The steps of a file, up to a limit."""
        offset, time = self._positions[source_file.name].offset, EARLIEST
        if source_file.whole:
            ends = self._groups[source_file.name]
            times = _group_times(source_file, self._schema)
            for number, (begin, end) in enumerate(pairwise(ends)):
                if end > offset:
                    time = max(time, times[number][0])
                    yield _Step(
                        time, end - max(offset, begin), source_file.name, begin, end, times[number][1]
                    )
            if len(ends) == 1:
                yield _Step(time, 0, source_file.name, 0, 0)
            return
        line = self._lines[source_file.name]
        probes = max(2, _PROBES // len(self._files))
        size = max(1, min(source_file.size - offset, ceil(limit * line)) // probes)
        while (end := _line_end(source_file.path, offset, offset + size, source_file.size)) > offset:
            time = max(time, _time_at(source_file, self._schema, offset))
            yield _Step(time, (end - offset) / line, source_file.name, offset, end)
            offset = end


def first_unread(source_file: SourceFile, schema: Schema, position: FilePosition) -> int | None:
    """The time of the first record after a position; None if there is no record. Raises SourceError."""
    if not source_file.whole:
        return _first_time(
            source_file, schema, position.offset, min(position.offset + _SAMPLE, source_file.size)
        )
    if position.done:
        return None
    ends = _row_groups(source_file.path)
    group = next((number for number, end in enumerate(ends[1:]) if end > position.offset), None)
    return None if group is None else _group_times(source_file, schema)[group][0]


def last_read(source_file: SourceFile, schema: Schema, first: int, position: FilePosition) -> int | None:
    """The time of the last record between an offset and a position, if the file is in order.

    None if it is unknown: there is no good record near the position, or a Parquet file does not have the
    times of its row groups. Raises SourceError.
    """
    if not source_file.whole:
        begin = max(first, position.offset - _SAMPLE)
        return max(_times(source_file, schema, begin, position.offset), default=None)
    ends = _row_groups(source_file.path)[1:]
    times = [
        last
        for (_, last), end in zip(_group_times(source_file, schema), ends, strict=True)
        if first < end <= position.offset
    ]
    return max(times) if times and EARLIEST not in times else None


def _time_at(source_file: SourceFile, schema: Schema, offset: int) -> int:
    """The time of the record on the line at byte ``offset``; the least time if there is none."""
    time = _first_time(source_file, schema, offset, offset + 1)
    return EARLIEST if time is None else time


def _first_time(source_file: SourceFile, schema: Schema, start: int, end: int) -> int | None:
    """The time of the first record on the lines that begin between two bytes."""
    return next(_times(source_file, schema, start, end), None)


def _times(source_file: SourceFile, schema: Schema, start: int, end: int) -> Iterator[int]:
    """The times of the records on the lines that begin between two bytes."""
    split = Split(
        source_file.path, Format.JSON_LINES, source_file.relation(schema), start, end, end - start, 0
    )
    return (record.time for record in read_split(split, schema) if isinstance(record, Record))


def _line_after(source_file: SourceFile, schema: Schema, step: _Step, time: int) -> int:
    """The start of the first line of a step after a time, if the file is in order."""
    low, high = step.begin, step.end
    while True:  # the line at ``low`` is not later than the time, the one at ``high`` is
        middle = _line_end(source_file.path, low, (low + high) // 2, high)
        if middle >= high:
            middle = _line_end(source_file.path, low, low + 1, high)
            if middle >= high:
                return high
        if _time_at(source_file, schema, middle) > time:
            high = middle
        else:
            low = middle


def _group_times(source_file: SourceFile, schema: Schema) -> list[tuple[int, int]]:
    """The first and the last time of each row group, if the file has them."""
    assert source_file.named_relation is not None  # noqa: S101 - otherwise it cannot be divided
    name = schema.relations[source_file.named_relation].time or "time"
    with parquet().opened(source_file.path) as file:
        paths = [file.schema.column(index).path for index in range(len(file.schema))]
        column = next((index for index, path in enumerate(paths) if path == name), None)
        groups = range(file.num_row_groups)
        if column is None:
            return [(EARLIEST, EARLIEST)] * len(groups)
        statistics = [file.metadata.row_group(group).column(column).statistics for group in groups]
    return list(map(_bounds, statistics))


def _bounds(statistics: Any) -> tuple[int, int]:
    if statistics is None or not statistics.has_min_max:
        return EARLIEST, EARLIEST
    try:
        return _micros(statistics.min), _micros(statistics.max)
    except (OverflowError, ValueError):  # a time outside of the years 1 to 9999, whose record is bad
        return EARLIEST, EARLIEST


def _micros(time: object) -> int:
    if not isinstance(time, datetime):
        return EARLIEST
    return int(((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND)


def parts_of(
    source_file: SourceFile,
    schema: Schema,
    first: int,
    position: FilePosition,
    context: BatchContext,
    number: int,
) -> list[FilePart] | None:
    """At most ``number`` parts from ``first`` to a position; None if the file cannot be divided there.

    Raises SourceError.
    """
    path, relation, end = source_file.path.absolute(), source_file.relation(schema), position.offset
    if source_file.whole:
        ends = _row_groups(path)
        if first not in ends or end not in ends:
            return None
        first, end = ends.index(first), ends.index(end)
    number = max(1, min(number, end - first))
    bounds = [first + (end - first) * index // number for index in range(number + 1)]
    return [
        FilePart(Split(path, source_file.format, relation, begin, stop, stop - begin, 0), position, context)
        for begin, stop in pairwise(bounds)
        if begin < stop
    ]


def _row_groups(path: Path) -> list[int]:
    """The number of rows before each row group, and in total. Raises SourceError."""
    with parquet().opened(path) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return list(accumulate(sizes, initial=0))


def _line_bytes(path: Path, offset: int) -> float:
    """The length of a line near an offset."""
    with path.open("rb") as file:
        file.seek(offset)
        sample = file.read(_SAMPLE)
    return len(sample) / max(sample.count(b"\n"), 1) or 1.0


def _line_end(path: Path, start: int, target: int, size: int) -> int:
    """The end of the first whole line that ends at ``target`` or later, up to ``size``, or of the last line.

    A line without a line end is incomplete: the next poll checks whether it is a record.
    """
    with path.open("rb") as file:
        if target < size:
            file.seek(max(target - 1, start))
            line = file.readline()
            end = max(target - 1, start) + len(line)
            if line.endswith(b"\n") and end <= size:
                return end
        end = size
        while end > start:
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            line_end = file.read(end - begin).rfind(b"\n")
            if line_end >= 0:
                return begin + line_end + 1
            end = begin
    return start
