"""Change events in the format of Debezium."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws.data.batch import BadRecord, Record
from skws.formats.sampling import sample
from skws.formats.splits import plan, read_split
from skws_schema.infer.infer import infer
from skws_schema.model import Relation, Schema
from skws_schema.yaml.load import parse_schema
from tests.formats.samples import MOVIE, PLAYS, items

SEEN = 1_700_000_000_123_456
ROW = {"mid": 1, "title": "x", "did": 2, "rating": 1.5, "seen": SEEN, "colour": None}
TUPLE = (1, "x", 2, 1.5, SEEN, None)
PLACEHOLDER = "__debezium_unavailable_value"
KEY_ONLY = (1, None, None, None, None, None)


def event(op: str, table: str = "movie", **parts: Any) -> dict[str, Any]:
    return {"op": op, "before": None, "after": None, "source": {"table": table, "ts_ms": 7}} | parts


def read(tmp_path: Path, *events: Any) -> list[Record | BadRecord]:
    (tmp_path / "cdc.jsonl").write_bytes(b"\n".join(map(orjson.dumps, events)) + b"\n")
    return items(tmp_path / "cdc.jsonl")


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: {"payload": e}, lambda e: {"key": None, "value": e}])
@pytest.mark.parametrize("op", ["c", "r"])
def test_an_insert_event_is_a_record(tmp_path: Path, wrap: Any, op: str) -> None:
    assert read(tmp_path, wrap(event(op, after=ROW))) == [Record(MOVIE, 7000, TUPLE)]


def test_tombstones_are_skipped(tmp_path: Path) -> None:
    insertion = event("c", after=ROW)
    records = read(tmp_path, insertion, None, {"key": {"mid": 1}, "value": None}, {"payload": None})
    assert records == [Record(MOVIE, 7000, TUPLE)]


@pytest.mark.parametrize("first", [True, False])
def test_logical_messages_are_skipped_and_counted(tmp_path: Path, first: bool) -> None:
    """Logical messages belong to no table."""
    message = {
        "op": "m",
        "ts_ms": 8,
        "source": {"table": "", "schema": "", "ts_ms": 7},
        "message": {"prefix": "audit", "content": "aGk="},
    }
    insertion = event("c", after=ROW)
    events = (
        [message, {"payload": message}, insertion] if first else [insertion, message, {"payload": message}]
    )
    record, note = read(tmp_path, *events)
    assert record == Record(MOVIE, 7000, TUPLE)
    assert isinstance(note, BadRecord)
    assert (note.reason, note.passed_over) == ("logical messages (op m) of Debezium", 2)


def test_an_undecodable_key_is_a_bad_record_even_in_the_first_line(tmp_path: Path) -> None:
    decimal = {"field": "mid", "name": "org.apache.kafka.connect.data.Decimal"}
    key = {"schema": {"fields": [decimal]}, "payload": {"mid": "!"}}
    bad, good = read(tmp_path, {"key": key, "value": event("c", after=ROW)}, event("c", after=ROW))
    assert isinstance(bad, BadRecord)
    assert "expected a decimal in base64" in bad.reason
    assert good == Record(MOVIE, 7000, TUPLE)


def test_an_update_event_deletes_and_inserts_at_the_same_time(tmp_path: Path) -> None:
    after = ROW | {"title": "y"}
    new = Record(MOVIE, 7000, (1, "y", *TUPLE[2:]))
    assert read(tmp_path, event("u", before=ROW, after=after)) == [Record(MOVIE, 7000, TUPLE, True), new]
    key_only = event("u", before={"mid": 1}, after=after)
    assert read(tmp_path, key_only) == [Record(MOVIE, 7000, KEY_ONLY, True), new]
    assert read(tmp_path, event("u", after=after)) == [new]


@pytest.mark.parametrize("key", [{"mid": 1}, {"schema": {"fields": []}, "payload": {"mid": 1}}])
def test_a_delete_event_uses_the_before_image_or_the_key(tmp_path: Path, key: Any) -> None:
    deletion = Record(MOVIE, 7000, KEY_ONLY, True)
    assert read(tmp_path, event("d", before={"mid": 1})) == [deletion]
    assert read(tmp_path, {"key": key, "value": event("d")}) == [deletion]


@pytest.mark.parametrize(
    ("bad_event", "reason"),
    [
        (event("d"), "no row `before` or a key beside it"),
        ({"key": {"mid": 1}, "value": event("d", "plays")}, "no row `before`, and plays has no key"),
        (event("u", "plays", after={"mid": 1}), "no row `before`, and plays has no key"),
        (event("u", after=ROW | {"mid": None}), "no row `before`"),
        (event("t", "director"), "tables take no deletions"),
        (event("x", after=ROW), "expected op c, r, u, d, t or m in a change event, got 'x'"),
        (event("c", "movies", after=ROW), "no relation 'movies' in schema movies; did you mean 'movie'?"),
        (event("c", after=ROW, source={}), "no source.table"),
        (event("c", after={"mid": 1}), "movie.did is missing, and a join needs it"),
        (event("c"), "no row `after`"),
        (event("d", "director", before={"did": 1}), "tables take no deletions"),
        (event("c", after=ROW, source={"table": "movie"}), "no time"),
        (event("u", before={"mid": 1}, after=ROW | {"title": PLACEHOLDER}), "not logged"),
        ({"payload": {"ddl": "CREATE TABLE"}}, "no source.table"),
        (event("c", after='{"_id": 1}', source={"collection": "film"}), "flatten it with"),
        ({"payload": 3}, "expected a change event, got 3"),
    ],
)
def test_an_invalid_change_event_is_a_bad_record(tmp_path: Path, bad_event: Any, reason: str) -> None:
    good, bad = read(tmp_path, event("c", after=ROW), bad_event)
    assert isinstance(good, Record)
    assert isinstance(bad, BadRecord)
    assert reason in bad.reason
    assert bad.line == 2


@pytest.mark.parametrize(
    "row", [{"id": 1, "payload": {"text": "kettle"}}, {"id": 1, "payload": "x"}, {"key": "a", "value": "x"}]
)
def test_a_row_may_have_the_field_names_of_change_events(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "things.jsonl"
    path.write_bytes(orjson.dumps(row | {"other": None}) + b"\n")
    schema = infer(sample([path]).tables(), "s").schema()
    for definition in (schema, replace(schema, relations=(without_other(schema.relations[0]),))):
        (split,) = plan(path, definition)
        record, *notes = read_split(split, definition)
        assert isinstance(record, Record)
        assert len(notes) == (definition is not schema)


def without_other(relation: Relation) -> Relation:
    return replace(relation, attributes=relation.attributes[:-1], search=())


def test_an_unlogged_value_is_taken_from_the_before_image(tmp_path: Path) -> None:
    after = ROW | {"title": PLACEHOLDER, "did": 3}
    _, new = read(tmp_path, event("u", before=ROW, after=after))
    assert new == Record(MOVIE, 7000, (1, "x", 3, *TUPLE[3:]))


@pytest.mark.parametrize(
    ("source", "micros"),
    [
        ({"ts_ms": 7, "ts_us": 7001, "ts_ns": 7001999}, 7001),
        ({"ts_ms": 7, "ts_ns": 7001999}, 7001),
        ({"ts_ms": 0}, 9000),
        ({}, 9000),
    ],
)
def test_the_finest_source_timestamp_is_the_time(tmp_path: Path, source: Any, micros: int) -> None:
    insertion = event("c", "plays", after={"mid": 1}, source={"table": "plays"} | source, ts_ms=9)
    assert read(tmp_path, insertion) == [Record(PLAYS, micros, (1, None))]


@pytest.mark.parametrize(
    ("name", "value", "micros"),
    [
        ("io.debezium.time.Timestamp", 1_000, 1_000_000),
        ("io.debezium.time.MicroTimestamp", 1_000, 1_000),
        ("io.debezium.time.NanoTimestamp", 1_999, 1),
        ("io.debezium.time.Date", 2, 172_800_000_000),
        ("io.debezium.time.ZonedTimestamp", "1970-01-01T00:00:01Z", 1_000_000),
        (None, 19_000, 19_000 * 86_400_000_000),
        (None, 1_700_000_000, 1_700_000_000_000_000),
        (None, 1_700_000_000_123, 1_700_000_000_123_000),
        (None, SEEN * 1000 + 9, SEEN),
    ],
)
def test_units_of_timestamps_follow_the_schema_or_their_size(
    tmp_path: Path, name: str | None, value: Any, micros: int
) -> None:
    fields = [{"field": "seen", "type": "int64", "name": name}]
    schema = {"fields": [{"field": "after", "fields": fields}]}
    payload = event("c", after=ROW | {"seen": value})
    message = {"payload": payload} if name is None else {"schema": schema, "payload": payload}
    assert read(tmp_path, message) == [Record(MOVIE, 7000, (*TUPLE[:4], micros, None))]


RENAMED = parse_schema("""
relations:
  movie:
    attributes:
      mid: {type: integer, from: Movie ID}
      released: {type: timestamp, from: Released At}
      title: text
    key: [mid]
