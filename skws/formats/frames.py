"""Data frames of a program as records: pandas, Polars, Arrow, or rows as dictionaries.

A frame is read like a Parquet file of bare rows of one relation: a column for each attribute, and ``time``
and ``op`` where these are no attributes. Columns that the schema does not name are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skws.data.batch import Chunk
from skws.data.values import Unreadable
from skws.formats.parquet import ArrowReader, python_values
from skws.formats.rows import Origins, column_of
from skws_schema.errors import UsageError
from skws_schema.model import AttributeType, Relation, Schema

ROWS: Final = 32_768
"""Rows of a chunk."""
_SAMPLED: Final = 10_000
_OWN: Final = ("time", "op")


def arrow_table(name: str, frame: Any) -> pa.Table:
    """The rows of a frame: of Arrow, of what exports Arrow (Polars, DuckDB), of pandas, or dictionaries.

    Raises UsageError for anything else, and for columns that Arrow cannot hold.
    """
    try:
        if isinstance(frame, pa.Table):
            return frame
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if hasattr(frame, "__dataframe__") and type(frame).__module__.startswith("pandas"):
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        if isinstance(frame, Mapping):
            return pa.table(dict(frame))
        if isinstance(frame, Sequence) and not isinstance(frame, str | bytes):
            return _of_rows(name, frame)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:  # also half a surrogate pair
        raise UsageError(f"{name}: {str(error).splitlines()[0]}") from None
    raise UsageError(
        f"{name}: expected a data frame (pandas, Polars, Arrow), rows as dictionaries, or a path;"
        f" found {type(frame).__name__}"
    )


def _of_rows(name: str, rows: Sequence[Any]) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"{name} row {number}: expected a dictionary, found {type(row).__name__}")
    columns = dict.fromkeys(column for row in rows for column in row)
    return pa.table({column: [row.get(column) for row in rows] for column in columns})


def frame_chunks(table: pa.Table, relation: int, schema: Schema, time: int = 0) -> Iterator[Chunk]:
    """The rows of a relation's frame, in their order; bad ones apart, named by relation and row.

    ``time``: that of rows of a stream if the frame has no times, in microseconds.
    """
    described = schema.relations[relation]
    if described.table and "op" in table.column_names and "op" not in described.columns:
        raise UsageError(f"{described.name}: a column op needs times, since rows of a static table stay")
    table = _fitted(table, described, time)
    reader = ArrowReader(described.name, relation, schema, table.schema)
    first = 0
    for batch in table.combine_chunks().to_batches(ROWS):
        yield reader.chunk(batch, first)
        first += batch.num_rows


def has_time(columns: Collection[str], relation: Relation) -> bool:
    """True if rows of a frame with these columns have times."""
    if relation.time is None:
        return "time" in columns
    places = {column: place for place, column in enumerate(columns)}
    return column_of(relation.attributes[relation.columns[relation.time]], places) is not None


def sampled_columns(table: pa.Table) -> dict[str, list[object]]:
    """The first rows by column, as a schema is inferred from them."""
    head = table.slice(0, _SAMPLED)
    return {name: list(map(_sampled, python_values(head.column(name)))) for name in head.column_names}


def _sampled(value: object) -> object:
    if isinstance(value, Unreadable):
        return None
    # Beside NULL, pandas has whole numbers as floats.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fitted(table: pa.Table, relation: Relation, time: int) -> pa.Table:
    """The columns that are read. Whole numbers become integers: beside NULL, pandas has floats."""
    own = [] if relation.table else [name for name in _OWN if name not in relation.columns]
    known = Origins(relation).known
    kept = [name for name in table.column_names if name in known or name in own]
    table = table.select(kept)
    for attribute in relation.attributes:
        if attribute.column in kept and attribute.type is AttributeType.INTEGER:
            column = table.column(attribute.column)
            if pa.types.is_floating(column.type) and pc.all(pc.equal(pc.round(column), column)).as_py():
                place = table.column_names.index(attribute.column)
                table = table.set_column(place, attribute.column, column.cast(pa.int64()))
    if not relation.table and not has_time(table.column_names, relation):
        table = table.append_column("time", pa.array([time] * len(table), pa.timestamp("us")))
    return table
