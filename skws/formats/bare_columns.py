"""Reads bare rows of one relation from whole Arrow columns, if all values have a usual form.

Otherwise the rows are read one by one, which gives the same records, and the reasons why some are bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skws.data.arrow import filled, flags, of_integers, of_texts
from skws.data.batch import BadRecord, Ints, RecordBatch
from skws.data.blocks import ColumnBlock, Nullable, Values
from skws.data.texts import Texts
from skws.data.value_conversion import EARLIEST, LATEST
from skws.formats.nested import has_nested
from skws.formats.rows import FLAT, Origins, RowReader
from skws_schema.model import AttributeType, Schema

_TEXTS: Final = (AttributeType.TEXT, AttributeType.STRING)
_DIGITS: Final = r"^-?[0-9]{1,18}$"
_SECONDS: Final = r"^-?[0-9]{1,12}$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INSTANT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_NAIVE: Final = _INSTANT + "$"
_ZONED: Final = _INSTANT + r"(Z|[+-][0-9]{2}(:[0-9]{2})?)$"
_TRUE: Final = of_texts(Texts.of([["true", "t", "1", "yes"]]))
_FALSE: Final = of_texts(Texts.of([["false", "f", "0", "no"]]))
_SECOND: Final = 1_000_000
_UNITS: Final = {"s": _SECOND, "ms": 1_000, "us": 1}


class BareColumns:
    """Reads rows of the relation at a position of ``schema`` from columns with these names.

    ``usable``: False if rows with these columns never have a usual form.
    """

    def __init__(self, schema: Schema, relation: int, names: Sequence[str]) -> None:
        self._reader = RowReader(schema, relation)
        definition = self._reader.relation
        origins = Origins(definition)
        record_fields = {"time", "op", *FLAT}.difference(origins.known_names).intersection(names)
        indices = {name: index for index, name in enumerate(names) if name not in record_fields}
        locations = origins.columns(indices)
        missing = {
            a.name for a, location in zip(definition.attributes, locations, strict=True) if location is None
        }
        self._indices = [None if location is None else indices[location[0]] for location in locations]
        used_names = {location[0] for location in locations if location is not None}
        self._unknown_columns = [(index, name) for name, index in indices.items() if name not in used_names]
        self._time = (
            names.index("time") if "time" in record_fields and self._reader.takes_record_time else None
        )
        self.usable = (
            len(set(names)) == len(names)
            and record_fields <= {"time"}
            and definition.source is None
            and not has_nested(schema, relation)
            and all(location is None or location[1] is None for location in locations)
            and bool(used_names)
            and missing.isdisjoint(self._reader.required_names(delete=False))
            and (self._time is not None or not self._reader.takes_record_time)
        )

    def batch(self, columns: Sequence[pa.Array]) -> RecordBatch | None:
        """The records of rows in these columns; None if a value is unusual."""
        size = len(columns[0])
        values_by_column: list[Values] = []
        for index, attribute in zip(self._indices, self._reader.relation.attributes, strict=True):
            column = pa.nulls(size) if index is None else typed(columns[index], attribute.type)
            if column is None:
                return None
            values_by_column.append(block_values(column))
        times = self._times(columns, values_by_column, size)
        if times is None or not self._skip_unknown(columns):
            return None
        search_columns = frozenset(self._reader.relation.search_columns)
        return RecordBatch.of_block(ColumnBlock(self._reader.index, values_by_column, search_columns), times)

    def notes(self, source: str) -> list[BadRecord]:
        """Notes on the values passed over since the last call."""
        return list(self._reader.notes(source))

    def _times(
        self, columns: Sequence[pa.Array], values_by_column: Sequence[Values], size: int
    ) -> Ints | None:
        if self._reader.table:
            return np.zeros(size, dtype=np.int64)
        if self._reader.time_column is not None:
            times = values_by_column[self._reader.time_column]
        else:
            assert self._time is not None  # noqa: S101 - otherwise it is not usable
            column = typed(columns[self._time], AttributeType.TIMESTAMP)
            times = [] if column is None else block_values(column)
        return times if isinstance(times, np.ndarray) and len(times) == size else None

    def _skip_unknown(self, columns: Sequence[pa.Array]) -> bool:
        """Count the values of columns that the relation lacks; False if the schema refuses such values."""
        unknown = [
            (name, size) for index, name in self._unknown_columns if (size := _value_count(columns[index]))
        ]
        if unknown and self._reader.fails:
            return False
        for name, size in unknown:
            self._reader.unknown(name, size)
        return True


def _value_count(column: pa.Array) -> int:
    return len(column) - int(column.null_count)


def typed(column: pa.Array, kind: AttributeType) -> pa.Array | None:
    """The values of a column as those of an attribute of type ``kind``, times in microseconds.

    None if a value is unusual, although it may be valid.
    """
    if pa.types.is_dictionary(column.type):
        return typed(column.dictionary_decode(), kind)
    if pa.types.is_null(column.type):
        return column
    kind_test = next((is_kind for is_kind in _CONVERSIONS if is_kind(column.type)), None)
    try:
        return None if kind_test is None else _CONVERSIONS[kind_test](column, kind)
    except pa.ArrowException:  # a value that Arrow cannot convert
        return None


def block_values(column: pa.Array) -> Values:
    """A column from ``typed`` in the form that a block stores."""
    if pa.types.is_null(column.type):
        return [None] * len(column)
    if pa.types.is_string(column.type):
        values: Any = Texts.of([column])
    else:
        values = filled(column)
    if not column.null_count:
        return values  # type: ignore[no-any-return]  # Arrow has no type hints
    return Nullable(flags(column.is_valid()), values)


def _as_utf8(column: pa.Array) -> pa.Array:
    """A column of texts that are checked to be UTF-8. Raises ArrowInvalid."""
    column.validate(full=True)
    return column.cast(pa.string())


def _matches(column: pa.Array, form: str) -> bool:
    return pc.all(pc.match_substring_regex(column, form)).as_py() is not False


def _integers_of_text(column: pa.Array) -> pa.Array | None:
    return column.cast(pa.int64()) if _matches(column, _DIGITS) else None


def _numbers_of_text(column: pa.Array) -> pa.Array | None:
    return _finite(column.cast(pa.float64())) if _matches(column, _NUMBER) else None


def _finite(column: pa.Array) -> pa.Array | None:
    return column if pc.all(pc.is_finite(column)).as_py() is not False else None


def _booleans_of_text(column: pa.Array) -> pa.Array | None:
    lower = pc.ascii_lower(column)
    true, false = pc.is_in(lower, _TRUE), pc.is_in(lower, _FALSE)
    valid = pc.or_(pc.or_(true, false), pc.is_null(column))
    if pc.all(valid).as_py() is False:
        return None
    return pc.if_else(column.is_valid(), true, pa.nulls(len(column), pa.bool_()))


def _instants_of_text(column: pa.Array) -> pa.Array | None:
    if _matches(column, _DAY):
        return _scaled(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400 * _SECOND)
    if _matches(column, _SECONDS):
        return _scaled(column.cast(pa.int64()), _SECOND)
    if _matches(column, _NAIVE):
        return _of_instants(column.cast(pa.timestamp("us")))
    return _of_instants(column.cast(pa.timestamp("us", "UTC"))) if _matches(column, _ZONED) else None


def _of_text(column: pa.Array, kind: AttributeType) -> pa.Array | None:
    return _OF_TEXT[kind](_as_utf8(column))


def _of_numbers(column: pa.Array, kind: AttributeType) -> pa.Array | None:
    return _finite(column.cast(pa.float64())) if kind is AttributeType.NUMBER else None


def _of_booleans(column: pa.Array, kind: AttributeType) -> pa.Array | None:
    return column if kind is AttributeType.BOOLEAN else None


def _of_integers(column: pa.Array, kind: AttributeType) -> pa.Array | None:
    if kind in _TEXTS:
        return column.cast(pa.string())
    if kind is AttributeType.NUMBER:
        return column.cast(pa.float64())  # Arrow refuses integers that no double equals
    if kind is AttributeType.TIMESTAMP:
        return _scaled(column.cast(pa.int64()), _SECOND)
    if kind is AttributeType.BOOLEAN:
        extremes = pc.min_max(column).as_py()
        return column.cast(pa.bool_()) if {0, 1, None}.issuperset(extremes.values()) else None
    return column.cast(pa.int64())


def _of_instants(column: pa.Array, kind: AttributeType = AttributeType.TIMESTAMP) -> pa.Array | None:
    arrow_type = column.type
    if kind is not AttributeType.TIMESTAMP:
        return None
    if pa.types.is_date32(arrow_type):
        return _scaled(column.cast(pa.int32()).cast(pa.int64()), 86_400 * _SECOND)
    unit = "ms" if pa.types.is_date64(arrow_type) else arrow_type.unit
    return _scaled(column.cast(pa.int64()), _UNITS[unit]) if unit in _UNITS else None


def _scaled(column: pa.Array, micros: int) -> pa.Array | None:
    """Instants in units of ``micros`` as microseconds; None if one is outside of the years 1 to 9999."""
    values = filled(column)
    earliest, latest = -(-EARLIEST // micros), LATEST // micros
    if len(values) and (values.min() < earliest or values.max() > latest):
        return None
    return of_integers(values * micros, flags(column.is_valid()) if column.null_count else None)


_OF_TEXT: Final[dict[AttributeType, Callable[[pa.Array], pa.Array | None]]] = {
    AttributeType.TEXT: lambda column: column,
    AttributeType.STRING: lambda column: column,
    AttributeType.INTEGER: _integers_of_text,
    AttributeType.NUMBER: _numbers_of_text,
    AttributeType.BOOLEAN: _booleans_of_text,
    AttributeType.TIMESTAMP: _instants_of_text,
}

_CONVERSIONS: Final[
    dict[Callable[[pa.DataType], bool], Callable[[pa.Array, AttributeType], pa.Array | None]]
] = {
    pa.types.is_string: _of_text,
    pa.types.is_large_string: _of_text,
    pa.types.is_integer: _of_integers,
    pa.types.is_floating: _of_numbers,
    pa.types.is_boolean: _of_booleans,
    pa.types.is_timestamp: _of_instants,
    pa.types.is_date: _of_instants,
}
