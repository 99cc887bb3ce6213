"""Parquet files, read as columns if they are plain, otherwise row by row.

A plain file has columns of native types in order of time, and goes from disk to engine as columns; files of
several relations are merged by time. Any other file (other types, deletions, missing attributes, times out of
order) is read by ranges of row groups, with columns as in ``tabular``: values are converted, or the record is
bad. Timestamps and dates are instants in any unit; other numbers are read like the same numbers in JSON.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skws.data.arrow import STORED, integers, numbers
from skws.data.arrow_blocks import ArrowBlock
from skws.data.batch import BadRecord, Chunk, Ints, Record, RecordBatch, TimedPart, merge_by_time
from skws.data.value_conversion import (
    EARLIEST,
    LATEST,
    Convert,
    MalformedError,
    Unreadable,
    conversion,
    of_calendar,
    timestamp,
)
from skws.formats.bare_columns import BareColumns
from skws.formats.files import Advance, Split, ignore
from skws.formats.nested import NestedReader, as_json, has_nested
from skws.formats.rows import has_origins
from skws.formats.tabular import ColumnReader
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Relation, Schema, Value
from skws_schema.number_texts import digits

BATCH_ROWS = 8192
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """The file, to be read inside the ``with``. Raises SourceError if it is damaged or not Parquet."""
    try:
        with pq.ParquetFile(path) as file:
            repeated = next(
                (name for name, count in Counter(file.schema_arrow.names).items() if count > 1), None
            )
            if repeated is not None:
                raise SourceError(f"{path}: two columns are called {repeated!r}; rename one of them")
            yield file
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: cannot read as Parquet: {str(error).splitlines()[0]}") from None
    except UnicodeDecodeError:  # invalid texts are handled when they are read
        raise SourceError(f"{path}: cannot read as Parquet: the name of a column is not UTF-8") from None


def columns(path: Path) -> list[str]:
    """The names of the columns. Raises SourceError."""
    with opened(path) as file:
        return list(file.schema_arrow.names)


def group_ranges(path: Path, split_bytes: int) -> list[tuple[int, int, int]]:
    """Ranges (first group, end, bytes) of row groups, each of at least ``split_bytes`` except the last."""
    with opened(path) as file:
        total = path.stat().st_size
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    # Sizes of groups count uncompressed bytes; progress counts bytes on disk.
    offsets = [size * total // max(sum(sizes), 1) for size in accumulate(sizes, initial=0)]
    ranges, start = [], 0
    for end in range(1, len(offsets)):
        if offsets[end] - offsets[start] >= split_bytes or end == len(sizes):
            ranges.append((start, end, offsets[end] - offsets[start]))
            start = end
    return ranges


def read(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of the row groups of ``split``. Raises SourceError if the file is damaged."""
    for reader, batch, row in _read(split, schema, BATCH_ROWS, advance):
        yield from reader.items(batch, row)


def chunks(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Chunk]:
    """Like ``read``, many records at a time, and as columns if they are plain."""
    for reader, batch, row in _read(split, schema, READ_TOGETHER, advance):
        yield reader.chunk(batch, row)


