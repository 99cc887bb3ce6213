"""Plain Parquet files (native types, in order of time) read as columns, from disk to engine.

Files of several relations are merged by time. Files that are not plain (other
types, deletions, missing attributes, times out of order) are left to the row
reader, which converts values or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skws.data.arrow import STORED, integers
from skws.data.batch import Ints, RecordBatch, Rows
from skws.data.blocks import ArrowBlock
from skws.formats.files import Advance, Split, ignore
from skws.formats.parquet import opened
from skws.formats.values import EARLIEST, LATEST
from skws_schema.model import AttributeType, Relation, Schema

READ_TOGETHER = 32_768  # rows, over all files
LEAST_ROWS = 256  # of one file

_TEXTS = {pa.string(), pa.large_string()}
_KINDS = {
    AttributeType.TEXT: _TEXTS,
    AttributeType.STRING: _TEXTS,
    AttributeType.INTEGER: {pa.int8(), pa.int16(), pa.int32(), pa.int64()},
    AttributeType.NUMBER: {pa.float32(), pa.float64()},
    AttributeType.BOOLEAN: {pa.bool_()},
}
_RANGED = {AttributeType.NUMBER, AttributeType.TIMESTAMP}


def plain(splits: Sequence[Split], schema: Schema) -> bool:
    """True if all files can be read as columns, whole, and each is in order of time."""
    parts: dict[Path, list[Split]] = {}
    for split in splits:
        parts.setdefault(split.path, []).append(split)
    return all(
        some[0].relation is not None and _is_plain(path, schema.relations[some[0].relation])
        for path, some in parts.items()
    )


def batches(splits: Sequence[Split], schema: Schema, advance: Advance = ignore) -> Iterator[RecordBatch]:
    """The records of plain files by time, in order of the files where times are equal."""
    files = list({split.path: split for split in splits}.values())
    sizes = [sum(split.size for split in splits if split.path == file.path) for file in files]
    rows = max(LEAST_ROWS, READ_TOGETHER // max(len(files), 1))
    cursors = [_Cursor(file, schema, rows, size, advance) for file, size in zip(files, sizes, strict=True)]
    while any(cursor.held for cursor in cursors):
        # Records up to the earliest end of a cursor are complete.
        bound = min((cursor.last for cursor in cursors if cursor.more), default=LATEST)
        parts = [part for cursor in cursors for part in cursor.take(bound)]
        if parts:
            yield _merged(parts)


def table_batches(path: Path, relation: Relation) -> Iterator[pa.RecordBatch] | None:
    """The rows of a table as columns, in the order of its attributes; None if the file is not plain."""
    names = [attribute.name for attribute in relation.attributes]
    ranged = [a.name for a in relation.attributes if a.type in _RANGED]
    with opened(path) as file:
        arrow = file.schema_arrow
        if sorted(arrow.names) != sorted(names) or not all(
            _fits(arrow.field(a.name).type, a.type) for a in relation.attributes
        ):
            return None
        for batch in file.iter_batches(1 << 16, columns=ranged) if ranged else ():
            if not all(map(_in_range, batch.columns)):
                return None
    return _stored_batches(path, relation, names)


def _stored_batches(path: Path, relation: Relation, names: list[str]) -> Iterator[pa.RecordBatch]:
    with opened(path) as file:
        for batch in file.iter_batches(1 << 16, columns=names):
            columns = [_stored(batch.column(a.name), a.type) for a in relation.attributes]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _is_plain(path: Path, relation: Relation) -> bool:
    with opened(path) as file:
        if not _has_plain_columns(file.schema_arrow, relation):
            return False
        time = relation.time or "time"
        checked = {time, *(a.name for a in relation.attributes if a.type in _RANGED)}
        last = EARLIEST
        for batch in file.iter_batches(1 << 16, columns=list(checked)):
            if batch.column(time).null_count:
                return False
            times = _integers(batch.column(time))
            in_order = len(times) == 0 or (times[0] >= last and bool((np.diff(times) >= 0).all()))
            plain_values = all(_in_range(batch.column(name)) for name in batch.schema.names)
            if not in_order or not plain_values:
                return False
            last = int(times[-1]) if len(times) else last
        return True


def _has_plain_columns(arrow: pa.Schema, relation: Relation) -> bool:
    """True if the columns are one of the native type for each attribute, and one for the time."""
    own = set() if relation.time else {"time"}
    named = [*own, *relation.columns]
    return (
        sorted(arrow.names) == sorted(named)
        and len(set(named)) == len(named)
        and _fits(arrow.field(relation.time or "time").type, AttributeType.TIMESTAMP)
        and all(_fits(arrow.field(a.name).type, a.type) for a in relation.attributes)
    )


def _fits(given: pa.DataType, wanted: AttributeType) -> bool:
    if wanted is AttributeType.TIMESTAMP:
        return bool(pa.types.is_timestamp(given)) and given.unit == "us"
    return given in _KINDS[wanted]


def _in_range(column: pa.Array) -> bool:
    """True if all numbers are finite and all timestamps in the calendar."""
    if pa.types.is_floating(column.type):
        return pc.all(pc.is_finite(column)).as_py() is not False
    found = pc.min_max(column.cast(pa.int64())).as_py()
    return found["min"] is None or (found["min"] >= EARLIEST and found["max"] <= LATEST)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one file, in order of time."""

    time: Ints
    block: ArrowBlock

    def cut(self, place: int) -> tuple[_Part, _Part]:
        return (
            _Part(self.time[:place], self.block.slice(0, place)),
            _Part(self.time[place:], self.block.slice(place, len(self.block))),
        )


