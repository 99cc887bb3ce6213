"""Records in JSON: ``{"relation": ..., "time": ..., "op": ..., "row": {...}}``, or bare rows of one relation.

A bare row may carry its own ``time`` and ``op`` beside its attributes, where
the relation has no attributes of these names.
"""

from __future__ import annotations

from typing import Any, Final

from schema.errors import nearest
from schema.model import Schema
from skws.records import Record
from skws.replay.rows import RowReader, no_relation, readers
from skws.replay.values import MalformedError, shown, timestamp

FIELDS: Final = frozenset({"relation", "time", "op", "row"})


def is_deletion(op: object) -> bool:
    """Whether ``op`` is ``-``; raises MalformedError if it is neither that nor ``+``."""
    if op == "+":
        return False
    if op == "-":
        return True
    raise MalformedError(f"expected op '+' or '-', got {shown(op)}")


def refuse_deletion(reader: RowReader) -> None:
    """Raises MalformedError if ``reader`` reads a static table."""
    if reader.table:
        raise MalformedError(f"{reader.relation.name} is a table, and tables take no deletions")


class Envelopes:
    """Reads records that name their relation."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._readers = readers(schema)

    def record(self, item: Any, arrived: int | None = None) -> Record:
        """The record of a parsed JSON value; one without a time is of ``arrived``. Raises MalformedError."""
        try:
            reader = self._readers[item["relation"]]
            row = item["row"]
            given = item.get("time")
            op = item.get("op")
        except (KeyError, TypeError, AttributeError):
            raise self._misshapen(item) from None
        if (op is None or given is None or len(item) != len(FIELDS)) and not item.keys() <= FIELDS:
            raise self._misshapen(item)
        if op is not None and op != "+" and is_deletion(op):
            return _deletion(reader, row, given, arrived)
        return _insertion(reader, row, given, arrived)

    def _misshapen(self, item: Any) -> MalformedError:
        if type(item) is not dict:
            return MalformedError(f"expected a JSON object, got {shown(item)}")
        for field in ("relation", "row"):
            if field not in item:
                return MalformedError(f"the record has no field '{field}'")
        name = item["relation"]
        if not isinstance(name, str) or name not in self._readers:
            return no_relation(name, self._schema)
        extra = next(field for field in item if field not in FIELDS)
        return MalformedError(f"a record has no field {shown(extra)}{nearest(extra, FIELDS)}")


class BareRows:
    """Reads rows of the one relation at position ``relation``."""

    def __init__(self, schema: Schema, relation: int) -> None:
        self._reader = RowReader(schema, relation)
        self._own = frozenset({"time", "op"} - self._reader.relation.columns.keys())

    def record(self, item: Any, arrived: int | None = None) -> Record:
        """The record of a parsed JSON value; one without a time is of ``arrived``. Raises MalformedError."""
        if type(item) is not dict or self._own.isdisjoint(item):
            values = self._reader.insertion(item)
            return Record(self._reader.index, self._reader.time(values, arrived, delete=False), values)
        row = {name: value for name, value in item.items() if name not in self._own}
        given = item.get("time") if "time" in self._own else None
        if "op" in self._own and item.get("op") is not None and is_deletion(item["op"]):
            return _deletion(self._reader, row, given, arrived)
        return _insertion(self._reader, row, given, arrived)


def _insertion(reader: RowReader, row: Any, given: Any, arrived: int | None) -> Record:
    values = reader.insertion(row)
    if reader.stamped and given is not None:
        return Record(reader.index, timestamp(given), values)
    return Record(reader.index, reader.time(values, arrived, delete=False), values)


def _deletion(reader: RowReader, row: Any, given: Any, arrived: int | None) -> Record:
    refuse_deletion(reader)
    values = reader.deletion(row)
    own = arrived if given is None else timestamp(given)
    return Record(reader.index, reader.time(values, own, delete=True), values, True)
