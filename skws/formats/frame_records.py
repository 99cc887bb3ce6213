"""Data frames of a program as records: pandas, Polars, Arrow, or rows as dictionaries.

A frame is read like a Parquet file with bare rows of one relation: a column for each attribute, and ``time``
and ``op`` unless these are attributes. Columns that the schema does not name are left out.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from skws.data.batch import Chunk
from skws.data.value_conversion import LARGEST, Unreadable
from skws.formats.parquet_files import ArrowReader, python_values
from skws.formats.rows import Origins
from skws.formats.sampling import SampleRow, Samples
from skws_schema.errors import TOO_DEEP, UsageError, nearest
from skws_schema.model import AttributeType, Relation, Schema
from skws_schema.number_texts import digits

ROWS: Final = 32_768
"""The rows of a chunk."""
SAMPLED: Final = 10_000
"""The rows from which a schema is inferred."""
_RECORD_FIELDS: Final = ("time", "op")
_TEXTS: Final = {AttributeType.TEXT, AttributeType.STRING}
_MISSING: Final = {"NAType", "NaTType"}
"""The types of pandas' missing values, by name; pandas itself need not be installed."""
_MISFIT_ERRORS: Final = (TypeError, ValueError, OverflowError)
"""The errors that Arrow and pandas raise for values that do not fit in one column, besides ArrowException."""


def arrow_table(name: str, frame: Any) -> pa.Table:
    """The rows of a frame of Arrow, of pandas, of a library that exports Arrow, or of dictionaries.

    Polars and DuckDB export Arrow. Each column has a type that ``ArrowReader`` reads; values of any other
    type become texts. Raises UsageError for anything else, for two columns of one name, and for objects
    without a text.
    """
    table = _as_arrow(name, frame)
    for column, count in Counter(table.column_names).items():
        if count > 1:
            raise UsageError(f"{name}: {count} columns are called {column!r}")
    readable = {
        column: _readable(values) for column, values in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(readable) if readable else table


def _as_arrow(name: str, frame: Any) -> pa.Table:
    try:
        if isinstance(frame, pa.Table):
            return frame
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if hasattr(frame, "__dataframe__") and type(frame).__module__.startswith("pandas"):
            index_names = [
                level for level in frame.index.names if level is not None and level not in frame.columns
            ]
            frame = frame.reset_index(level=index_names) if index_names else frame
            labels = [str(label) for label in frame.columns]
            columns = [_of_series(name, label, frame.iloc[:, index]) for index, label in enumerate(labels)]
            return pa.Table.from_arrays(columns, names=labels)
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except (pa.ArrowException, *_MISFIT_ERRORS) as error:
        raise UsageError(f"{name}: {str(error).splitlines()[0]}") from None
    if isinstance(frame, Mapping):
        return _of_columns(name, frame)
    if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
        return _of_rows(name, frame)
    raise UsageError(
        f"{name}: expected a data frame (pandas, Polars, Arrow), rows as dictionaries, or a path;"
        f" found {type(frame).__name__}"
    )


def _of_columns(name: str, frame: Mapping[Any, Any]) -> pa.Table:
    columns = {}
    for label, values in frame.items():
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
            raise UsageError(
                f"{name}: expected the values of column {label!r} as a list, found {type(values).__name__}"
            )
        columns[str(label)] = _of_values(name, str(label), list(values))
    sizes = {len(values) for values in columns.values()}
    if len(sizes) > 1:
        raise UsageError(
            f"{name}: columns have {min(sizes):,} to {max(sizes):,} values; expected equal numbers"
        )
    return pa.table(columns)


def _of_rows(name: str, rows: Sequence[Any]) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"{name} row {number}: expected a dictionary, found {type(row).__name__}")
    labels = dict.fromkeys(label for row in rows for label in row)
    return pa.table({str(key): _of_values(name, str(key), [row.get(key) for row in rows]) for key in labels})


