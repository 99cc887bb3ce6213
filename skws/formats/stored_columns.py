"""Reads rows of a database as columns, many at a time; batches with an unusual value are read row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skws.data.arrow import STORED
from skws.data.batch import RecordBatch
from skws.data.blocks import ColumnBlock
from skws.formats.bare_columns import block_values, typed
from skws.formats.rows import RowReader, typed_rows
from skws_schema.model import Attribute, AttributeType

_BATCH_ROWS: Final = 1 << 16
_TEXTS: Final = (AttributeType.TEXT, AttributeType.STRING)
_KINDS: Final = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def typed_batches(
    database: str, reader: RowReader, values: Iterator[tuple[Any, ...]], batch_size: int = _BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Batches with a column for each attribute, equal to the rows of ``typed_rows`` for the same values.

    Raises SourceError for a bad value.
    """
    attributes = reader.relation.attributes
    schema = pa.schema([(attribute.name, STORED[attribute.type]) for attribute in attributes])
    first = 1
    while rows := list(islice(values, batch_size)):
        columns = _columns(attributes, rows)
        if columns is None:
            rows_by_column = zip(*typed_rows(database, reader, iter(rows), first), strict=True)
            columns = [
                pa.array(column, kind) for column, kind in zip(rows_by_column, schema.types, strict=True)
            ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        first += len(rows)


def table_records(
    database: str, reader: RowReader, values: Iterator[tuple[Any, ...]]
) -> Iterator[RecordBatch]:
    """As ``typed_batches``, as records of a static table."""
    search_columns = frozenset(reader.relation.search_columns)
    for batch in typed_batches(database, reader, values):
        block = ColumnBlock(reader.index, list(map(block_values, batch.columns)), search_columns)
        yield RecordBatch.of_block(block, np.zeros(len(block), dtype=np.int64))


def _columns(attributes: Sequence[Attribute], rows: Sequence[tuple[Any, ...]]) -> list[pa.Array] | None:
    """The columns; None if a value is unusual."""
    arrays = []
    for attribute, values in zip(attributes, zip(*rows, strict=True), strict=True):
        column = _column(attribute.type, values)
        if column is None:
            return None
        arrays.append(column.cast(STORED[attribute.type]))
    return arrays


def _column(kind: AttributeType, values: tuple[Any, ...]) -> pa.Array | None:
    types = set(map(type, values)) - {type(None)}
    if not types:
        return pa.nulls(len(values))
    arrow_type = _KINDS.get(types.pop()) if len(types) == 1 else None
    if arrow_type is None:
        return None
    try:
        column = pa.array(values, arrow_type)
    except (pa.ArrowException, OverflowError, UnicodeError):  # integers of more than 64 bits, lone surrogates
        return None
    if pa.types.is_string(arrow_type) and kind not in _TEXTS:
        column = pc.if_else(pc.equal(column, ""), None, column)
    return typed(column, kind)
