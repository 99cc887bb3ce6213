"""A record that came too late, as a dead letter from which it can be replayed."""

from __future__ import annotations

import orjson

from schema.model import Schema
from skws.records import BadRecord, Record
from skws.results.assemble import iso, json_row


def late_record(record: Record, schema: Schema, lateness: int) -> BadRecord:
    """``record`` as a JSON line of a replay; ``lateness``: what was allowed, in microseconds."""
    relation = schema.relations[record.relation]
    line = {
        "relation": relation.name,
        "time": iso(record.time),
        "op": "-" if record.delete else "+",
        "row": json_row(relation, record.row),
    }
    reason = f"late: more than the allowed {lateness / 1e6:g} seconds behind the latest record"
    return BadRecord("late", 0, 0, orjson.dumps(line), reason)