def _of_series(name: str, label: str, series: Any) -> pa.Array | pa.ChunkedArray:
    """A column of pandas, converted object by object if Arrow does not know its type or objects differ."""
    try:
        # Arrow converts these to their parts, not to texts
        if str(series.dtype).startswith(("interval", "period")):
            return _of_values(name, label, series.tolist())
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, *_MISFIT_ERRORS):
        return _of_values(name, label, series.tolist())


def _of_values(name: str, label: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, *_MISFIT_ERRORS):
        pass
    try:
        plain_values = [_plain_value(name, label, number, value) for number, value in enumerate(values)]
        try:
            return pa.array(plain_values, from_pandas=True)
        except (pa.ArrowException, *_MISFIT_ERRORS):
            return pa.array(list(map(_text, plain_values)), pa.string())
    except (TypeError, ValueError) as error:  # a lone surrogate, an integer of thousands of digits
        raise UsageError(f"{name}: {label}: {error}") from None
    except RecursionError:
        raise UsageError(f"{name}: {label}: {TOO_DEEP}") from None


def _plain_value(name: str, label: str, row: int, value: Any) -> Any:
    """A value of a type that Arrow has, or the text of any other.

    Raises UsageError for objects without a text.
    """
    if isinstance(value, Enum):
        value = value.value
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # a value of NumPy
        value = value.tolist()
    if value is None or type(value).__name__ in _MISSING:
        return None
    match value:
        case bool() | int() | float() | str() | bytes() | Decimal() | date() | time() | timedelta():
            return value
        case bytearray() | memoryview():
            return bytes(value)
        case Mapping():
            return {str(key): _plain_value(name, label, row, inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain_value(name, label, row, inner) for inner in value]
    return _text_of(name, label, row, value)


def _text_of(name: str, label: str, row: int, value: object) -> str:
    if type(value).__repr__ is object.__repr__ and type(value).__str__ is object.__str__:
        raise UsageError(f"{name} row {row}: {label}: expected a value, found {type(value).__name__}")
    return str(value)


def _text(value: Any) -> str | None:
    """A value as text, because its column also has values of other types."""
    match value:
        case None | str():
            return value
        case float() if not isfinite(value):
            return None
        case bytes():
            return value.decode(errors="replace")
        case bool() | list() | dict() | tuple():
            return orjson.dumps(value, default=_text, option=orjson.OPT_NON_STR_KEYS).decode()
        case date() | time():
            return value.isoformat()
    return digits(value) if isinstance(value, Decimal) else str(value)


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column converted to a type that ``ArrowReader`` reads."""
    for is_kind, conversion in _CONVERSIONS:
        if is_kind(column.type):
            return conversion(column)
    return column


def _decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _readable(column.cast(column.type.value_type))


def _storage_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type.storage_type
    return _readable(pa.chunked_array([chunk.storage for chunk in column.chunks], kind))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(map(_text, column.to_pylist()), pa.string())])


def _signed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64() if (pc.max(column).as_py() or 0) <= LARGEST else pa.string())


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


_Conversion: TypeAlias = Callable[[pa.ChunkedArray], pa.ChunkedArray]
_CONVERSIONS: Final[tuple[tuple[Callable[[pa.DataType], bool], _Conversion], ...]] = (
    (pa.types.is_dictionary, _decode_dictionary),
    (_is_uuid, _texts),
    (lambda kind: isinstance(kind, pa.BaseExtensionType), _storage_column),
    (pa.types.is_float16, lambda column: column.cast(pa.float32())),
    (pa.types.is_uint64, _signed),
    (pa.types.is_interval, _texts),
)
"""Conversions of types that ``ArrowReader`` does not read; the first that fits is used."""


def frame_chunks(table: pa.Table, relation: int, schema: Schema, time: int = 0) -> Iterator[Chunk]:
    """The rows of a relation's frame, in order; bad rows are separate, named by relation and row.

    ``time``: the time of rows of a stream if the frame has no times, in microseconds.
    """
    definition = schema.relations[relation]
    if definition.table and "op" in table.column_names and "op" not in definition.columns:
        raise UsageError(f"{definition.name}: a column op needs times, and a static table has none")
    nested = schema.nested.get(definition.name, ())
    arrays = {schema.relations[position].path.partition(".")[0] for position in nested}
    table = _select_columns(table, definition, arrays, time)
    reader = ArrowReader(definition.name, relation, schema, table.schema)
    first = 0
    for batch in table.combine_chunks().to_batches(ROWS):
        yield reader.chunk(batch, first)
        first += batch.num_rows


def missing_columns(columns: Collection[str], relation: Relation) -> list[str]:
    """A line for each attribute without a column in a frame."""
    origins = Origins(relation)
    unused = [
        column for column in columns if column not in origins.known_names and column not in _RECORD_FIELDS
    ]
    return [
        f"no row of {relation.name} has {attribute.column!r}{nearest(attribute.column, unused)}"
        for attribute, location in zip(relation.attributes, origins.columns(columns), strict=True)
        if location is None
    ]


def has_time(columns: Collection[str], relation: Relation) -> bool:
    """True if rows of a frame with these columns have times."""
    if relation.time is None:
        return "time" in columns and "time" not in relation.columns
    return Origins(relation).columns(columns)[relation.columns[relation.time]] is not None


def sampled_columns(name: str, table: pa.Table) -> dict[str, list[object]]:
    """The columns of the first rows, from which a schema is inferred; nested objects by their paths.

    Columns of bytes that are not text are left out, with a warning.
    """
    first_rows = table.slice(0, SAMPLED)
    columns = {column: python_values(first_rows.column(column)) for column in first_rows.column_names}
    for column in [column for column, values in columns.items() if any(isinstance(v, bytes) for v in values)]:
        warnings.warn(f"{name}.{column} has bytes that are not text, so it is left out", stacklevel=5)
        del columns[column]
    samples = Samples()
    for row in zip(*columns.values(), strict=True):
        samples.add("", SampleRow(None, dict(zip(columns, map(_sample_value, row), strict=True))))
    return samples.tables().get("", {column: [] for column in columns})


def _sample_value(value: object) -> object:
    if isinstance(value, Unreadable):
        return None
    # pandas stores whole numbers as floats if there are NULLs.
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        return int(value)
    return value


def _select_columns(table: pa.Table, relation: Relation, arrays: Collection[str], time: int) -> pa.Table:
    """The columns that are read. Whole floats become integers, as pandas has no integers beside NULL.

    ``arrays``: columns with rows of other relations.
    """
    record_fields = (
        [] if relation.table else [name for name in _RECORD_FIELDS if name not in relation.columns]
    )
    known_names = Origins(relation).known_names
    used_columns = [
        name for name in table.column_names if name in known_names or name in record_fields or name in arrays
    ]
    table = table.select(used_columns)
    for attribute in relation.attributes:
        if attribute.column not in used_columns:
            continue
        column = table.column(attribute.column)
        index = table.column_names.index(attribute.column)
        if pa.types.is_floating(column.type) and attribute.type is not AttributeType.NUMBER:
            column = pc.if_else(pc.is_finite(column), column, None)  # NaN counts as missing
            table = table.set_column(index, attribute.column, column)
        if attribute.type in _TEXTS and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            table = table.set_column(index, attribute.column, column.cast(pa.string()))
        elif attribute.type is AttributeType.INTEGER and _is_whole(column):
            table = table.set_column(index, attribute.column, column.cast(pa.int64()))
    if not relation.table and not has_time(table.column_names, relation):
        table = table.append_column("time", pa.array([time] * len(table), pa.timestamp("us")))
    return table


def _is_whole(column: pa.ChunkedArray) -> bool:
    """True if the column has floats that are all integers of 64 bits."""
    if not pa.types.is_floating(column.type):
        return False
    is_whole = pc.and_(pc.equal(pc.round(column), column), pc.less(pc.abs(column), float(LARGEST)))
    return pc.all(is_whole).as_py() is not False
