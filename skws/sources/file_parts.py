"""New records of files, found without reading them: where a batch ends, and the parts that others read.

JSON lines divide at any byte, Parquet between its row groups. A batch ends at one time in all files, as far
as each is in order: of files side by side none is ahead, and files that follow each other are read so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import accumulate, chain, pairwise
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from skws.data.batch import Chunk, Record
from skws.data.values import EARLIEST
from skws.formats.files import Format, Split
from skws.formats.nested import has_nested
from skws.formats.splits import chunks, read_split
from skws.sources.feed import FeedPart
from skws.sources.folder import Position, SourceFile
from skws_schema.errors import SourceError
from skws_schema.model import Schema

_SAMPLE: Final = 64 << 10  # bytes, whose lines are as long as others
_BLOCK: Final = 64 << 10
ROW_BYTES: Final = 100
"""Of a row of Parquet, beside lines of JSON."""
_PROBES: Final = 256  # places where a plan looks at the time of a record


@dataclass(frozen=True, slots=True)
class FilePart(FeedPart):
    """The records of ``split`` but those of ``static`` relations. ``position``: behind the whole batch.

    Since the plan, the file may have been renamed, or another one have its name: so it is told by its
    beginning, not by numbers of the file system, which other machines may not know.
    """

    split: Split
    static: frozenset[int]
    position: Position

    @property
    def partition(self) -> int | None:
        return self.position.id + 1

    def read(self, schema: Schema) -> Iterator[Chunk]:
        path = self._path()
        for chunk in chunks(replace(self.split, path=path), schema):
            yield chunk.without(self.static)
        if not self._is_at(path):  # it was cut, or replaced, meanwhile
            raise self._gone()

    def _path(self) -> Path:
        planned = self.split.path
        try:
            return next(filter(self._is_at, chain((planned,), sorted(planned.parent.iterdir()))))
        except (StopIteration, OSError):
            raise self._gone() from None

    def _is_at(self, path: Path) -> bool:
        try:
            return self.position.holds_at(path, whole=self.split.format is Format.PARQUET)
        except OSError:  # no file, or gone
            return False

    def _gone(self) -> SourceError:
        return SourceError(f"{self.split.path} is gone or has changed since its records were planned")


def divides(found: SourceFile, schema: Schema) -> bool:
    """Whether parts of the file can be read without what is before them. Raises SourceError."""
    if not found.whole:
        return found.format is Format.JSON_LINES
    # Of nested rows nobody knows how many records they make.
    return found.format is Format.PARQUET and found.named is not None and not has_nested(schema, found.named)


class _Step(NamedTuple):
    """A stretch of a file: the time at which it begins, about how many records it has, and where it ends."""

    time: int
    records: float
    file: str
    end: int


class Backlogs:
    """What waits in files that all divide: ``records`` of them, about. Raises SourceError, OSError."""

    def __init__(
        self, positions: Mapping[str, Position], files: Sequence[SourceFile], schema: Schema
    ) -> None:
        self._positions = positions
        self._files = files
        self._schema = schema
        self._groups = {found.name: _row_groups(found.path) for found in files if found.whole}
        self._lines = {f.name: _line_bytes(f.path, positions[f.name].at) for f in files if not f.whole}
        self.records = sum(map(self._waiting, files))

    def ends(self, limit: int) -> dict[str, Position]:
        """The positions behind about ``limit`` records, at one time in all files."""
        ends: dict[str, int] = {}
        records = 0.0
        # A step is looked at when all before it are taken.
        for step in merge(*(self._steps(found, limit) for found in self._files), key=attrgetter("time")):
            if records >= limit:
                break
            ends[step.file] = step.end
            records += step.records
        return {
            found.name: self._positions[found.name].moved(
                found, ends[found.name], done=self._done(found, ends)
            )
            for found in self._files
            if found.name in ends
        }

    def _done(self, found: SourceFile, ends: Mapping[str, int]) -> bool:
        return found.whole and ends[found.name] == self._groups[found.name][-1]

    def _waiting(self, found: SourceFile) -> float:
        at = self._positions[found.name].at
        if found.whole:
            return self._groups[found.name][-1] - at
        return (found.size - at) / self._lines[found.name]

    def _steps(self, found: SourceFile, limit: int) -> Iterator[_Step]:
        """Of a file, as far as it may be read."""
        at, time = self._positions[found.name].at, EARLIEST
        if found.whole:
            ends = self._groups[found.name]
            times = _group_times(found, self._schema)
            for place, end in enumerate(ends[1:]):
                if end > at:
                    time = max(time, times[place])
                    yield _Step(time, end - max(at, ends[place]), found.name, end)
            if len(ends) == 1:
                yield _Step(time, 0, found.name, 0)
            return
        line = self._lines[found.name]
        size, number = min(found.size - at, ceil(limit * line)), max(2, _PROBES // len(self._files))
        for place in range(1, number + 1):
            end = _line_end(
                found.path, at, self._positions[found.name].at + size * place // number, found.size
            )
            if end > at:
                time = max(time, _time_at(found, self._schema, at))
                yield _Step(time, (end - at) / line, found.name, end)
                at = end


def _time_at(found: SourceFile, schema: Schema, at: int) -> int:
    """The time of the record on the line that begins at byte ``at``; before all others if there is none."""
    split = Split(found.path, Format.JSON_LINES, found.relation(schema), at, at + 1, 1, 0)
    first = next(read_split(split, schema), None)
    return first.time if isinstance(first, Record) else EARLIEST


def _group_times(found: SourceFile, schema: Schema) -> list[int]:
    """The first time of each row group, as far as the file knows."""
    from skws.formats.parquet import opened  # noqa: PLC0415 - Arrow is slow to import

    assert found.named is not None  # noqa: S101 - else it does not divide
    name = schema.relations[found.named].time or "time"
    with opened(found.path) as file:
        place = next((at for at, known in enumerate(file.schema.names) if known == name), None)
        groups = range(file.num_row_groups)
        if place is None:
            return [EARLIEST] * len(groups)
        known = [file.metadata.row_group(group).column(place).statistics for group in groups]
    firsts = [one.min if one is not None and one.has_min_max else None for one in known]
    return [_micros(first) if isinstance(first, datetime) else EARLIEST for first in firsts]


def _micros(time: datetime) -> int:
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1e6)


def parts_of(
    found: SourceFile, schema: Schema, first: int, position: Position, static: frozenset[int], number: int
) -> list[FilePart] | None:
    """From ``first`` to a position, so many at most; None if these do not divide the file.

    Raises SourceError.
    """
    path, relation, end = found.path.absolute(), found.relation(schema), position.at
    if found.whole:
        ends = _row_groups(path)
        if first not in ends or end not in ends:
            return None
        first, end = ends.index(first), ends.index(end)
    number = max(1, min(number, end - first))
    bounds = [first + (end - first) * place // number for place in range(number + 1)]
    return [
        FilePart(Split(path, found.format, relation, at, to, to - at, 0), static, position)
        for at, to in pairwise(bounds)
        if at < to
    ]


def _row_groups(path: Path) -> list[int]:
    """The numbers of rows before each row group, and of all. Raises SourceError."""
    from skws.formats.parquet import opened  # noqa: PLC0415 - Arrow is slow to import

    with opened(path) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return list(accumulate(sizes, initial=0))


def _line_bytes(path: Path, at: int) -> float:
    """How long a line is at a place."""
    with path.open("rb") as file:
        file.seek(at)
        sample = file.read(_SAMPLE)
    return len(sample) / max(sample.count(b"\n"), 1) or 1.0


def _line_end(path: Path, at: int, target: int, size: int) -> int:
    """The end of the first whole line that ends at ``target`` or later, up to ``size``; else of the last one.

    A line without a line end is not whole: whoever polls next looks whether it is a record.
    """
    with path.open("rb") as file:
        if target < size:
            file.seek(max(target - 1, at))
            line = file.readline()
            end = max(target - 1, at) + len(line)
            if line.endswith(b"\n") and end <= size:
                return end
        end = size
        while end > at:
            begin = max(at, end - _BLOCK)
            file.seek(begin)
            place = file.read(end - begin).rfind(b"\n")
            if place >= 0:
                return begin + place + 1
            end = begin
    return at
