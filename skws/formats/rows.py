"""Rows and records from JSON: checked, converted, in the order of the relation's attributes.

A record is ``{"relation": ..., "time": ..., "op": ..., "row": {...}}``, or a bare row of one relation. A
truncation has no row. A bare row may have ``time`` and ``op`` beside its attributes, if the relation has no
attributes of these names.

Conversions are compiled once per relation and combination of JSON types, so that the usual row takes one
look-up and no conversion.

An attribute's ``from:`` names the location of its value: another name, nested objects, arrays. The texts
of an array are joined with commas, so that they can be searched. Other values of a text attribute with a
``from:`` are written as JSON, since a column of data without a declaration may have several types.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from skws.data.batch import BadRecord, Record
from skws.data.value_conversion import (
    LARGEST,
    NOT_FINITE,
    SMALLEST,
    Convert,
    MalformedError,
    MissingError,
    conversion,
    integer_of_int,
    integer_of_text,
    refusal,
    timestamp,
    unchanged,
    within_calendar,
)
from skws_schema.errors import TOO_DEEP, SourceError, nearest, shown
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema, Unknown, Value

Steps: TypeAlias = tuple[tuple[int, Convert], ...]
_Plan: TypeAlias = tuple[tuple[int, ...], Steps]
_MOST_NAMES: Final = 1000
"""The most unknown fields that a reader names; objects may have values as names."""
_MOST_PLANS: Final = 1000
"""The most combinations of types that a reader remembers; wide rows with NULL have more."""


def needed(schema: Schema, relation: Relation) -> frozenset[str]:
    """The attributes that every row must have, possibly NULL: the attributes of the key and of joins."""
    return schema.join_attributes[relation.name].union(relation.key)


class RowReader:
    """Reads rows of the relation at position ``index`` of ``schema``; all methods raise MalformedError.

    ``by_origin``: True if the fields of rows have the names in ``from:``, False if they have the names of
    attributes. ``passed_over``: the number of values that were passed over, by reason.
    """

    def __init__(self, schema: Schema, index: int, *, by_origin: bool = True) -> None:
        self.index = index
        self.relation = schema.relations[index]
        self.table = self.relation.table
        self.names = tuple(a.name for a in self.relation.attributes)
        self.time_column = self._time_column()
        # True if an insertion takes the record's time.
        self.takes_record_time = not self.table and self.time_column is None
        self._width = len(self.names)
        self._needed = needed(schema, self.relation)
        self._key = frozenset(self.relation.key) or self._needed
        self._never_missing = self._needed | ({self.relation.time} if self.time_column is not None else set())
        self._plans: dict[tuple[type, ...], _Plan] = {}
        self._get = self._getter()
        self._origins = Origins(self.relation) if by_origin and has_origins(self.relation) else None
        self.known_names: Collection[str] = (
            self._origins.known_names if self._origins else self.relation.columns.keys()
        )
        """The names that fields of a row may have."""
        attributes = self.relation.attributes
        self.attributes_by_field = {a.name: a for a in attributes} | {a.column: a for a in attributes}
        self.fails = schema.unknown is Unknown.FAIL
        self.passed_over: Counter[str] = Counter()
        self._unknown_reasons: dict[str, str] = {}

    def _time_column(self) -> int | None:
        if self.relation.table or self.relation.time is None:
            return None
        return self.relation.columns[self.relation.time]

    def _getter(self) -> Callable[[Any], tuple[Any, ...]]:
        if self._width > 1:
            return itemgetter(*self.names)
        name = self.names[0]
        return lambda row: (row[name],)

    def insertion(self, row: Any) -> Row:
        """The row of a JSON object with every needed attribute; other missing attributes are NULL."""
        if self._origins is not None:
            return self._row_by_origin(self._origins, row, self._needed)
        try:
            values = self._get(row)
            if len(row) == self._width:
                return self.convert(values)
        except (KeyError, TypeError):
            pass
        return self.convert(self.complete(row, self._needed))

    def deletion(self, row: Any) -> Row:
        """The row of a deletion; if the relation has a key, the key is enough."""
        if self._origins is not None:
            return self._row_by_origin(self._origins, row, self._key)
        return self.convert(self.complete(row, self._key))

    def required_names(self, *, delete: bool) -> frozenset[str]:
        """The attributes that a row must have, possibly NULL."""
        return self._key if delete else self._needed

    def takes_time(self, *, delete: bool) -> bool:
        """True if the record's time matters."""
        return self.takes_record_time or (delete and not self.table)

    def is_key_field(self, name: str) -> bool:
        """True if the field of this name holds an attribute of the key."""
        attribute = self.attributes_by_field.get(name)
        return attribute is not None and attribute.name in self.relation.key

    def complete(self, row: Any, required: Iterable[str]) -> tuple[Any, ...]:
        """The values of ``row`` in order; NULL for missing ones that are not in ``required``."""
        self._check_names(row)
        for name in self.names:
            if name in required and name not in row:
                raise self.missing(name)
        return tuple(map(row.get, self.names))

    def _check_names(self, row: Any) -> None:
        """Pass over attributes that the relation lacks, or refuse them."""
        if type(row) is not dict:
            raise MalformedError(f"expected a row (a JSON object) of {self.relation.name}, got {shown(row)}")
        unknown = [name for name in row if name not in self.known_names]
        if unknown and len(unknown) == len(row):
            raise self.no_attribute(unknown[0])  # not a row of this relation
        for name in unknown:
            self.unknown(name)

    def _row_by_origin(self, origins: Origins, row: Any, required: Collection[str]) -> Row:
        """The row of a JSON object in which some attributes have other names, or are nested."""
        self._check_names(row)
        values: list[Value] = []
        for attribute, value in zip(self.relation.attributes, origins.values(row), strict=True):
            if value is MISSING:
                if attribute.name in required:
                    raise self.missing(attribute.name)
                values.append(None)
                continue
            try:
                kind = attribute.type
                plain = attribute.origin is None
                values.append(
                    conversion(kind, type(value))(value) if plain else attribute_value(attribute, value)
                )
            except MalformedError as error:
                values.append(self.missing_value(attribute.name, error))
        return tuple(values)

    def unknown(self, name: str, values: int = 1) -> None:
        """Pass over values of an attribute that the relation lacks, unless the schema refuses them."""
        if self.fails:
            raise self.no_attribute(name)
        reason = self._unknown_reasons.get(name)
        if reason is None and len(self._unknown_reasons) < _MOST_NAMES:
            reason = self._unknown_reasons[name] = str(self.no_attribute(name))
        self.passed_over[reason or f"{self.relation.name} has no attributes for other fields"] += values

    def missing_value(self, name: str, error: MalformedError, *, in_table: bool = False) -> Value:
        """The value in place of one that is missing because of ``error``; raises any other error.

        Also raises it in the key, a join or the time, unless the row is that of a table that is read as a
        whole (``in_table``): one row would make the whole table unreadable.
        """
        named_error = MalformedError(f"{self.relation.name}.{name}: {error}")
        if not isinstance(error, MissingError) or (name in self._never_missing and not in_table):
            raise named_error from None
        self.passed_over[str(named_error)] += error.missing
        return error.value

    def notes(self, source: str) -> Iterator[BadRecord]:
        """Notes on the values passed over since the last call."""
        for reason, count in self.passed_over.items():
            yield BadRecord(source, 0, 0, b"", reason, passed_over=count)
        self.passed_over.clear()

    def convert(self, values: tuple[Any, ...]) -> Row:
        """``values``, in the order of attributes, as typed values."""
        types = tuple(map(type, values))
        plan = self._plans.get(types)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[types] = self._compile(types)
        integers, steps = plan
        for column in integers:
            # A call for each integer would take twice the time.
            if not SMALLEST <= values[column] <= LARGEST:
                return self._apply(values, ((column, integer_of_int),))
        return self._apply(values, steps) if steps else values

    def _apply(self, values: tuple[Any, ...], steps: Steps) -> Row:
        row = list(values)
        for column, step in steps:
            try:
                row[column] = step(row[column])
            except MalformedError as error:
                row[column] = self.missing_value(self.names[column], error)
        return tuple(row)

    def _compile(self, types: tuple[type, ...]) -> _Plan:
        """For values of these types, the positions of integers to check, and the other conversions."""
        kinds = [a.type for a in self.relation.attributes]
        conversions = [conversion(kind, value_type) for kind, value_type in zip(kinds, types, strict=True)]
        integers = tuple(i for i, step in enumerate(conversions) if step is integer_of_int)
        trivial = (unchanged, integer_of_int)
        return integers, tuple((i, step) for i, step in enumerate(conversions) if step not in trivial)

    def no_attribute(self, name: str) -> MalformedError:
        if name in self.relation.columns:
            column = self.relation.attributes[self.relation.columns[name]].column
            return MalformedError(f"{self.relation.name}.{name} is read from {shown(column)}")
        near = nearest(name, self.names)
        return MalformedError(f"{self.relation.name} has no attribute {shown(name)}{near}")

    def missing(self, name: str) -> MalformedError:
        dependent = "the key" if name in self.relation.key else "a join"
        return MalformedError(f"{self.relation.name}.{name} is missing, and {dependent} needs it")

    def record(self, row: Row, record_time: int | None, *, delete: bool = False) -> Record:
        """The record of a converted row. ``record_time``: its own time, if it has one."""
        return Record(self.index, self.time(row, record_time, delete=delete), row, delete)

    def truncation(self, record_time: int | None) -> Record:
        """The truncation of the relation at a time."""
        refuse_deletion(self)
        if record_time is None:
            raise MalformedError(f"no time: a truncation of {self.relation.name} needs a `time`")
        return Record.truncation(self.index, record_time)

    def time(self, row: Row, record_time: int | None, *, delete: bool) -> int:
        """The time of a record with ``row``. ``record_time``: its own time, if it has one.

        An insertion takes the time attribute first; a deletion takes the record's time first.
        """
        if self.relation.source is not None:
            raise MalformedError(f"rows of {self.relation.name} come only from its source")
        if self.table:
            return 0
        if self.time_column is None or (delete and record_time is not None):
            if record_time is None:
                raise MalformedError(
                    f"no time: a record of {self.relation.name} needs a `time`, or its schema a `time:`"
                )
            return record_time
        value = row[self.time_column]
        if type(value) is int:
            return value
        raise MalformedError(
            f"{self.relation.name}.{self.relation.time} gives the time of the record, but is {shown(value)}"
        )


