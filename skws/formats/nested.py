"""Rows of several relations in one JSON object: a row, and rows in its arrays of objects.

With ``from: commits.files``, the rows of a relation are the objects in the array ``files`` of each row of
``commits``. Its attributes may come from these objects or, as in ``from: commits.hash``, from the row around
them. If the path begins with the relation's own name, the array is in objects that are not rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

import orjson

from skws.data.batch import BadRecord, Record
from skws.data.value_conversion import MalformedError
from skws.formats.rows import DEEPEST, MISSING, BareRowReader, RowReader, notes, value_at
from skws_schema.errors import shown
from skws_schema.model import PLACE, Schema
from skws_schema.number_texts import digits


def has_nested(schema: Schema, relation: int) -> bool:
    """True if objects with the rows of a relation have further rows in arrays."""
    return schema.relations[relation].name in schema.nested


class NestedReader:
    """Reads objects with the rows of the relation at a position, and the rows in their arrays.

    ``source``: the name of the file.
    """

    def __init__(self, schema: Schema, relation: int, source: str) -> None:
        self._schema, self._relation, self._source = schema, relation, source
        self._outer = BareRowReader(schema, relation, self._array_heads(relation))
        self._inner: dict[str, RowReader] = {}
        self._children: dict[int, list[tuple[int, str]]] = {}
        columns = {
            (definition.name, attribute.column)
            for definition in schema.relations
            for attribute in definition.attributes
        }
        column_names = {column for _, column in columns}
        self._located = {
            number
            for number, definition in enumerate(schema.relations)
            if (definition.name, PLACE) in columns or f"{definition.name}.{PLACE}" in column_names
        }
        self._add(relation)

    def notes(self, source: str) -> list[BadRecord]:
        """Notes on the values passed over since the last call."""
        return [*self._outer.notes(source), *notes(self._inner, source)]

    def records(
        self,
        item: Any,
        position: int,
        bad: Callable[[bytes, str], BadRecord],
        default_time: int | None = None,
    ) -> list[Record | BadRecord]:
        """The records of a JSON object at ``position`` in the file.

        ``bad`` makes the bad record of a row, from its JSON and the reason, if the object itself is no row.
        Raises MalformedError; then the object has no records.
        """
        relation = self._schema.relations[self._relation]
        location = f"{self._source}:{position}"
        if relation.parent != relation.name:
            return list(self._row_records(item, location, default_time))
        if type(item) is not dict:
            raise MalformedError(f"expected a JSON object with rows of {relation.name}, got {shown(item)}")
        records: list[Record | BadRecord] = []
        for number, element in enumerate(_elements(item, relation.path)):
            try:
                records += list(self._row_records(element, f"{location}:{number}", default_time))
            except MalformedError as error:
                records.append(bad(_encoded(element), f"{relation.path}[{number}]: {error}"))
        return records

    def _add(self, relation: int) -> None:
        """Create the readers of the rows in arrays, at every depth."""
        name = self._schema.relations[relation].name
        children = [
            (number, self._schema.relations[number].path)
            for number in self._schema.nested.get(name, ())
            if number != relation
        ]
        self._children[relation] = children
        for number, _ in children:
            if number in self._children:  # relations that contain each other; arrays cannot
                continue
            reader = RowReader(self._schema, number)
            reader.known_names = {*reader.known_names, *self._array_heads(number), name}
            self._inner[reader.relation.name] = reader
            self._add(number)

    def _array_heads(self, relation: int) -> set[str]:
        name = self._schema.relations[relation].name
        nested_relations = [self._schema.relations[number] for number in self._schema.nested.get(name, ())]
        return {
            definition.path.partition(".")[0] for definition in nested_relations if definition.name != name
        }

    def _row_records(self, item: Any, location: str, default_time: int | None) -> Iterator[Record]:
        if self._relation in self._located and type(item) is dict and not self._outer.truncates(item):
            item = {**item, PLACE: location}
        record = self._outer.record(item, default_time)
        yield record
        yield from self._inner_records(self._relation, item, location, record)

    def _inner_records(
        self, relation: int, item: dict[str, Any], outer_location: str, outer: Record
    ) -> Iterator[Record]:
        name = self._schema.relations[relation].name
        for number, path in self._children[relation]:
            reader = self._inner[self._schema.relations[number].name]
            if outer.truncates:
                if not reader.table:
                    yield reader.truncation(outer.time)
                yield from self._inner_records(number, item, outer_location, outer)
                continue
            for index, element in enumerate(_elements(item, path)):
                if type(element) is not dict:
                    raise MalformedError(
                        f"expected a row (a JSON object) of {reader.relation.name}, got {shown(element)}"
                    )
                inner = {**element, name: item}
                location = f"{outer_location}:{index}"
                if number in self._located:
                    inner[PLACE] = location
                row = reader.deletion(inner) if outer.delete else reader.insertion(inner)
                yield reader.record(row, outer.time, delete=outer.delete and not reader.table)
                yield from self._inner_records(number, inner, location, outer)


def nested_rows(
    schema: Schema, relation: int, source: str, rows: Iterable[Mapping[str, Any]], time: int
) -> Iterator[Record | BadRecord]:
    """The records of rows in memory; ``time``: the time of rows without one, in microseconds."""
    reader = NestedReader(schema, relation, source)
    for number, row in enumerate(rows):
        try:
            yield from reader.records(as_json(row), number, partial(BadRecord, source, number + 1, 0), time)
        except MalformedError as error:
            yield BadRecord(source, number + 1, 0, b"", str(error))
    yield from reader.notes(source)


def as_json(row: Mapping[str, Any]) -> Any:
    """A row as JSON represents it, but with NaN and infinity. Raises MalformedError."""
    try:
        encoded = orjson.dumps(row, default=_text, option=orjson.OPT_NON_STR_KEYS)
    # an integer of more than 64 bits, or a value that JSON does not have
    except orjson.JSONEncodeError as error:
        return _with_long_integers(row, str(error))
    value = orjson.loads(encoded)
    if b"null" in encoded:
        _restore_missing(value, row)
    return value


def _with_long_integers(row: Mapping[str, Any], reason: str) -> Any:
    """Raises MalformedError with ``reason`` unless long integers are the reason."""
    try:
        return json.loads(json.dumps(row, default=_text))
    except (TypeError, ValueError, RecursionError):
        raise MalformedError(reason) from None


def _restore_missing(decoded: Any, original: Any) -> None:
    """Restore the numbers of ``original`` for which JSON has null, so that readers count them."""
    entries: Iterable[tuple[Any, Any]]
    if isinstance(decoded, dict) and isinstance(original, Mapping) and len(decoded) == len(original):
        entries = zip(decoded, original.values(), strict=True)
    elif isinstance(decoded, list) and isinstance(original, list | tuple):
        entries = enumerate(original)
    else:
        return
    for key, value in entries:
        if isinstance(value, float) and decoded[key] is None:
            decoded[key] = value
        else:
            _restore_missing(decoded[key], value)


def _encoded(row: Any) -> bytes:
    """An invalid row as JSON; empty if it has too many levels."""
    try:
        return orjson.dumps(row, default=_text)
    except orjson.JSONEncodeError:  # more than 254 levels, or an integer of more than 64 bits
        with suppress(RecursionError):
            return json.dumps(row, default=_text).encode()
        return b""


def _text(value: object) -> str:
    return digits(value) if isinstance(value, Decimal) else str(value)


def _elements(item: Mapping[str, Any], path: str) -> list[Any]:
    """The elements of the array at ``path``; empty if there is none. Raises MalformedError."""
    array = value_at(item, path)
    if array is MISSING or array is None or array == {}:
        return []
    if not isinstance(array, list):
        raise MalformedError(f"expected an array of rows at {path!r}, got {shown(array)}")
    return array


def arrays(item: Mapping[str, Any], depth: int = DEEPEST) -> dict[str, list[dict[str, Any]]]:
    """The arrays of objects in an object, by path, without arrays inside other arrays."""
    arrays_by_path: dict[str, list[dict[str, Any]]] = {}
    for name, value in item.items():
        if isinstance(value, Mapping):
            inner = arrays(value, depth - 1) if depth else {}
            arrays_by_path |= {f"{name}.{path}": elements for path, elements in inner.items()}
        elif isinstance(value, list) and value and all(isinstance(element, dict) for element in value):
            arrays_by_path[name] = value
    return arrays_by_path


def without(item: Mapping[str, Any], paths: Mapping[str, object]) -> dict[str, Any]:
    """A copy of an object without the values at some paths."""
    result = {}
    for name, value in item.items():
        if name in paths:
            continue
        inner = {path[len(name) + 1 :]: None for path in paths if path.startswith(f"{name}.")}
        result[name] = without(value, inner) if inner and isinstance(value, Mapping) else value
    return result
