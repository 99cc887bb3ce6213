"""Debezium change events as records, with or without their wrapper, alone or beside their key.

``c`` and ``r`` insert, ``d`` deletes, ``u`` deletes ``before`` and inserts ``after`` at the same time. ``t``
deletes all rows. ``m``, a logical message, belongs to no table. The time is the source's in the finest
available unit, else the connector's.

Without a schema, the unit of an integer timestamp follows from its size: days, seconds, milliseconds,
microseconds or nanoseconds since the epoch. From 1973 to 2100 these do not overlap; other years are refused.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from skws.data.batch import BadRecord, Record
from skws.data.value_conversion import LONGEST, MalformedError, Micros
from skws.formats.rows import (
    UNAVAILABLE,
    RowReader,
    clock_of,
    is_unavailable,
    no_relation,
    not_logged,
    notes,
    readers,
    refuse_deletion,
)
from skws_schema.errors import shown
from skws_schema.model import AttributeType, Schema

Decode: TypeAlias = Callable[[Any], Any]

# n in a unit (up, down) is n * up // down microseconds.
_UNITS: Final = {
    "io.debezium.time.Timestamp": (1000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1000, 1),
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1000),
    "io.debezium.time.Date": (86_400_000_000, 1),
    "org.apache.kafka.connect.data.Date": (86_400_000_000, 1),
}
_WRAPPER: Final = {"schema", "payload"}
_ROWLESS: Final = ("t", "m")
_MESSAGES: Final = "logical messages (op m) of Debezium"
_OF_DOCUMENTS: Final = (
    "a change of a document of MongoDB, not a row: flatten it with the transformation"
    " ExtractNewDocumentState of Debezium, and read its output as rows"
)
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_LONGEST_BYTES: Final = LONGEST * 5 // 12
"""The size of an integer of ``LONGEST`` digits, which takes a second; the time is quadratic in the size."""
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"

_FIRST: Final = 1096 * 86_400_000_000
_END: Final = 47_847 * 86_400_000_000
# Integers below the first limit are days, below the second seconds, ...
_SIZES: Final = (
    (10**5, (86_400_000_000, 1)),
    (10**11, (1_000_000, 1)),
    (10**14, (1000, 1)),
    (10**17, (1, 1)),
)


def decoders(schema: Any, part: str) -> dict[str, Decode] | None:
    """The decoders of the fields of ``part`` (``before``, ``after``, or ``""`` for a key).

    Fields that need no decoding are left out; None if there is no such schema.
    """
    fields = _fields(schema)
    if part and fields is not None:
        fields = next((_fields(f) for f in fields if f.get("field") == part), None)
    if fields is None:
        return None
    named_decoders = ((field.get("field"), _decoder(field)) for field in fields)
    return {name: decode for name, decode in named_decoders if isinstance(name, str) and decode is not None}


def _fields(schema: Any) -> list[dict[str, Any]] | None:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else None


def _decoder(field: dict[str, Any]) -> Decode | None:
    name = field.get("name")
    if not isinstance(name, str):
        return None
    if name in _UNITS:
        up, down = _UNITS[name]
        return lambda value: _scaled(value, up, down)
    if name == _DECIMAL:
        parameters = field.get("parameters")
        scale = parameters.get("scale", "0") if isinstance(parameters, dict) else "0"
        return lambda value: _decimal(value, scale)
    if name == _VARIABLE:
        return _variable_decimal
    return None


def exact_row(schema: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The row ``after`` a change, with decimals decoded by the event's schema."""
    field_decoders = {
        name: decode
        for name, decode in (decoders(schema, "after") or {}).items()
        if isinstance(row.get(name), str | dict)  # times are integers
    }
    try:
        return row | {name: decode(row[name]) for name, decode in field_decoders.items()}
    except MalformedError:
        return row


def micros_by_size(value: Any) -> Any:
    """An integer as an instant, with the unit by its size; other values unchanged."""
    if type(value) is not int:
        return value
    up, down = next((unit for limit, unit in _SIZES if abs(value) < limit), (1, 1000))
    micros = value * up // down
    if not _FIRST <= micros < _END:
        raise MalformedError(
            f"the unit of {shown(value)} is unknown without a schema, since no unit gives a time from 1973 to"
            " 2100; let the connector send schemas, or times as texts (time.precision.mode=isostring)"
        )
    return Micros(micros)