def readers(schema: Schema, relation: int | None = None) -> Mapping[str, RowReader]:
    """A reader for each relation, by name; with ``relation``, only for the one at this position."""
    positions = range(len(schema.relations)) if relation is None else (relation,)
    return {schema.relations[i].name: RowReader(schema, i) for i in positions}


def no_relation(name: object, schema: Schema) -> MalformedError:
    near = nearest(name, schema.index) if isinstance(name, str) else ""
    return MalformedError(f"no relation {shown(name)} in schema {schema.name}{near}")


FIELDS: Final = frozenset({"relation", "time", "op", "row"})
"""The fields of a record that names its relation."""


TRUNCATE: Final = "truncate"
"""The ``op`` of a truncation."""


def is_deletion(op: object) -> bool:
    """True if the ``op`` of a row is ``-``; raises MalformedError if it is neither ``-`` nor ``+``."""
    if op == "+":
        return False
    if op == "-":
        return True
    raise MalformedError(f"expected op '+', '-' or '{TRUNCATE}', got {shown(op)}")


def refuse_deletion(reader: RowReader) -> None:
    """Raises MalformedError if ``reader`` reads a static table."""
    if reader.table:
        raise MalformedError(f"{reader.relation.name} is a static table, and static tables take no deletions")


def notes(readers_by_name: Mapping[str, RowReader], source: str) -> list[BadRecord]:
    """Notes on the values that readers have passed over since the last call."""
    return [
        note for reader in readers_by_name.values() if reader.passed_over for note in reader.notes(source)
    ]


