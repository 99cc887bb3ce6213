"""Records of messages: JSON records, bare rows of the topic's relation, Debezium events.

A message's key is used only where its value does not identify the deleted row:
with a tombstone, and with an event without ``before``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from skws.data.record import BadRecord, Item, Record
from skws.data.values import MalformedError, shown
from skws.formats.debezium import ChangeReader, is_change
from skws.formats.files import not_json
from skws.formats.rows import BareRowReader, RecordReader, RowReader, refuse_deletion
from skws.sources.kafka.address import Form
from skws_schema.errors import SourceError
from skws_schema.model import Relation, Schema

# The length of the prefix by serializers of schema registries: a zero and the number of a schema.
_REGISTRY: Final = 5


def relation_of(topic: str, schema: Schema) -> int | None:
    """The position of the relation that a topic is named after: its whole name, or after the last dot."""
    for name in (topic, topic.rpartition(".")[2]):
        if name in schema.index:
            return schema.index[name]
    return None


class TopicReader:
    """Reads the messages of one topic. Raises SourceError if the topic cannot have this form."""

    def __init__(self, topic: str, schema: Schema, form: Form) -> None:
        relation = relation_of(topic, schema)
        if form is Form.ROWS and relation is None:
            names = ", ".join(schema.index)
            raise SourceError(f"topic {topic}: format=rows needs a topic named after a relation: {names}")
        bare = relation is not None and form in (Form.AUTO, Form.ROWS)
        self._topic = topic
        self._form = form
        self._rows = BareRowReader(schema, relation) if bare and relation is not None else None
        self._row = RowReader(schema, relation) if bare and relation is not None else None
        self._columns = set(self._row.relation.columns) if self._row is not None else set()
        self._records = RecordReader(schema)
        self._changes = ChangeReader(schema)
        self._passed_over = False

    def notices(self) -> tuple[str, ...]:
        """Notices about the messages so far, each once."""
        if not self._passed_over or self._row is None:
            return ()
        self._passed_over, self._row = False, None
        return (
            f"topic {self._topic}: null values are skipped, like those after Debezium's deletions;"
            " with ?format=rows they delete the row of their key",
        )

    def items(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, arrived: int | None
    ) -> list[Item]:
        """The items of a message: none for a tombstone among changes, two for an update.

        ``arrived``: the message's time in microseconds, if it has one.
        """
        try:
            if value is None:
                return self._tombstone(key, arrived)
            return [*self._read(_parsed(value), key, arrived), *self._notes()]
        except MalformedError as error:
            raw = key if value is None and key is not None else value or b""
            source = f"{self._topic}[{partition}]"
            return [BadRecord(source, 0, offset, raw, str(error), f"at offset {offset}")]

    def _notes(self) -> Iterator[BadRecord]:
        """What was passed over in the last messages."""
        for reader in (self._rows, self._records, self._changes):
            if reader is not None:
                yield from reader.notes(self._topic)

    def _read(self, item: Any, key: bytes | None, arrived: int | None) -> list[Item]:
        if item is None:
            return self._tombstone(key, arrived)
        match self._form_of(item):
            case Form.ROWS if self._rows is not None:
                return [self._rows.record(item, arrived)]
            case Form.DEBEZIUM:
                return list(self._changed(item, key, arrived))
        return [self._records.record(item, arrived)]

    def _form_of(self, item: Any) -> Form:
        """The form of a value: as in the address, else by its fields."""
        if self._form is not Form.AUTO:
            return self._form
        if type(item) is not dict:
            return Form.ROWS
        if self._rows is not None and item.keys() <= self._columns:
            return Form.ROWS
        if "relation" in item:
            return Form.RECORDS
        return Form.DEBEZIUM if is_change(item) else Form.ROWS

    def _changed(self, item: Any, key: bytes | None, arrived: int | None) -> list[Record]:
        try:
            return self._changes.records(item, arrived)
        except MalformedError:
            told = _key(key)
            if told is None:
                raise
            return self._changes.records({"key": told, "value": item}, arrived)

    def _tombstone(self, key: bytes | None, arrived: int | None) -> list[Item]:
        """A null value deletes the row of its key in a topic of rows; elsewhere it is ignored."""
        if self._form is not Form.ROWS or self._row is None:
            self._passed_over = True
            return []
        refuse_deletion(self._row)
        row = self._row.deletion(_named(_key(key), self._row.relation))
        return [self._row.record(row, arrived, delete=True)]


def _named(key: Any, relation: Relation) -> dict[str, Any]:
    """The key's attributes, from an object or a single value."""
    if type(key) is dict and "payload" in key:
        key = key["payload"]
    names = relation.key
    if names:
        if type(key) is dict and all(key.get(name, 0) is not None for name in names):
            return {name: value for name, value in key.items() if name in names}
        if len(names) == 1 and type(key) in (str, int, float):
            return {names[0]: key}
    reason = f"the message's key {shown(key)} does not say which" if names else f"{relation.name} has no key"
    raise MalformedError(f"a null value deletes a row, and {reason}")


def _parsed(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        if value[:1] != b"\0":
            raise MalformedError(not_json(value, error)) from None
    try:
        return orjson.loads(value[_REGISTRY:])
    except orjson.JSONDecodeError:
        raise MalformedError(
            "not JSON; Avro and Protobuf, which need a schema registry, are not read"
        ) from None


def _key(key: bytes | None) -> Any:
    """A message's key: as JSON, else as text; None if there is none."""
    if key is None:
        return None
    try:
        return _parsed(key)
    except MalformedError:
        return key.decode(errors="replace")
