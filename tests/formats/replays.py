"""Writes records as a replay from which the same records can be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from skws.data.batch import Record
from skws_schema.model import Attribute, AttributeType, Schema, Value


def write_replay(path: Path, schema: Schema, records: Iterable[Record]) -> Path:
    """Writes JSON lines, from which times in microseconds are read exactly."""
    with path.open("wb") as file:
        for record in records:
            relation = schema.relations[record.relation]
            line: dict[str, Any] = {"relation": relation.name, "time": record.time / 1_000_000}
            if record.truncates:
                line["op"] = "truncate"
            else:
                line["op"] = "-" if record.delete else "+"
                line["row"] = {
                    a.name: raw_value(a, v) for a, v in zip(relation.attributes, record.row, strict=True)
                }
            file.write(orjson.dumps(line) + b"\n")
    return path


def raw_value(attribute: Attribute, value: Value) -> Value:
    if attribute.type is AttributeType.TIMESTAMP and isinstance(value, int):
        return value / 1_000_000
    return value
