"""Debezium change events as records, with or without the schema/payload wrapper, alone or beside their key.

``c`` and ``r`` insert, ``d`` deletes, ``u`` deletes ``before`` and inserts ``after``
at one time. ``t`` (truncate) has no record and is bad. The time is the source's,
in the finest unit it is given in, else the connector's.

Without a schema, a whole number for a timestamp is taken by its size for days,
seconds, milliseconds, microseconds or nanoseconds since the epoch; from 1973 to
5138 these do not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schema.model import AttributeType, Schema
from skws.records import Record
from skws.replay.encodings import Decode, decoders, micros_by_size
from skws.replay.envelopes import refuse_deletion
from skws.replay.rows import RowReader, no_relation, readers
from skws.replay.values import MalformedError, Micros, shown, within_calendar

# What stands for a large value that PostgreSQL did not log because it did not change.
UNAVAILABLE: Final = "__debezium_unavailable_value"
_CLOCKS: Final = (("ts_us", 1, 1), ("ts_ns", 1, 1000), ("ts_ms", 1000, 1))


def is_change(item: Any) -> bool:
    """Whether a JSON value is a change event, bare, wrapped, or beside its key."""
    if type(item) is not dict:
        return False
    if "payload" in item or ("key" in item and "value" in item):
        return True
    return "op" in item and ("before" in item or "after" in item)


def changed_table(item: Any) -> Any:
    """The table that a change event tells to be of; None if it tells none, as a tombstone does."""
    return _table(_unwrapped(item)[2])


def _table(payload: Any) -> Any:
    source = payload.get("source") if type(payload) is dict else None
    return source.get("table") if isinstance(source, dict) else None


class Changes:
    """Reads change events of the tables that ``schema`` has relations for."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._readers = readers(schema)

    def records(self, item: Any, arrived: int | None = None) -> list[Record]:
        """The records of one event: none for a tombstone, two for an update. Raises MalformedError.

        ``arrived``: the time of an event that does not tell its own.
        """
        key, schema, payload = _unwrapped(item)
        if payload is None:
            return []
        if type(payload) is not dict:
            raise MalformedError(f"expected a change event, got {shown(payload)}")
        change = _Change(self._reader(payload), payload, schema, key, arrived)
        match payload.get("op"):
            case "c" | "r":
                return [change.inserted()]
            case "u":
                return change.updated()
            case "d":
                return [change.deleted()]
            case "t":
                raise MalformedError(
                    f"truncate of {change.reader.relation.name}: a stream has only deletions of single"
                    " tuples (skip it, or have the rows deleted one by one)"
                )
            case op:
                raise MalformedError(f"expected op c, r, u, d or t in a change event, got {shown(op)}")

    def _reader(self, payload: dict[str, Any]) -> RowReader:
        table = _table(payload)
        if not isinstance(table, str):
            raise MalformedError("the change event has no source.table")
        if table not in self._readers:
            raise no_relation(table, self._schema)
        return self._readers[table]


def _unwrapped(item: Any) -> tuple[dict[str, Any] | None, Any, Any]:
    """The key (decoded), the schema and the payload of an event."""
    key: dict[str, Any] | None = None
    if type(item) is dict and "value" in item and "key" in item and "op" not in item:
        key = _key(item["key"])
        item = item["value"]
    if type(item) is dict and "payload" in item:
        return key, item.get("schema"), item["payload"]
    return key, None, item


def _key(key: Any) -> dict[str, Any] | None:
    if type(key) is dict and "payload" in key:
        decode = decoders(key.get("schema"), "") or {}
        key = key["payload"]
        if type(key) is dict:
            return {n: decode[n](v) if n in decode and v is not None else v for n, v in key.items()}
    return key if type(key) is dict else None


class _Change:
    def __init__(
        self,
        reader: RowReader,
        payload: dict[str, Any],
        schema: Any,
        key: dict[str, Any] | None,
        arrived: int | None,
    ) -> None:
        self.reader = reader
        self._arrived = arrived
        self._payload = payload
        self._schema = schema
        self._key = key

    def inserted(self) -> Record:
        row = self.reader.insertion(self._after())
        own = self._time() if self.reader.takes_time(delete=False) else None
        return Record(self.reader.index, self.reader.time(row, own, delete=False), row)

    def updated(self) -> list[Record]:
        """Both at the time of the insertion: a later deletion would take the new row of its key away."""
        refuse_deletion(self.reader)
        new = self.inserted()
        if self._payload.get("before") is None and self.reader.relation.key_of(new.row) is not None:
            # The new row replaces the live one of its key.
            return [new]
        return [Record(new.relation, new.time, self._deletion(), True), new]

    def deleted(self) -> Record:
        refuse_deletion(self.reader)
        row = self._deletion()
        return Record(self.reader.index, self.reader.time(row, self._time(), delete=True), row, True)

    def _after(self) -> Any:
        after, before = self._part("after"), self._payload.get("before")
        if type(after) is not dict:
            raise MalformedError("the change event has no row `after`")
        for name in [name for name, value in after.items() if value == UNAVAILABLE]:
            known = self._part("before").get(name, UNAVAILABLE) if type(before) is dict else UNAVAILABLE
            # What is stored apart is never NULL: a NULL is a `before` of key attributes alone.
            if known is None or known == UNAVAILABLE:
                raise MalformedError(
                    f"{self.reader.relation.name}.{name}: its value did not change and was not logged"
                    " (set REPLICA IDENTITY FULL)"
                )
            after[name] = known
        return after

    def _deletion(self) -> Any:
        name, keyed = self.reader.relation.name, self.reader.relation.key
        before = self._part("before")
        if before is None and self._key is not None and keyed:
            before = self._key
        if type(before) is not dict:
            hint = " or a key beside it" if keyed else f", and {name} has no key"
            raise MalformedError(f"the change event has no row `before`{hint}")
        if keyed:
            before = {n: None if v == UNAVAILABLE and n not in keyed else v for n, v in before.items()}
        return self.reader.deletion(before)

    def _part(self, part: str) -> Any:
        """The row ``before`` or ``after``, its timestamps and decimals decoded."""
        row = self._payload.get(part)
        if type(row) is not dict:
            return row
        known = decoders(self._schema, part)
        decode = self._by_size() if known is None else known
        return {n: self._decoded(n, v, decode) for n, v in row.items()}

    def _by_size(self) -> dict[str, Decode]:
        attributes = self.reader.relation.attributes
        return {a.name: micros_by_size for a in attributes if a.type is AttributeType.TIMESTAMP}

    def _decoded(self, name: str, value: Any, decode: Mapping[str, Decode]) -> Any:
        if value is None or name not in decode:
            return value
        columns = self.reader.relation.columns
        decoded = decode[name](value)
        timestamp = name in columns and (
            self.reader.relation.attributes[columns[name]].type is AttributeType.TIMESTAMP
        )
        # An attribute of another type takes the number as it is written.
        return value if type(decoded) is Micros and not timestamp else decoded

    def _time(self) -> int | None:
        for clocks in (self._payload.get("source"), self._payload):
            for name, up, down in _CLOCKS:
                value = clocks.get(name) if isinstance(clocks, dict) else None
                if type(value) is int and value:
                    return within_calendar(value * up // down, value)
        return self._arrived