class _Cursor:
    """Reads one file; ``held``: rows read but not yet taken."""

    def __init__(self, split: Split, schema: Schema, rows: int, size: int, advance: Advance) -> None:
        assert split.relation is not None  # noqa: S101 - plain files are of one relation
        self._number = split.relation
        self._relation = schema.relations[split.relation]
        self._parts = self._read(split.path, rows, size, advance)
        self.held: list[_Part] = []
        self.more = True
        self._fill()

    @property
    def last(self) -> int:
        """The time of the last row that was read."""
        return int(self.held[-1].time[-1])

    def take(self, bound: int) -> Iterator[_Part]:
        """The rows up to a time, which is at most ``last`` if there is more."""
        while self.more and self.last == bound:
            self._fill()
        held, self.held = self.held, []
        for part in held:
            taken, rest = part.cut(int(np.searchsorted(part.time, bound, side="right")))
            if len(taken.time):
                yield taken
            if len(rest.time):
                self.held.append(rest)
        if self.more and not self.held:
            self._fill()

    def _fill(self) -> None:
        part = next(self._parts, None)
        if part is None:
            self.more = False
        else:
            self.held.append(part)

    def _read(self, path: Path, rows: int, size: int, advance: Advance) -> Iterator[_Part]:
        with opened(path) as file:
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(rows):
                if batch.num_rows:
                    yield self._part(batch)
                    advance(size * batch.num_rows // total)

    def _part(self, batch: pa.RecordBatch) -> _Part:
        columns = [
            _stored(batch.column(batch.schema.get_field_index(a.name)), a.type)
            for a in self._relation.attributes
        ]
        time = batch.column(batch.schema.get_field_index(self._relation.time or "time"))
        return _Part(_integers(time), ArrowBlock(self._number, columns))


def _stored(column: pa.Array, kind: AttributeType) -> pa.Array:
    wanted = STORED[kind]
    return column if column.type == wanted else column.cast(wanted)


def _integers(time: pa.Array) -> Ints:
    return integers(time.cast(pa.int64()))


def _merged(parts: Sequence[_Part]) -> RecordBatch:
    time = np.concatenate([part.time for part in parts])
    sizes = [len(part.time) for part in parts]
    relation = np.repeat([part.block.relation for part in parts], sizes).astype(np.int64)
    block = np.repeat(np.arange(len(parts), dtype=np.int64), sizes)
    place = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
    order = np.argsort(time, kind="stable")
    rows = Rows(block[order], place[order], tuple(part.block for part in parts))
    return RecordBatch(relation[order], time[order], rows)