class RecordReader:
    """Reads records that name their relation."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._readers = readers(schema)

    def record(self, item: Any, default_time: int | None = None) -> Record:
        """The record of a JSON value; ``default_time`` is its time if it has none. Raises MalformedError."""
        try:
            reader = self._readers[item["relation"]]
            if "row" not in item and item.get("op") == TRUNCATE and item.keys() <= FIELDS:
                return _truncation(reader, None, item.get("time"), default_time)
            row = item["row"]
            time_value = item.get("time")
            op = item.get("op")
        except (KeyError, TypeError, AttributeError):
            raise self._fault(item) from None
        if (op is None or time_value is None or len(item) != len(FIELDS)) and not item.keys() <= FIELDS:
            raise self._fault(item)
        if op == TRUNCATE:
            return _truncation(reader, row, time_value, default_time)
        if op is not None and op != "+" and is_deletion(op):
            return _deletion(reader, row, time_value, default_time)
        return _insertion(reader, row, time_value, default_time)

    def notes(self, source: str) -> list[BadRecord]:
        """Notes on the values passed over since the last call."""
        return notes(self._readers, source)

    def _fault(self, item: Any) -> MalformedError:
        if type(item) is not dict:
            return MalformedError(f"expected a JSON object, got {shown(item)}")
        for field in ("relation", "row"):
            if field not in item:
                return MalformedError(f"the record has no field '{field}'")
        name = item["relation"]
        if not isinstance(name, str) or name not in self._readers:
            return no_relation(name, self._schema)
        extra = next(field for field in item if field not in FIELDS)
        return MalformedError(f"unknown field {shown(extra)} in a record{nearest(extra, FIELDS)}")


# Debezium's placeholder for a large value that PostgreSQL did not log because it did not change.
UNAVAILABLE: Final = "__debezium_unavailable_value"
_PLACEHOLDERS: Final = frozenset(
    {
        UNAVAILABLE,
        b64encode(UNAVAILABLE.encode()).decode(),
        b64encode(UNAVAILABLE.encode()).decode().rstrip("="),
        UNAVAILABLE.encode().hex(),
        orjson.dumps({UNAVAILABLE: UNAVAILABLE}).decode(),
    }
)
_PLACEHOLDER_BYTES: Final = list(UNAVAILABLE.encode())


def is_unavailable(value: Any) -> bool:
    """True if a value is the placeholder, also as bytes, in an array or in a map."""
    while isinstance(value, list) and len(value) == 1:  # by recursion, deep arrays would exceed the stack
        value = value[0]
    if isinstance(value, list):
        return value == _PLACEHOLDER_BYTES
    if isinstance(value, dict):
        return value.keys() == {UNAVAILABLE}
    return isinstance(value, str) and value in _PLACEHOLDERS


def not_logged(relation: str, name: str) -> MalformedError:
    return MalformedError(
        f"{relation}.{name}: its value did not change and was not logged (set REPLICA IDENTITY FULL)"
    )


_CLOCKS: Final = (("ts_us", 1, 1), ("ts_ns", 1, 1000), ("ts_ms", 1000, 1))


def clock_of(item: Mapping[str, Any], prefix: str = "") -> int | None:
    """Debezium's time in the finest available unit, as microseconds. Raises MalformedError."""
    for name, up, down in _CLOCKS:
        value = item.get(prefix + name)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = integer_of_text(value)
        if type(value) is int and value:
            return within_calendar(value * up // down, value)
    return None


_DELETED: Final = "__deleted"
_FLAT_CLOCKS: Final = ("__source_", "__source.", "__")
FLAT: Final = frozenset(
    {_DELETED, "__op", "__table", "__source_table"}
    | {prefix + name for prefix in _FLAT_CLOCKS for name, _, _ in _CLOCKS}
)
"""The fields that Debezium's ExtractNewRecordState adds to a row."""


class Flat(NamedTuple):
    """The content of these fields: whether a row is deleted or updated, and its time in microseconds.

    The time is 0 if there is none.
    """

    deleted: bool
    updated: bool
    time: int

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Flat | None:
        """The fields of a flattened row; None for any other. Raises MalformedError."""
        if _DELETED not in item and "__op" not in item:
            return None
        flag = item.get(_DELETED)
        is_flagged = flag is True or (isinstance(flag, str) and flag.lower() == "true")
        deleted = is_flagged or item.get("__op") == "d"
        clocks = (clock_of(item, prefix) for prefix in _FLAT_CLOCKS)
        return cls(
            deleted, item.get("__op") == "u", next((clock for clock in clocks if clock is not None), 0)
        )


class BareRowReader:
    """Reads rows of the relation at position ``relation``.

    ``extra_names``: fields that are not attributes.
    """

    def __init__(self, schema: Schema, relation: int, extra_names: Collection[str] = ()) -> None:
        self._reader = RowReader(schema, relation)
        if extra_names:
            self._reader.known_names = {*self._reader.known_names, *extra_names}
        self._record_fields = frozenset({"time", "op", *FLAT}.difference(self._reader.known_names))

    def notes(self, source: str) -> list[BadRecord]:
        """Notes on the values passed over since the last call."""
        return list(self._reader.notes(source))

    def record(self, item: Any, default_time: int | None = None) -> Record:
        """The record of a JSON value; ``default_time`` is its time if it has none. Raises MalformedError."""
        if type(item) is not dict or self._record_fields.isdisjoint(item):
            return self._reader.record(self._reader.insertion(item), default_time)
        row = {name: value for name, value in item.items() if name not in self._record_fields}
        record_fields = {name: value for name, value in item.items() if name in self._record_fields}
        flat = Flat.of(record_fields)
        if flat is not None:
            return self._flat_record(row, flat, default_time)
        time_value = record_fields.get("time")
        if self.truncates(record_fields):
            return _truncation(self._reader, row, time_value, default_time)
        if record_fields.get("op") is not None and is_deletion(record_fields["op"]):
            return _deletion(self._reader, row, time_value, default_time)
        return _insertion(self._reader, row, time_value, default_time)

    def truncates(self, item: Any) -> bool:
        """True if a JSON value is a truncation, which has no row."""
        return type(item) is dict and "op" in self._record_fields and item.get("op") == TRUNCATE

    def _flat_record(self, row: dict[str, Any], flat: Flat, default_time: int | None) -> Record:
        """The record of a flattened change event; an event without a time gets the default time, or 0."""
        time = flat.time or default_time or 0
        row = logged_row(self._reader, row, flat)
        if not flat.deleted:
            return self._reader.record(self._reader.insertion(row), time)
        refuse_deletion(self._reader)
        return self._reader.record(self._reader.deletion(row), time, delete=True)


def logged_row(reader: RowReader, row: dict[str, Any], flat: Flat) -> dict[str, Any]:
    """A row of a flattened change event, with NULL in place of values that were not logged.

    Raises MalformedError if the record needs such a value: in an insertion, or in the key of a deletion.
    """
    missing_names = [name for name, value in row.items() if is_unavailable(value)]
    for name in missing_names:
        if not flat.deleted or reader.is_key_field(name):
            raise not_logged(reader.relation.name, name)
    return row | dict.fromkeys(missing_names) if missing_names else row


def _insertion(reader: RowReader, row: Any, time_value: Any, default_time: int | None) -> Record:
    values = reader.insertion(row)
    if reader.takes_record_time and time_value is not None:
        return Record(reader.index, timestamp(time_value), values)
    return reader.record(values, default_time)


def _deletion(reader: RowReader, row: Any, time_value: Any, default_time: int | None) -> Record:
    refuse_deletion(reader)
    values = reader.deletion(row)
    return reader.record(values, default_time if time_value is None else timestamp(time_value), delete=True)


def _truncation(reader: RowReader, row: Any, time_value: Any, default_time: int | None) -> Record:
    if row is not None and not (type(row) is dict and all(value is None for value in row.values())):
        raise truncated_row(reader)
    return reader.truncation(default_time if time_value is None else timestamp(time_value))


def truncated_row(reader: RowReader) -> MalformedError:
    """The error for a truncation with a row, which may be meant as a deletion of the row."""
    return MalformedError(
        f"op '{TRUNCATE}' deletes all rows of {reader.relation.name}, and takes no row ('-' deletes one)"
    )


def typed_rows(
    database: str, reader: RowReader, values: Iterator[tuple[Any, ...]], first: int = 1
) -> Iterator[Row]:
    """Rows of a database, converted to the types of attributes; the reader counts the missing values.

    ``first``: the number of the first row. Raises SourceError for a bad value.
    """
    kinds = [attribute.type for attribute in reader.relation.attributes]
    for number, row in enumerate(values, first):
        try:
            yield _typed_row(reader, kinds, row)
        except MalformedError as error:
            raise SourceError(f"{database}: row {number:,}: {error}") from None


def _typed_row(reader: RowReader, kinds: Sequence[AttributeType], row: tuple[Any, ...]) -> Row:
    values: list[Value] = []
    for column, (kind, value) in enumerate(zip(kinds, row, strict=True)):
        try:
            values.append(_database_value(kind, value))
        except MalformedError as error:
            values.append(reader.missing_value(reader.names[column], error, in_table=True))
    return tuple(values)


def _database_value(kind: AttributeType, value: Any) -> Value:
    """A value of SQLite, whose columns may have any type: a text may be a number, and a number a text."""
    is_number_text = kind in _TEXTS and type(value) is float
    return _number_text(value) if is_number_text else conversion(kind, type(value))(value)


def _number_text(value: bool | float) -> str:
    """A number in the form of JSON."""
    if not isfinite(value):
        raise MissingError(NOT_FINITE)
    return orjson.dumps(value).decode()


MISSING: Final = object()
"""Marks a value that a record lacks; NULL is a value."""
_TEXTS: Final = (AttributeType.TEXT, AttributeType.STRING)
_BETWEEN: Final = ", "


def value_at(value: Any, path: str) -> Any:
    """The value at ``path``; a list if the path passes arrays; MISSING if there is none.

    A field whose name is the whole path, with its dots, takes precedence. Raises MalformedError for arrays
    that are nested too deeply for Python.
    """
    try:
        return _find_value(value, path)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> MalformedError:
    return MalformedError(f"expected a text, or an array of texts, got {TOO_DEEP}")


def _find_value(value: Any, path: str) -> Any:
    if isinstance(value, list):
        inner_values = [inner for item in value if (inner := _find_value(item, path)) is not MISSING]
        return inner_values if inner_values else MISSING
    if not isinstance(value, Mapping):
        return MISSING
    if path in value:
        return value[path]
    head, dot, inner_path = path.partition(".")
    return _find_value(value[head], inner_path) if dot and head in value else MISSING


DEEPEST: Final = 8
"""The greatest depth of nested objects that ``leaves`` reads."""


def leaves(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row that are not objects, by their path for ``value_at``.

    A value is a list if its path passes arrays; objects more than ``DEEPEST`` levels deep are left out.
    """
    leaves_by_path: dict[str, Any] = {}
    _put_all(leaves_by_path, "", row, DEEPEST, listed=False)
    return leaves_by_path


def _put_all(
    values_by_path: dict[str, Any], prefix: str, row: Mapping[str, Any], depth: int, *, listed: bool
) -> None:
    # A name with dots first, because it takes precedence over the path through objects.
    for name, value in sorted(row.items(), key=lambda item: "." not in item[0]):
        _put(values_by_path, f"{prefix}{name}", value, depth, listed=listed)


def _put(values_by_path: dict[str, Any], path: str, value: Any, depth: int, *, listed: bool) -> None:
    if isinstance(value, Mapping):
        if depth:
            _put_all(values_by_path, f"{path}.", value, depth - 1, listed=listed)
    elif isinstance(value, list):
        for inner in value:
            _put(values_by_path, path, inner, depth, listed=True)
    elif listed and isinstance(values := values_by_path.setdefault(path, []), list):
        values.append(value)
    else:
        values_by_path.setdefault(path, value)


def attribute_value(attribute: Attribute, value: Any) -> Value:
    """A value from JSON, or from a column of objects, as a value of ``attribute``. Raises MalformedError."""
    if isinstance(value, datetime | date):
        value = value.isoformat()
    if isinstance(value, list):
        return _join_leaves(attribute, list(_leaves(value)))
    if attribute.type in _TEXTS and isinstance(value, bool | float):
        return _number_text(value)
    return conversion(attribute.type, type(value))(value)


def _join_leaves(attribute: Attribute, leaves: list[Any]) -> Value:
    """The value of an array. Raises MissingError with the other elements if some are missing."""
    present = [leaf for leaf in leaves if not _is_no_number(leaf)]
    if len(present) <= 1:
        value = attribute_value(attribute, present[0]) if present else None
    elif attribute.type in _TEXTS:
        value = _BETWEEN.join(str(attribute_value(attribute, leaf)) for leaf in present)
    else:
        raise refusal(attribute.type, present)
    if len(present) < len(leaves):
        raise MissingError(NOT_FINITE, value, len(leaves) - len(present))
    return value


def _is_no_number(value: object) -> bool:
    if isinstance(value, Decimal):
        return not value.is_finite()
    return isinstance(value, float) and not isfinite(value)


def _leaves(value: list[Any]) -> Iterator[Any]:
    open_lists = [iter(value)]
    while open_lists:
        item = next(open_lists[-1], MISSING)
        if item is MISSING:
            open_lists.pop()
        elif isinstance(item, list):
            open_lists.append(iter(item))
        elif item == {}:
            continue
        elif isinstance(item, Mapping):
            raise MalformedError(f"expected a text, or an array of texts, got {shown(item)}")
        elif item is not None:
            yield item


def has_origins(relation: Relation) -> bool:
    """True if records have another name for some attribute."""
    return any(attribute.origin is not None for attribute in relation.attributes)


class Origins:
    """The locations of the attributes of ``relation`` in records.

    A record may also have an attribute under its own name, as records written by skws do, unless records use
    that name for another attribute. If some attributes are inside another one, as ``error.code`` in
    ``error``, the latter has only the values that are no objects.
    """

    def __init__(self, relation: Relation) -> None:
        names = {part for a in relation.attributes if a.origin for part in (a.origin, _head(a.origin))}
        self.known_names = names | {a.name for a in relation.attributes}
        """The names that fields of records may have."""
        self._locations = [
            (a.origin, a.name if a.name not in names else None) if a.origin else (None, a.name)
            for a in relation.attributes
        ]
        columns = [a.column for a in relation.attributes]
        around = {column[:end] for column in columns for end, char in enumerate(column) if char == "."}
        self._around = [number for number, column in enumerate(columns) if column in around]

    def values(self, row: Mapping[str, Any]) -> list[Any]:
        """The values of all attributes in order; MISSING for absent ones."""
        values = [self._value(row, origin, name) for origin, name in self._locations]
        for number in self._around:
            values[number] = _without_objects(values[number])
        return values

    @staticmethod
    def _value(row: Mapping[str, Any], origin: str | None, name: str | None) -> Any:
        value = MISSING if origin is None else value_at(row, origin)
        return row.get(name, MISSING) if value is MISSING and name is not None else value

    def columns(self, names: Container[str]) -> list[tuple[str, str | None] | None]:
        """For each attribute, its column among ``names`` and the path inside the values; None without one."""
        return [_column(names, origin, name) for origin, name in self._locations]


def _without_objects(value: Any) -> Any:
    """A value without the objects in its arrays; MISSING for an object, and for an array of objects only."""
    if isinstance(value, Mapping):
        return MISSING
    if not isinstance(value, list):
        return value
    others = [other for item in value if (other := _without_objects(item)) is not MISSING]
    return others if others or not value else MISSING


def _head(origin: str) -> str:
    return origin.partition(".")[0]


def _column(names: Container[str], origin: str | None, name: str | None) -> tuple[str, str | None] | None:
    if origin is not None:
        if origin in names:
            return origin, None
        head, dot, path = origin.partition(".")
        if dot and head in names:
            return head, path
    return (name, None) if name is not None and name in names else None


def within(attribute: Attribute, path: str) -> Convert:
    """A conversion that takes the value at ``path`` out of a column's value."""

    def convert(value: Any) -> Value:
        inner = value_at(value, path)
        return None if inner is MISSING else attribute_value(attribute, inner)

    return convert


def lenient(attribute: Attribute, convert: Convert) -> Convert:
    """``convert``; for an attribute with an origin, it also accepts lists, booleans and floats."""
    if attribute.origin is None:
        return convert

    def either(value: Any) -> Value:
        return attribute_value(attribute, value) if isinstance(value, list | bool | float) else convert(value)

    return either
