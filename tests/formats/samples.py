"""A schema for replay tests, and the same records written in every format."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from skws.data.batch import BadRecord, Record
from skws.formats import BadRecordLog, Replay, plan, read_split
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema, Value

T = AttributeType
SCHEMA = Schema(
    "movies",
    (
        Relation("director", (Attribute("did", T.INTEGER), Attribute("name", T.TEXT)), table=True),
        Relation(
            "movie",
            (
                Attribute("mid", T.INTEGER),
                Attribute("title", T.TEXT),
                Attribute("did", T.INTEGER),
                Attribute("rating", T.NUMBER),
                Attribute("seen", T.TIMESTAMP),
                Attribute("colour", T.BOOLEAN),
            ),
            key=("mid",),
        ),
        Relation("plays", (Attribute("mid", T.INTEGER), Attribute("role", T.STRING))),
    ),
    (
        Join("directs", "director", "movie", (("did", "did"),)),
        Join("cast", "movie", "plays", (("mid", "mid"),)),
    ),
)
DIRECTOR, MOVIE, PLAYS = range(3)
# From 1973 on, where an event without a schema distinguishes microseconds by their size.
MICROS = st.integers(100_000_000_000_000, 4_000_000_000_000_000)
INTEGERS = st.none() | st.integers(-(2**63), 2**63 - 1)
# CSV writes empty texts and NULL the same way.
TEXTS = st.none() | st.text(min_size=1, max_size=8).filter(lambda t: "\x00" not in t) | st.just('a"b,\r\nc')
NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ROWS = {
    PLAYS: st.tuples(INTEGERS, TEXTS),
    MOVIE: st.tuples(INTEGERS, TEXTS, INTEGERS, NUMBERS, st.none() | MICROS, st.none() | st.booleans()),
}
RECORDS = st.lists(
    st.sampled_from(sorted(ROWS)).flatmap(
        lambda r: st.builds(Record, st.just(r), MICROS, ROWS[r], st.booleans())
    ),
    min_size=1,
    max_size=8,
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(micros: int) -> str:
    return (EPOCH + timedelta(microseconds=micros)).isoformat()


def raw_row(record: Record) -> dict[str, Value]:
    """The row as in JSON and CSV."""
    row: dict[str, Value] = {}
    for attribute, value in zip(SCHEMA.relations[record.relation].attributes, record.row, strict=True):
        is_time = attribute.type is T.TIMESTAMP and isinstance(value, int)
        row[attribute.name] = iso(int(value)) if is_time and value is not None else value
    return row


def record_columns(record: Record) -> dict[str, Value]:
    """The record without its row, in the form of columns."""
    return {
        "relation": SCHEMA.relations[record.relation].name,
        "time": iso(record.time),
        "op": "-" if record.delete else "+",
    }


def json_lines(path: Path, records: Iterable[Record]) -> None:
    lines = [orjson.dumps({**record_columns(r), "row": raw_row(r)}) + b"\n" for r in records]
    path.write_bytes(b"".join(lines))


def stream_rows(records: Sequence[Record]) -> list[dict[str, Value]]:
    return [{**record_columns(r), **raw_row(r)} for r in records]


NAMES = ("relation", "time", "op", *dict.fromkeys(a.name for r in SCHEMA.relations for a in r.attributes))


def csv_text(names: Sequence[str], rows: Iterable[dict[str, Value]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def csv_stream(path: Path, records: Sequence[Record]) -> None:
    path.write_bytes(csv_text(NAMES, stream_rows(records)).encode())


def csv_json_rows(path: Path, records: Sequence[Record]) -> None:
    rows: list[dict[str, Value]] = [
        {**record_columns(r), "row": orjson.dumps(raw_row(r)).decode()} for r in records
    ]
    path.write_bytes(csv_text(("relation", "time", "op", "row"), rows).encode())


_ARROW = {
    T.TEXT: pa.string(),
    T.STRING: pa.string(),
    T.INTEGER: pa.int64(),
    T.NUMBER: pa.float64(),
    T.BOOLEAN: pa.bool_(),
    T.TIMESTAMP: pa.timestamp("us"),
}


def parquet_stream(path: Path, records: Sequence[Record]) -> None:
    types = {a.name: _ARROW[a.type] for r in SCHEMA.relations for a in r.attributes}
    record_types = {
        "relation": pa.dictionary(pa.int32(), pa.string()),
        "time": pa.timestamp("us", "UTC"),
        "op": pa.string(),
    }
    rows = [
        {
            **record_columns(r),
            "time": r.time,
            **dict(zip(SCHEMA.relations[r.relation].columns, r.row, strict=True)),
        }
        for r in records
    ]
    fields = [pa.field(name, {**record_types, **types}[name]) for name in NAMES]
    arrays = [pa.array([row.get(f.name) for row in rows], _arrow_input(f.type)).cast(f.type) for f in fields]
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path, row_group_size=3)


def _arrow_input(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return pa.string()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def debezium(path: Path, records: Iterable[Record]) -> None:
    """Change events without a schema, with timestamps in microseconds."""
    lines = []
    for record in records:
        relation = SCHEMA.relations[record.relation]
        row = dict(zip(relation.columns, record.row, strict=True))
        event: dict[str, object] = {
            "op": "d" if record.delete else "c",
            "before": row if record.delete else None,
            "after": None if record.delete else row,
            "source": {"table": relation.name, "ts_us": record.time},
        }
        lines.append(orjson.dumps({"payload": event}) + b"\n")
    path.write_bytes(b"".join(lines))


STREAMS: dict[str, Callable[[Path, Sequence[Record]], None]] = {
    "s.jsonl": json_lines,
    "s.csv": csv_stream,
    "rows.csv": csv_json_rows,
    "s.parquet": parquet_stream,
    "cdc.jsonl": debezium,
}


def items(path: Path, schema: Schema = SCHEMA, split_bytes: int = 1 << 26) -> list[Record | BadRecord]:
    """All items from ``path``, in order of arrival."""
    splits = plan(path, schema, split_bytes=split_bytes)
    return [item for split in splits for item in read_split(split, schema)]


def records(path: Path, schema: Schema = SCHEMA) -> list[Record]:
    """All records, none of which may be bad."""
    all_items = items(path, schema)
    good_records = [item for item in all_items if isinstance(item, Record)]
    assert len(good_records) == len(all_items), [i for i in all_items if isinstance(i, BadRecord)]
    return good_records


def bad_records(path: Path, schema: Schema = SCHEMA) -> list[BadRecord]:
    return [item for item in items(path, schema) if isinstance(item, BadRecord)]


def by_rows(replay: Replay, log: BadRecordLog) -> list[Record]:
    """The records of a replay's stream, read one by one and sorted."""
    records = log.records(item for split in replay.splits for item in read_split(split, replay.schema))
    return sorted((r for r in records if not replay.schema.relations[r.relation].table), key=lambda r: r.time)