def _read(
    split: Split, schema: Schema, rows: int, advance: Advance
) -> Iterator[tuple[ArrowReader, pa.RecordBatch, int]]:
    with opened(split.path) as file:
        reader = ArrowReader(str(split.path), split.relation, schema, file.schema_arrow)
        row = sum(file.metadata.row_group(i).num_rows for i in range(split.start))
        groups = range(split.start, split.end)
        for group in groups:
            for batch in file.iter_batches(rows, row_groups=[group]):
                yield reader, batch, row
                row += batch.num_rows
            advance(split.size // len(groups))
        advance(split.size % max(len(groups), 1))


class ArrowReader:
    """Reads rows of Arrow batches with the columns of ``arrow``; values are converted one by one.

    ``source``: the name of their origin in bad records. ``relation``: the position of the relation of bare
    rows; None if a column names the relation of each row.
    """

    def __init__(self, source: str, relation: int | None, schema: Schema, arrow: pa.Schema) -> None:
        self._source = source
        self._number = relation or 0
        bare_relation = None if relation is None else schema.relations[relation]
        nested = relation is not None and has_nested(schema, relation)
        self._nested = NestedReader(schema, self._number, Path(source).name) if nested else None
        plain = (
            bare_relation is not None
            and not (bare_relation.table or nested)
            and _has_plain_columns(arrow, bare_relation)
        )
        self._relation = bare_relation if plain else None
        self._columns = None if relation is None else BareColumns(schema, relation, arrow.names)
        self._names = list(arrow.names)
        self._types = list(arrow.types)
        self._row_reader = ColumnReader(schema, self._names, relation, self._conversion, self._time())

    def _conversion(self, column: int, attribute: Attribute) -> Convert:
        return _conversion(self._types[column], attribute.type)

    def _time(self) -> Callable[[Any], int]:
        kind = self._types[self._names.index("time")] if "time" in self._names else pa.string()
        return _instant(kind) or timestamp

    def items(self, batch: pa.RecordBatch, first: int) -> Iterator[Record | BadRecord]:
        """The records of ``batch``, whose first row is row number ``first`` of the file."""
        if self._nested is not None:
            yield from self._nested_items(self._nested, batch, first)
            return
        values = [_python_values(column) for column in batch.columns]
        rows: Iterator[Sequence[Any]] = zip(*values, strict=True)
        record = self._row_reader.record
        for number, row in enumerate(rows, start=first):
            try:
                yield record(row)
            except MalformedError as error:
                yield BadRecord(self._source, 0, number, self._raw(row), str(error))
        yield from self._row_reader.notes(self._source)

    def _nested_items(
        self, reader: NestedReader, batch: pa.RecordBatch, first: int
    ) -> Iterator[Record | BadRecord]:
        """The records of rows with further rows in their arrays, as in JSON lines."""
        for number, row in enumerate(zip(*map(python_values, batch.columns), strict=True), start=first):
            try:
                fields = dict(zip(self._names, row, strict=True))
                nonjson = {
                    name: value for name, value in fields.items() if isinstance(value, bytes | Unreadable)
                }
                item = as_json({name: value for name, value in fields.items() if name not in nonjson})
                bad = partial(BadRecord, self._source, 0, number)
                yield from reader.records(item | nonjson, number, bad)
            except MalformedError as error:
                yield BadRecord(self._source, 0, number, self._raw(row), str(error))
        yield from reader.notes(self._source)

    def chunk(self, batch: pa.RecordBatch, first: int) -> Chunk:
        """Like ``items``, as columns if all rows are plain."""
        relation = self._relation
        if relation is not None and _has_plain_values(batch.select(_checked_columns(relation)), relation):
            with suppress(pa.ArrowInvalid):  # a text is not UTF-8
                return Chunk(columns_batch(batch, self._number, relation))
        if self._columns is not None and self._columns.usable and len(batch):
            records = self._columns.batch(batch.columns)
            if records is not None:
                return Chunk(records, self._columns.notes(self._source))
        return Chunk.of(self.items(batch, first))

    def _raw(self, row: Sequence[Any]) -> bytes:
        present = {name: value for name, value in zip(self._names, row, strict=True) if value is not None}
        return orjson.dumps(present, default=_to_text)


def _to_text(value: object) -> str:
    return digits(value) if isinstance(value, Decimal) else repr(value)


def _python_values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _python_values(column.dictionary_decode())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        int_column = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        return _python_values(int_column.cast(pa.int64()))
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if numeric and column.null_count == 0:
        # A sixth of the time of to_pylist.
        return numbers(column).tolist()  # type: ignore[no-any-return]
    return python_values(column)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as in JSON, for inference and reader alike.

    A text that is not UTF-8 becomes ``Unreadable`` or bytes.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # Arrow does not check values when it reads them
        values = [_python_value(value) for value in column]
    return values if _is_native(column.type) else list(map(json_value, values))


def _is_native(kind: pa.DataType) -> bool:
    """True if JSON has such values: texts (but not bytes), numbers (but not decimals), true and false."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )


def json_value(value: Any) -> Any:
    """A Python value as in JSON.

    Dates and times become ISO 8601, durations seconds, maps objects, and bytes texts if they are UTF-8.
    Decimals are unchanged, since JSON's numbers would lose digits.
    """
    if isinstance(value, dict):
        return {str(json_value(name)): json_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        is_map = value and isinstance(value[0], tuple)
        return json_value(dict(value)) if is_map else list(map(json_value, value))
    kind = next((kind for kind in _AS_JSON if isinstance(value, kind)), None)
    return value if kind is None else _AS_JSON[kind](value)


def _text_if_valid(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


_AS_JSON: dict[type, Callable[[Any], Any]] = {
    date: lambda moment: moment.isoformat(),  # includes timestamps
    time: time.isoformat,
    timedelta: timedelta.total_seconds,
    bytes: _text_if_valid,
}


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        kind = value.type
    if pa.types.is_struct(kind):
        return {name: _python_value(inner) for name, inner in value.items()}
    if any(is_kind(kind) for is_kind in _LISTS):
        return [_python_value(inner) for inner in value.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.as_buffer().to_pybytes()
    try:
        return Unreadable(value.cast(pa.string()).as_py())
    except (pa.ArrowException, ValueError):
        return Unreadable(f"a value of type {kind}")


def _instant(kind: pa.DataType) -> Callable[[Any], int] | None:
    """The conversion of a temporal column's integers to microseconds; None for other columns."""
    if pa.types.is_date32(kind):
        return lambda days: of_calendar(days * 86_400_000_000)
    if pa.types.is_date64(kind):
        return lambda millis: of_calendar(millis * 1000)
    if not pa.types.is_timestamp(kind):
        return None
    if kind.unit == "ns":
        return lambda nanos: nanos // 1000  # 64 bits of nanoseconds are within the calendar
    scale = _MICROS[kind.unit]
    return lambda units: of_calendar(units * scale)


def _conversion(kind: pa.DataType, target: AttributeType) -> Convert:
    """The conversion of Python values of an Arrow column to the type ``target``."""
    instant = _instant(kind)
    if instant is not None:
        return instant if target is AttributeType.TIMESTAMP else _refusal_conversion(target, instant)

    def convert(value: Any) -> Value:
        return conversion(target, type(value))(value)

    return convert


def _refusal_conversion(target: AttributeType, instant: Callable[[Any], int]) -> Convert:
    """Refuses times, but accepts missing ones, since a column without values has no known type."""
    refuse = conversion(target, object)

    def convert(value: Any) -> Value:
        instant(value)
        return refuse(value)

    return convert


READ_TOGETHER = 32_768  # rows in total, over all files
LEAST_ROWS = 256  # rows of one file

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
    files = {split.path: split.relation for split in splits}
    return all(
        number is not None and not has_nested(schema, number) and _is_ordered(path, schema.relations[number])
        for path, number in files.items()
    )


def batches(
    splits: Sequence[Split],
    schema: Schema,
    advance: Advance = ignore,
    read_together: int = READ_TOGETHER,
    least_rows: int = LEAST_ROWS,
) -> Iterator[RecordBatch]:
    """The records of plain files by time, and by file if times are equal.

    ``read_together``: the rows of all files that are read at a time, with at least ``least_rows`` of each.
    """
    sizes: Counter[tuple[Path, int]] = Counter()
    for split in splits:
        sizes[split.path, split.relation or 0] += split.size
    rows = max(least_rows, read_together // max(len(sizes), 1))

    def read(file_number: int, path: Path, number: int, size: int) -> Iterator[TimedPart]:
        with opened(path) as file:
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(rows):
                if batch.num_rows:
                    records = columns_batch(batch, number, schema.relations[number])
                    yield records.time.item(0), file_number, records
                    advance(size * batch.num_rows // total)

    parts = [read(file_number, *file, size) for file_number, (file, size) in enumerate(sizes.items())]
    return merge_by_time(heapq.merge(*parts, key=itemgetter(0)))


def columns_batch(batch: pa.RecordBatch, number: int, relation: Relation) -> RecordBatch:
    """Plain rows of the relation at position ``number``, as columns. Raises ArrowInvalid."""
    columns = [_to_stored(batch.column(a.name), a.type) for a in relation.attributes]
    return RecordBatch.of_block(ArrowBlock(number, columns), _times(batch, relation))


def table_batches(path: Path, relation: Relation) -> Iterator[pa.RecordBatch] | None:
    """The rows of a table as columns, in the order of its attributes; None if the file is not plain."""
    names = [attribute.name for attribute in relation.attributes]
    ranged = [a.name for a in relation.attributes if a.type in _RANGED]
    with opened(path) as file:
        if not _has_attributes(file.schema_arrow, relation, names):
            return None
        for batch in file.iter_batches(1 << 16, columns=ranged) if ranged else ():
            if not all(map(_in_range, batch.columns)):
                return None
    return _stored_batches(path, relation, names)


def _stored_batches(path: Path, relation: Relation, names: list[str]) -> Iterator[pa.RecordBatch]:
    with opened(path) as file:
        for batch in file.iter_batches(1 << 16, columns=names):
            columns = [_to_stored(batch.column(a.name), a.type) for a in relation.attributes]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _is_ordered(path: Path, relation: Relation) -> bool:
    """True if a file is plain, and in order of time."""
    last = EARLIEST
    with opened(path) as file:
        if not _has_plain_columns(file.schema_arrow, relation):
            return False
        for batch in file.iter_batches(1 << 16, columns=_checked_columns(relation)):
            if not _has_plain_values(batch, relation):
                return False
            times = np.concatenate([[last], _times(batch, relation)])
            if (np.diff(times) < 0).any():
                return False
            last = times[-1]
    return True


def _checked_columns(relation: Relation) -> list[str]:
    """The columns whose values may not be plain."""
    return sorted({relation.time or "time", *(a.name for a in relation.attributes if a.type in _RANGED)})


def _has_plain_values(batch: pa.RecordBatch, relation: Relation) -> bool:
    """True if all rows have a time, and no value is out of range."""
    return not batch.column(relation.time or "time").null_count and all(map(_in_range, batch.columns))


def _has_plain_columns(arrow: pa.Schema, relation: Relation) -> bool:
    """True if there is a column of the native type for each attribute, and one for the time."""
    time = relation.time or "time"
    time_names = [] if relation.time else [time]
    names = [*time_names, *relation.columns]
    return _has_attributes(arrow, relation, names) and _fits(arrow.field(time).type, AttributeType.TIMESTAMP)


def _has_attributes(arrow: pa.Schema, relation: Relation, names: Sequence[str]) -> bool:
    """True if the columns have these names, each once, and native types of the attributes."""
    return (
        not has_origins(relation)
        and sorted(arrow.names) == sorted(names)
        and len(set(names)) == len(names)
        and all(_fits(arrow.field(a.name).type, a.type) for a in relation.attributes)
    )


def _fits(actual: pa.DataType, target: AttributeType) -> bool:
    if target is AttributeType.TIMESTAMP:
        return bool(pa.types.is_timestamp(actual)) and actual.unit == "us"
    return actual in _KINDS[target]


def _in_range(column: pa.Array) -> bool:
    """True if all numbers are finite and all timestamps in the calendar."""
    if pa.types.is_floating(column.type):
        return pc.all(pc.is_finite(column)).as_py() is not False
    extremes = pc.min_max(column.cast(pa.int64())).as_py()
    return extremes["min"] is None or (extremes["min"] >= EARLIEST and extremes["max"] <= LATEST)


def _to_stored(column: pa.Array, kind: AttributeType) -> pa.Array:
    """The column in the type of blocks. Raises ArrowInvalid for a text that is not UTF-8."""
    stored_type = STORED[kind]
    values = column if column.type == stored_type else column.cast(stored_type)
    if stored_type == pa.string():
        values.validate(full=True)
    return values


def _times(batch: pa.RecordBatch, relation: Relation) -> Ints:
    return integers(batch.column(relation.time or "time").cast(pa.int64()))