def _scaled(value: Any, up: int, down: int) -> Any:
    return Micros(value * up // down) if type(value) is int else value


def _decimal(value: Any, scale: Any) -> Any:
    """A decimal from a base64 big-endian integer, divided by ten to the ``scale``; numbers are unchanged."""
    if not isinstance(value, str):
        return value
    try:
        data = b64decode(value, validate=True)
        if len(data) <= _LONGEST_BYTES and abs(int(scale)) < LONGEST:
            sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
            return Decimal((sign, digits, -int(scale)))  # arithmetic would round to the digits of a context
    except (ValueError, TypeError, ArithmeticError):
        pass
    raise MalformedError(f"expected a decimal in base64 of scale {shown(scale)}, got {shown(value)}")


def _variable_decimal(value: Any) -> Any:
    return _decimal(value.get("value"), value.get("scale")) if isinstance(value, dict) else value


def is_change(item: Any) -> bool:
    """True if a JSON value is a change event, bare, wrapped, or beside its key, or a tombstone with a key.

    A row may have fields called ``payload``, or ``key`` and ``value``, too.
    """
    if _is_event(item):
        return True
    if type(item) is not dict or "key" not in item or "value" not in item:
        return False
    return item["value"] is None or _is_event(item["value"])


def _is_event(item: Any) -> bool:
    if type(item) is not dict:
        return False
    if "payload" in item and item.keys() <= _WRAPPER:
        return True
    if "op" not in item:
        return False
    # Events of truncations and logical messages may have no rows.
    return (
        "before" in item
        or "after" in item
        or (item["op"] in _ROWLESS and isinstance(item.get("source"), dict))
    )


def changed_table(item: Any) -> Any:
    """The table of a change event; None if the event names none, as a tombstone does."""
    return _table(unwrap(item)[2])


def _table(payload: Any) -> Any:
    return _source(payload).get("table")


def _source(payload: Any) -> dict[str, Any]:
    source = payload.get("source") if type(payload) is dict else None
    return source if isinstance(source, dict) else {}


class ChangeReader:
    """Reads change events of tables that are relations of ``schema``."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._readers = readers(schema)
        self._messages = 0  # messages passed over since the last notes

    def records(self, item: Any, default_time: int | None = None) -> list[Record]:
        """The records of one event: two for an update, none for a tombstone or a logical message.

        ``default_time``: the time of an event without a time. Raises MalformedError.
        """
        raw_key, schema, payload = unwrap(item)
        key = _key(raw_key)
        if payload is None:
            return []
        if type(payload) is not dict:
            raise MalformedError(f"expected a change event, got {shown(payload)}")
        if payload.get("op") == "m":
            self._messages += 1
            return []
        change = _Change(self._reader(payload), payload, schema, key, default_time)
        match payload.get("op"):
            case "c" | "r":
                return [change.insertion()]
            case "u":
                return change.update()
            case "d":
                return [change.deletion()]
            case "t":
                return [change.truncation()]
            case op:
                raise MalformedError(f"expected op c, r, u, d, t or m in a change event, got {shown(op)}")

    def notes(self, source: str) -> list[BadRecord]:
        """Notes on events passed over since the last call."""
        passed_over = notes(self._readers, source)
        if self._messages:
            passed_over.append(BadRecord(source, 0, 0, b"", _MESSAGES, passed_over=self._messages))
            self._messages = 0
        return passed_over

    def _reader(self, payload: dict[str, Any]) -> RowReader:
        table = _table(payload)
        if not isinstance(table, str):
            if "collection" in _source(payload):
                raise MalformedError(_OF_DOCUMENTS)
            raise MalformedError("the change event has no source.table")
        if table not in self._readers:
            raise no_relation(table, self._schema)
        return self._readers[table]


def unwrap(item: Any) -> tuple[Any, Any, Any]:
    """The key, the schema and the payload of a change event."""
    key: Any = None
    if type(item) is dict and "value" in item and "key" in item and "op" not in item:
        key, item = item["key"], item["value"]
    if type(item) is dict and "payload" in item:
        return key, item.get("schema"), item["payload"]
    return key, None, item


def _key(key: Any) -> dict[str, Any] | None:
    """A key's attributes, decoded; None if it is not an object."""
    if type(key) is dict and "payload" in key:
        decode = decoders(key.get("schema"), "") or {}
        key = key["payload"]
        if type(key) is dict:
            return {n: decode[n](v) if n in decode and v is not None else v for n, v in key.items()}
    return key if type(key) is dict else None


@dataclass(frozen=True, slots=True)
class _Change:
    reader: RowReader
    payload: dict[str, Any]
    schema: Any
    key: dict[str, Any] | None
    default_time: int | None

    def insertion(self) -> Record:
        row = self.reader.insertion(self._new_row())
        time = self._time() if self.reader.takes_time(delete=False) else None
        return self.reader.record(row, time)

    def update(self) -> list[Record]:
        """The records of an update, at one time: a later deletion would remove the new row of the key."""
        refuse_deletion(self.reader)
        new = self.insertion()
        if self.payload.get("before") is None and self.reader.relation.key_of(new.row) is not None:
            # The new row replaces the live one of its key.
            return [new]
        return [Record(new.relation, new.time, self._deleted_row(), True), new]

    def deletion(self) -> Record:
        refuse_deletion(self.reader)
        return self.reader.record(self._deleted_row(), self._time(), delete=True)

    def truncation(self) -> Record:
        return self.reader.truncation(self._time())

    def _new_row(self) -> Any:
        after, before = self._decoded_part("after"), self.payload.get("before")
        if type(after) is not dict:
            raise MalformedError("the change event has no row `after`")
        for name in [name for name, value in after.items() if is_unavailable(value)]:
            old_value = (
                self._decoded_part("before").get(name, UNAVAILABLE) if type(before) is dict else UNAVAILABLE
            )
            # A value stored out of line is never NULL: NULL means that `before` only has key attributes.
            if old_value is None or is_unavailable(old_value):
                raise not_logged(self.reader.relation.name, name)
            after[name] = old_value
        return after

    def _deleted_row(self) -> Any:
        relation_name, key_names = self.reader.relation.name, self.reader.relation.key
        before = self._decoded_part("before")
        if before is None and self.key is not None and key_names:
            before = self.key
        if type(before) is not dict:
            hint = " or a key beside it" if key_names else f", and {relation_name} has no key"
            raise MalformedError(f"the change event has no row `before`{hint}")
        if key_names:
            is_key = self.reader.is_key_field
            before = {n: None if is_unavailable(v) and not is_key(n) else v for n, v in before.items()}
            for name in [name for name, value in before.items() if is_unavailable(value)]:
                raise not_logged(relation_name, name)
        return self.reader.deletion(before)

    def _decoded_part(self, part: str) -> Any:
        """The row ``before`` or ``after``, with timestamps and decimals decoded."""
        row = self.payload.get(part)
        if type(row) is not dict:
            return row
        part_decoders = decoders(self.schema, part)
        decode = self._timestamp_decoders() if part_decoders is None else part_decoders
        return {n: self._decode_value(n, v, decode) for n, v in row.items()}

    def _timestamp_decoders(self) -> dict[str, Decode]:
        attributes = self.reader.attributes_by_field.items()
        return {name: micros_by_size for name, a in attributes if a.type is AttributeType.TIMESTAMP}

    def _decode_value(self, name: str, value: Any, decode: Mapping[str, Decode]) -> Any:
        if value is None or name not in decode:
            return value
        try:
            decoded = decode[name](value)
        except MalformedError as error:
            raise MalformedError(f"{self.reader.relation.name}.{name}: {error}") from None
        attribute = self.reader.attributes_by_field.get(name)
        is_timestamp = attribute is not None and attribute.type is AttributeType.TIMESTAMP
        # An attribute of another type gets the number unchanged.
        return value if type(decoded) is Micros and not is_timestamp else decoded

    def _time(self) -> int | None:
        for clocks in (self.payload.get("source"), self.payload):
            clock = clock_of(clocks) if isinstance(clocks, dict) else None
            if clock is not None:
                return clock
        return self.default_time
