"""Records from columns, for CSV and Parquet: ``relation``, ``time``, ``op`` and one column an attribute.

The attributes of a stream of many relations are the union of the columns; a
column of another relation must be empty. Instead of them a column ``row`` may
hold the row as JSON. A file of one relation's bare rows needs no column
``relation``; ``time`` and ``op`` are then the record's own unless the relation
has attributes of these names. In a stream, an attribute called ``relation``,
``time``, ``op`` or ``row`` can only travel in a column ``row``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

import orjson

from schema.errors import nearest
from schema.model import Attribute, Row, Schema, Value
from skws.records import Record
from skws.replay.envelopes import is_deletion, refuse_deletion
from skws.replay.rows import RowReader, no_relation, readers
from skws.replay.values import Convert, MalformedError, shown

# How the values of the column at a position become values of an attribute.
ConvertColumn: TypeAlias = Callable[[int, Attribute], Convert]
OWN: Final = frozenset({"relation", "time", "op", "row"})


class FlatReader:
    """Reads rows of ``columns``; a row's values are None for NULL, else what ``convert`` and ``time`` take.

    ``relation``: the position of the relation of bare rows, None for a stream.
    ``time`` takes a value of the column ``time`` to microseconds.
    """

    def __init__(
        self,
        schema: Schema,
        columns: Sequence[str],
        relation: int | None,
        convert: ConvertColumn,
        time: Callable[[Any], int],
    ) -> None:
        self._schema = schema
        self._columns = columns
        self._convert = convert
        self._time = time
        self._readers = readers(schema)
        self._bare = None if relation is None else schema.relations[relation]
        own = OWN if self._bare is None else {"time", "op"} - self._bare.columns.keys()
        self._own = {name: columns.index(name) for name in own if name in columns}
        self._json = self._own.get("row")
        self._layouts: dict[str, _Layout] = {}

    def record(self, values: Sequence[Any]) -> Record:
        """The record of one row. Raises MalformedError."""
        name = self._bare.name if self._bare is not None else self._given(values, "relation")
        reader = self._readers.get(name) if isinstance(name, str) else None
        if reader is None:
            raise no_relation(name, self._schema)
        op = self._given(values, "op")
        delete = op is not None and is_deletion(op)
        if delete:
            refuse_deletion(reader)
        row = self._row(reader, values, delete=delete)
        given = self._given(values, "time") if reader.takes_time(delete=delete) else None
        own = None if given is None else self._time(given)
        return Record(reader.index, reader.time(row, own, delete=delete), row, delete)

    def _given(self, values: Sequence[Any], name: str) -> Any:
        column = self._own.get(name)
        return None if column is None else values[column]

    def _row(self, reader: RowReader, values: Sequence[Any], *, delete: bool) -> Row:
        if self._json is not None:
            row = self._json_row(values)
            return reader.deletion(row) if delete else reader.insertion(row)
        layout = self._layouts.get(reader.relation.name)
        if layout is None:
            layout = _Layout(reader, self._columns, self._own.keys(), self._convert)
            self._layouts[reader.relation.name] = layout
        return layout.row(values, delete=delete)

    def _json_row(self, values: Sequence[Any]) -> Any:
        for column, name in enumerate(self._columns):
            if name not in self._own and values[column] is not None:
                raise MalformedError(f"no column {shown(name)} beside the column 'row'{nearest(name, OWN)}")
        text = values[self._json or 0]
        if not isinstance(text, str | bytes):
            return text
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedError(f"the column 'row' is not JSON: {error}") from None


class _Layout:
    """Where the attributes of one relation stand among the columns."""

    def __init__(
        self,
        reader: RowReader,
        columns: Sequence[str],
        own: Collection[str],
        convert: ConvertColumn,
    ) -> None:
        self._reader = reader
        self._columns = columns
        places = {name: i for i, name in enumerate(columns) if name not in own}
        for name in reader.names:
            if name in own:
                raise MalformedError(
                    f"{reader.relation.name}.{name} cannot travel in a column of its own beside the"
                    f" record's {name!r}; put the rows as JSON in a column 'row'"
                )
        self._foreign = tuple(i for name, i in places.items() if name not in reader.relation.columns)
        attributes = reader.relation.attributes
        self._takes = tuple(
            (places[a.name], convert(places[a.name], a)) if a.name in places else (-1, _null)
            for a in attributes
        )
        absent = [a.name for a in attributes if a.name not in places]
        self._lacks = {
            delete: next((name for name in absent if name in reader.wanted(delete=delete)), None)
            for delete in (False, True)
        }

    def row(self, values: Sequence[Any], *, delete: bool) -> Row:
        """The row among the values of all columns. Raises MalformedError."""
        for column in self._foreign:
            if values[column] is not None:
                raise self._reader.no_attribute(self._columns[column])
        lacking = self._lacks[delete]
        if lacking is not None:
            raise self._reader.missing(lacking)
        try:
            row: list[Value] = []
            for column, convert in self._takes:
                value = values[column]
                row.append(None if value is None else convert(value))
        except MalformedError as error:
            name = self._reader.names[len(row)]
            raise MalformedError(f"{self._reader.relation.name}.{name}: {error}") from None
        return tuple(row)


def _null(_value: Any) -> Value:
    return None
