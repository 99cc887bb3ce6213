"""Writing records as a replay that reads back as the same records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from schema.model import Schema
from skws.records import Record


def write_replay(path: Path, schema: Schema, records: Iterable[Record]) -> Path:
    """JSON lines; times in microseconds come back exactly."""
    with path.open("wb") as file:
        for record in records:
            relation = schema.relations[record.relation]
            line = {
                "relation": relation.name,
                "time": record.time / 1_000_000,
                "op": "-" if record.delete else "+",
                "row": {a.name: v for a, v in zip(relation.attributes, record.row, strict=True)},
            }
            file.write(orjson.dumps(line) + b"\n")
    return path