""")


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        (None, 20454),
        (None, 1767225600000),
        ("io.debezium.time.MicroTimestamp", 1767225600000000),
        ("io.debezium.time.Date", 20454),
    ],
)
def test_the_unit_of_a_timestamp_with_another_name_in_events(
    tmp_path: Path, unit: str | None, value: int
) -> None:
    payload = event("c", after={"Movie ID": 1, "Released At": value})
    fields = [{"field": "after", "fields": [{"field": "Released At", "name": unit}]}]
    path = tmp_path / "cdc.jsonl"
    path.write_bytes(orjson.dumps({"schema": {"fields": fields}, "payload": payload} if unit else payload))
    (split,) = plan(path, RENAMED)
    assert list(read_split(split, RENAMED)) == [Record(0, 7000, (1, 1767225600000000, None))]


def test_an_unlogged_key_with_another_name_in_events_is_a_bad_record(tmp_path: Path) -> None:
    deleted = {"Movie ID": PLACEHOLDER, "title": PLACEHOLDER}
    for name, item in (("cdc", event("d", before=deleted)), ("movie", deleted | {"__deleted": "true"})):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(orjson.dumps(item))
        (split,) = plan(path, RENAMED)
        (bad,) = read_split(split, RENAMED)
        assert isinstance(bad, BadRecord)
        assert bad.reason.startswith("movie.Movie ID: its value did not change and was not logged")


def test_decimals_are_decoded_by_the_schema(tmp_path: Path) -> None:
    decimal = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    fields = [
        {"field": "rating", **decimal},
        {"field": "did", "name": "io.debezium.data.VariableScaleDecimal"},
        {"field": "seen", "name": "io.debezium.time.MicroTimestamp"},
    ]
    schema = {"fields": [{"field": "after", "fields": fields}]}
    payload = event("c", after=ROW | {"rating": "AJY=", "did": {"scale": 0, "value": "/w=="}})
    expected = Record(MOVIE, 7000, (1, "x", -1, 1.5, SEEN, None))
    assert read(tmp_path, {"schema": schema, "payload": payload}) == [expected]
    bad_payload = event("c", after=ROW | {"rating": "?"})
    (bad,) = read(tmp_path, {"schema": schema, "payload": bad_payload})
    assert isinstance(bad, BadRecord)
    assert "expected a decimal" in bad.reason


@pytest.mark.parametrize(
    "placeholder",
    [
        PLACEHOLDER,
        b64encode(PLACEHOLDER.encode()).decode(),
        PLACEHOLDER.encode().hex(),
        [PLACEHOLDER],
        [b64encode(PLACEHOLDER.encode()).decode()],
        list(PLACEHOLDER.encode()),
        {PLACEHOLDER: PLACEHOLDER},
        orjson.dumps({PLACEHOLDER: PLACEHOLDER}).decode(),
    ],
)
def test_the_placeholder_of_an_unlogged_value_is_recognized_in_every_encoding(
    tmp_path: Path, placeholder: object
) -> None:
    after = ROW | {"title": placeholder}
    (bad,) = read(tmp_path, event("u", before={"mid": 1}, after=after))
    assert isinstance(bad, BadRecord)
    assert "movie.title: its value did not change and was not logged" in bad.reason
    _, new = read(tmp_path, event("u", before=ROW, after=after))
    assert new == Record(MOVIE, 7000, TUPLE)
    (deletion,) = read(tmp_path, event("d", before=ROW | {"title": placeholder}))
    assert deletion == Record(MOVIE, 7000, (1, None, *TUPLE[2:]), True)
    (bad_row,) = read_flattened(tmp_path, {"id": 1, "name": placeholder, "__deleted": "false"})
    assert isinstance(bad_row, BadRecord)
    assert "people.name: its value did not change and was not logged" in bad_row.reason


@pytest.mark.parametrize(
    "seen", [1095, -1, 47_847, 94_608_000 - 1, 44_560_000_000_000, 4_133_980_800_000_000]
)
def test_a_timestamp_of_unknown_unit_is_rejected(tmp_path: Path, seen: int) -> None:
    (bad,) = read(tmp_path, event("c", after=ROW | {"seen": seen}))
    assert isinstance(bad, BadRecord)
    assert f"movie.seen: the unit of {seen} is unknown without a schema" in bad.reason


PEOPLE = parse_schema("name: s\nrelations: {people: {attributes: {id: integer, name: text}, key: [id]}}")


def read_flattened(tmp_path: Path, *rows: Any, schema: Schema = PEOPLE) -> list[Record | BadRecord]:
    (tmp_path / "people.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)) + b"\n")
    return items(tmp_path / "people.jsonl", schema)


@pytest.mark.parametrize(
    ("metadata", "delete", "time"),
    [
        ({"__deleted": "true"}, True, 0),
        ({"__deleted": True, "__ts_ms": 7}, True, 7000),
        ({"__deleted": "false", "__op": "c", "__source_ts_ms": 7, "__table": "people"}, False, 7000),
        ({"__op": "d", "__source_ts_us": 7, "__source_ts_ms": 8}, True, 7),
        ({"__op": "u", "__source_ts_ns": "7000"}, False, 7),
    ],
)
def test_flattened_events_are_records(
    tmp_path: Path, metadata: dict[str, Any], delete: bool, time: int
) -> None:
    row = Record(0, time, (1, "Ada"), delete)
    assert read_flattened(tmp_path, {"id": 1, "name": "Ada"} | metadata) == [row]
    columns = {"id": 1, "name": "Ada"} | metadata
    path = tmp_path / "people.csv"
    path.write_text(",".join(columns) + "\n" + ",".join(map(str, columns.values())) + "\n")
    assert items(path, PEOPLE) == [row]


def test_a_flattened_field_in_the_schema_is_an_attribute(tmp_path: Path) -> None:
    schema = parse_schema(
        "name: s\nrelations: {people: {attributes: {id: integer, __deleted: text}, table: true}}"
    )
    (record,) = read_flattened(tmp_path, {"id": 1, "__deleted": "true"}, schema=schema)
    assert record == Record(0, 0, (1, "true"))


def test_a_schema_inferred_from_flattened_events_has_no_metadata(tmp_path: Path) -> None:
    metadata = {"__deleted": "false", "__op": "c", "__source_ts_ms": 7}
    rows = [{"id": 1, "name": "Ada"} | metadata, {"id": 2, "name": "Bo"} | metadata]
    rows += [{"id": 2, "name": "Cy"} | metadata | {"__op": "u"}, {"id": 1} | metadata | {"__deleted": "true"}]
    read_flattened(tmp_path, *rows)
    samples = sample([tmp_path / "people.jsonl"])
    (relation,) = infer(samples.tables(), timed=samples.timed).schema().relations
    assert ([a.name for a in relation.attributes], relation.key, relation.table) == (
        ["id", "name"],
        ("id",),
        False,
    )


@pytest.mark.parametrize("images", [{}, {"before": None, "after": None}])
def test_a_truncate_event_is_a_truncation(tmp_path: Path, images: Any) -> None:
    event_without_images = {
        name: value for name, value in event("t").items() if name not in ("before", "after")
    }
    assert read(tmp_path, event_without_images | images) == [Record.truncation(MOVIE, 7000)]


def test_values_that_were_not_logged_are_found_in_columns(tmp_path: Path) -> None:
    """As in flattened events of JSON: an insertion needs the value, a deletion only needs the key."""
    rows = [
        {"mid": 1, "title": PLACEHOLDER, "did": 2, "__op": "u", "__ts_ms": 7},
        {"mid": 1, "title": PLACEHOLDER, "did": 2, "__op": "d", "__ts_ms": 7},
    ]
    (tmp_path / "movie.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "movie.csv").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "movie.parquet")
    for name in ("movie.jsonl", "movie.csv", "movie.parquet"):
        bad_record, deletion = items(tmp_path / name)
        assert isinstance(bad_record, BadRecord)
        assert "not logged" in bad_record.reason
        assert deletion == Record(MOVIE, 7000, (1, None, 2, None, None, None), delete=True)


ENDLESS = f'"{"9" * 5000}"'
DEEP = "[" * 1000 + "]" * 1000
EVENT = '{"op": "c", "ts_ms": %s, "source": {"table": "movie"}, "after": {"mid": 1, "did": 2, "title": %s}}'
FLATTENED = '{"__op": "c", "__deleted": %s, "__ts_ms": %s, "mid": 1, "did": 2, "title": %s}'


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("cdc.jsonl", EVENT % (ENDLESS, '"x"'), "expected an integer, got '999"),
        ("cdc.jsonl", EVENT % ("7", DEEP), "movie.title: expected a text, got [[[[[["),
        ("movie.jsonl", FLATTENED % ("false", ENDLESS, '"x"'), "expected an integer, got '999"),
        (
            "movie.jsonl",
            FLATTENED % (DEEP, "7", DEEP),
            "movie.title: expected a text, got [[[[[[",
        ),
    ],
)
def test_endless_numbers_and_deep_arrays_are_bad_records(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_text(text + "\n")
    (bad_record,) = items(tmp_path / name)
    assert isinstance(bad_record, BadRecord)
    assert reason in bad_record.reason


def test_an_endless_decimal_is_a_bad_record(tmp_path: Path) -> None:
    decimal = {
        "field": "rating",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }
    schema = {"fields": [{"field": "after", "fields": [decimal]}]}
    after = ROW | {"rating": b64encode(b"\x7f" * 80_000).decode()}
    (bad_record,) = read(tmp_path, {"schema": schema, "payload": event("c", after=after)})
    assert isinstance(bad_record, BadRecord)
    assert bad_record.reason.startswith("movie.rating: expected a decimal in base64 of scale '2'")
