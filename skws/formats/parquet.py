"""Parquet files, by ranges of row groups; columns as in ``tabular``.

Timestamps and dates are instants, whatever their unit; other numbers are read
like the same numbers in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from skws.data.record import BadRecord, Record
from skws.formats.files import Advance, Split, ignore
from skws.formats.tabular import ColumnReader
from skws.formats.values import (
    Convert,
    MalformedError,
    conversion,
    shown,
    timestamp,
    within_calendar,
)
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Schema, Value

BATCH_ROWS = 8192
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """The file, to be read inside the ``with``. Raises SourceError if it is damaged or no Parquet."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: cannot read as Parquet: {str(error).splitlines()[0]}") from None


def columns(path: Path) -> list[str]:
    """The names of the columns. Raises SourceError."""
    with opened(path) as file:
        return list(file.schema_arrow.names)


def group_ranges(path: Path, split_bytes: int) -> list[tuple[int, int, int]]:
    """Ranges (first group, end, bytes) of row groups, each of at least ``split_bytes`` but for the last."""
    with opened(path) as file:
        total = path.stat().st_size
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    # Sizes of groups count uncompressed bytes; progress counts bytes on disk.
    share = [done * total // max(sum(sizes), 1) for done in accumulate(sizes, initial=0)]
    ranges, start = [], 0
    for end in range(1, len(share)):
        if share[end] - share[start] >= split_bytes or end == len(sizes):
            ranges.append((start, end, share[end] - share[start]))
            start = end
    return ranges


def read(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of the row groups of ``split``. Raises SourceError if the file is damaged."""
    with opened(split.path) as file:
        reading = _Reading(split, schema, file.schema_arrow)
        row = sum(file.metadata.row_group(i).num_rows for i in range(split.start))
        groups = range(split.start, split.end)
        for group in groups:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group]):
                yield from reading.items(batch, row)
                row += batch.num_rows
            advance(split.size // len(groups))
        advance(split.size % max(len(groups), 1))


class _Reading:
    def __init__(self, split: Split, schema: Schema, arrow: pa.Schema) -> None:
        self._source = str(split.path)
        self._names = list(arrow.names)
        self._types = list(arrow.types)
        self._flat = ColumnReader(schema, self._names, split.relation, self._conversion, self._time())

    def _conversion(self, column: int, attribute: Attribute) -> Convert:
        return _conversion(self._types[column], attribute.type)

    def _time(self) -> Callable[[Any], int]:
        kind = self._types[self._names.index("time")] if "time" in self._names else pa.string()
        return _instant(kind) or timestamp

    def items(self, batch: pa.RecordBatch, first: int) -> Iterator[Record | BadRecord]:
        """The records of ``batch``, whose first row is the ``first`` of the file."""
        values = [_python_values(column) for column in batch.columns]
        rows: Iterator[Sequence[Any]] = zip(*values, strict=True)
        record = self._flat.record
        for number, row in enumerate(rows, start=first):
            try:
                yield record(row)
            except MalformedError as error:
                yield BadRecord(self._source, 0, number, self._raw(row), str(error))

    def _raw(self, row: Sequence[Any]) -> bytes:
        present = {name: value for name, value in zip(self._names, row, strict=True) if value is not None}
        return orjson.dumps(present, default=repr)


def _python_values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _python_values(column.dictionary_decode())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        narrow = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        return _python_values(narrow.cast(pa.int64()))
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if numeric and column.null_count == 0:
        # A sixth of the time of to_pylist.
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _instant(kind: pa.DataType) -> Callable[[Any], int] | None:
    """The conversion of a temporal column's integers to microseconds; None for other columns."""
    if pa.types.is_date32(kind):
        return lambda days: within_calendar(days * 86_400_000_000, days)
    if pa.types.is_date64(kind):
        return lambda millis: within_calendar(millis * 1000, millis)
    if not pa.types.is_timestamp(kind):
        return None
    if kind.unit == "ns":
        return lambda nanos: nanos // 1000  # 64 bits of these stay in the calendar
    scale = _MICROS[kind.unit]
    return lambda units: within_calendar(units * scale, units)


def _conversion(kind: pa.DataType, wanted: AttributeType) -> Convert:
    """The conversion of Python values of an Arrow column to the type ``wanted``."""
    instant = _instant(kind)
    if instant is not None:
        return instant if wanted is AttributeType.TIMESTAMP else _refusing(wanted)
    if pa.types.is_decimal(kind):
        return _of_decimal(wanted)
    if any(is_kind(kind) for is_kind in (pa.types.is_binary, pa.types.is_large_binary)):
        return _of_bytes(wanted)

    def convert(value: Any) -> Value:
        return conversion(wanted, type(value))(value)

    return convert


def _refusing(wanted: AttributeType) -> Convert:
    return conversion(wanted, object)


def _of_decimal(wanted: AttributeType) -> Convert:
    """Decimals become integers if they are whole, else doubles."""

    def convert(value: Decimal) -> Value:
        if value == value.to_integral_value():
            return conversion(wanted, int)(int(value))
        return conversion(wanted, float)(float(value))

    return convert


def _of_bytes(wanted: AttributeType) -> Convert:
    def convert(value: bytes) -> Value:
        try:
            return conversion(wanted, str)(value.decode())
        except UnicodeDecodeError:
            raise MalformedError(f"not UTF-8: {shown(value)}") from None

    return convert
