"""Late records: the notice for the user, and a dead letter that can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from skws.data.record import BadRecord, Record
from skws.results.assemble import iso, json_row
from skws_schema.model import Schema
from skws_windows.window import duration_text, rounded_up


class Late(NamedTuple):
    """A late record; ``reached``: the latest event time before it, in microseconds."""

    record: Record
    reached: int


def late_record(record: Record, schema: Schema, lateness: int) -> BadRecord:
    """``record`` as a JSON line of a replay; ``lateness``: the allowed lateness, in microseconds."""
    relation = schema.relations[record.relation]
    line = {
        "relation": relation.name,
        "time": iso(record.time),
        "op": "-" if record.delete else "+",
        "row": json_row(relation, record.row),
    }
    reason = f"late: more than the allowed {lateness / 1e6:g} seconds behind the latest record"
    return BadRecord("late", 0, 0, orjson.dumps(line), reason)


def late_letters(late: Sequence[Late], schema: Schema, lateness: int) -> list[BadRecord]:
    """Late records as dead letters."""
    return [late_record(one.record, schema, lateness) for one in late]


def late_notice(late: Late, schema: Schema, lateness: int) -> str:
    """The notice of a run's first late record: which it is, how late, and what to do."""
    record, reached = late
    what = f"{'a deletion' if record.delete else 'a tuple'} of {schema.relations[record.relation].name}"
    needed = duration_text(rounded_up(reached - record.time))
    return (
        f"{what} came too late: its time is {iso(record.time)}, that of the latest record was {iso(reached)},"
        f" and the lateness is {duration_text(lateness)}; late records are left out and counted"
        f" (--lateness '{needed}' would take this one)"
    )
