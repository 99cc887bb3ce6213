"""Attributes that are unknown or renamed in the schema are handled alike in every format and host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws.data.batch import BadRecord, Chunk, Record
from skws.data.packing import unpack
from skws.formats import BadRecordLog, Replay, read_split
from skws.formats.debezium import ChangeReader
from skws.formats.frame_records import frame_chunks
from skws.formats.jsonl import TextReader
from skws.formats.splits import Holds, read_pieces, unpack_bad
from skws.sources.growing_files import FilesFeed
from skws.spec.enums import OnError
from skws_schema.model import Schema, Unknown
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from tests.commands import Skws

PLAIN = """\
relations:
  order: {attributes: {number: integer, item: text}}
"""
RENAMED = """\
relations:
  order:
    attributes:
      number: {type: integer, from: Order ID}
      city: {type: text, from: customer.address.city}
      items: {type: text, from: items.name}
      tags: {type: text, from: tags}
    key: [number]
"""
ORDER = {
    "Order ID": 7,
    "customer": {"name": "Ada", "address": {"city": "Leeds", "zip": "LS1"}},
    "items": [{"name": "kettle", "price": 3}, {"name": "lamp"}, {"price": 1}],
    "tags": ["red", 1.5, True, None, ["blue"]],
}
ROW = (7, "Leeds", "kettle, lamp", "red, 1.5, true, blue")


def json_records(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [{"relation": "order", "time": n, "row": row} for n, row in enumerate(rows, 1)]
    return write_lines(path / "day.jsonl", lines)


def json_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write_lines(path / "order.jsonl", [{"time": n, **row} for n, row in enumerate(rows, 1)])


def csv_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join([str(n), *(str(row.get(name, "")) for name in names)]) for n, row in enumerate(rows, 1)]
    file = path / "order.csv"
    file.write_text("\n".join([",".join(["time", *names]), *lines]) + "\n")
    return file


def parquet_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = {name: [row.get(name) for row in rows] for name in names}
    times = pa.array([n * 1_000_000 for n, _ in enumerate(rows, 1)], pa.timestamp("us"))
    pq.write_table(pa.table({"time": times, **table}), path / "order.parquet")
    return path / "order.parquet"


def write_lines(file: Path, lines: list[dict[str, Any]]) -> Path:
    file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return file


Write = Callable[[Path, list[dict[str, Any]]], Path]
WRITERS = [json_records, json_rows, csv_rows, parquet_rows]


def read(path: Path, schema: Schema) -> tuple[list[tuple[Any, ...]], dict[str, int], list[str]]:
    """The rows, skipped values, and reasons of bad records; reading by piece must agree."""
    splits = Replay.open(path, schema).splits
    chunk = Chunk.of(item for split in splits for item in read_split(split, schema))
    pieces = [piece for split in splits for piece in read_pieces(split, schema)]
    piece_records = [
        record for piece, blob in pieces if piece.holds is Holds.RECORDS for record in unpack(blob).records()
    ]
    assert piece_records == list(chunk.records.records())
    assert [bad for piece, blob in pieces if piece.holds is Holds.BAD for bad in unpack_bad(blob)] == list(
        chunk.bad
    )
    with BadRecordLog(OnError.SKIP) as policy:
        batches = [
            record for batch in Replay.open(path, schema).batches(policy) for record in batch.records()
        ]
    assert batches == piece_records
    assert policy.count == sum(not bad.passed_over for bad in chunk.bad)
    return (
        [record.row for record in piece_records],
        dict(policy.passed_over),
        [bad.reason for bad in chunk.bad if not bad.passed_over],
    )


@pytest.mark.parametrize("write", WRITERS)
def test_unknown_attributes_are_ignored_and_counted(tmp_path: Path, write: Write) -> None:
    rows = [
        {"number": 1, "item": "lamp"},
        {"number": 2, "item": "cup", "itme": "x"},
        {"number": 3, "itme": "y"},
    ]
    result = read(write(tmp_path, rows), parse_schema(PLAIN))
    missing = "order has no attribute 'itme'; did you mean 'item'?"
    assert result == ([(1, "lamp"), (2, "cup"), (3, None)], {missing: 2}, [])


@pytest.mark.parametrize("write", WRITERS)
def test_unknown_attributes_can_make_records_bad(tmp_path: Path, write: Write) -> None:
    schema = parse_schema("unknown: fail\n" + PLAIN)
    rows = [{"number": 1, "item": "lamp"}, {"number": 2, "item": "cup", "itme": "x"}]
    result = read(write(tmp_path, rows), schema)
    assert result == ([(1, "lamp")], {}, ["order has no attribute 'itme'; did you mean 'item'?"])


@pytest.mark.parametrize("write", WRITERS)
def test_rows_without_any_known_attribute_are_bad(tmp_path: Path, write: Write) -> None:
    _, skipped, bad = read(write(tmp_path, [{"colour": "x", "year": 3}]), parse_schema(PLAIN))
    assert (skipped, bad) == ({}, ["order has no attribute 'colour'"])


@pytest.mark.parametrize("write", [json_records, json_rows, parquet_rows])
def test_renamed_and_nested_attributes_are_read(tmp_path: Path, write: Write) -> None:
    order = ORDER
    if write is parquet_rows:  # lists in Parquet have a single type
        order = {**ORDER, "tags": ["red", "blue"]}
    rows, skipped, bad = read(write(tmp_path, [order]), parse_schema(RENAMED))
    assert rows == [ROW if order is ORDER else (*ROW[:3], "red, blue")]
    assert (skipped, bad) == ({}, [])


def test_csv_columns_with_blanks_and_dots_are_read(tmp_path: Path) -> None:
    file = tmp_path / "order.csv"
    file.write_text("time,Order ID,customer.address.city,note\n1,7,Leeds,\n2,8,York,x\n")
    rows, skipped, bad = read(file, parse_schema(RENAMED))
    assert rows == [(7, "Leeds", None, None), (8, "York", None, None)]
    assert (skipped, bad) == ({"order has no attribute 'note'": 1}, [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"Order ID": [1, 2]}, "order.number: expected an integer, got [1, 2]"),
        ({"tags": [{"a": 1}]}, "order.tags: expected a text, or an array of texts, got {'a': 1}"),
        ({"customer": {"address": {"city": {"a": 1}}}}, "order.city: expected a text, got {'a': 1}"),
        ({"Order ID": None, "number": "x"}, ""),
    ],
)
def test_values_of_the_wrong_type_are_bad_records(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    _, _, bad = read(json_records(tmp_path, [ORDER | change]), parse_schema(RENAMED))
    assert bad == ([reason] if reason else [])


def test_a_missing_renamed_key_is_a_bad_record(tmp_path: Path) -> None:
    order = {name: value for name, value in ORDER.items() if name != "Order ID"}
    _, _, bad = read(json_records(tmp_path, [order]), parse_schema(RENAMED))
    assert bad == ["order.number is missing, and the key needs it"]


def test_records_written_by_skws_use_attribute_names(tmp_path: Path) -> None:
    order = {"number": 7, "city": "Leeds", "items": "kettle, lamp", "tags": "red"}
    rows, skipped, bad = read(json_records(tmp_path, [order]), parse_schema(RENAMED))
    assert (rows, skipped, bad) == ([(7, "Leeds", None, "red")], {}, [])


def test_attributes_may_swap_names(tmp_path: Path) -> None:
    schema = parse_schema(
        "relations: {r: {attributes: {a: {type: text, from: b}, b: {type: text, from: a}}}}"
    )
    lines = [
        {"relation": "r", "time": 1, "row": {"a": "x", "b": "y"}},
        {"relation": "r", "time": 2, "row": {"a": "x"}},
    ]
    rows, _, _ = read(write_lines(tmp_path / "d.jsonl", lines), schema)
    assert rows == [("y", "x"), (None, "x")]


@pytest.mark.parametrize("write", [json_rows, csv_rows, parquet_rows])
def test_a_column_of_another_attribute_is_not_read_by_its_name(tmp_path: Path, write: Write) -> None:
    schema = parse_schema(
        "relations: {order: {attributes: {a: {type: integer, from: b}, b: {type: integer, from: c}}}}"
    )
    rows, _, _ = read(write(tmp_path, [{"b": 5}]), schema)
    assert rows == [(5, None)]


@pytest.mark.parametrize("write", [json_rows, csv_rows, parquet_rows])
@pytest.mark.parametrize("attributes", ["{relation: text}", "{kin: {type: text, from: relation}}"])
def test_a_column_may_be_called_relation(tmp_path: Path, write: Write, attributes: str) -> None:
    schema = parse_schema(f"relations: {{order: {{attributes: {attributes}}}}}")
    path = write(tmp_path, [{"relation": "mother"}])
    assert read(path, schema) == ([("mother",)], {}, [])
    feed = FilesFeed(path, schema)
    assert [record.row for record in feed.poll(feed.start(), 10).read.records.records()] == [("mother",)]


@pytest.mark.parametrize("write", [csv_rows, parquet_rows])
def test_a_column_beside_that_of_a_renamed_attribute_is_reported(tmp_path: Path, write: Write) -> None:
    schema = parse_schema("relations: {order: {attributes: {number: {type: integer, from: Order ID}}}}")
    rows, skipped, _ = read(write(tmp_path, [{"Order ID": 7, "number": 8}]), schema)
    assert (rows, skipped) == ([(7,)], {"order.number is read from 'Order ID'": 1})


def test_change_events_texts_and_frames_use_renamed_attributes(tmp_path: Path) -> None:
    schema = parse_schema(RENAMED)
    event = {"op": "c", "source": {"table": "order", "ts_ms": 1}, "after": {**ORDER, "vip": True}}
    changes = ChangeReader(schema)
    (record,) = changes.records(event)
    assert record.row == ROW
    assert [note.reason for note in changes.notes("x")] == ["order has no attribute 'vip'"]
    text = orjson.dumps({"relation": "order", "time": 1, "row": ORDER})
    (chunk,) = TextReader("x", schema).read([text])
    assert [record.row for record in chunk.records.records()] == [ROW]
    table = pa.table({"Order ID": [7.0, 8.0], "customer": [ORDER["customer"]] * 2, "other": [1, 2]})
    (chunk,) = frame_chunks(table, 0, schema)
    assert [record.row[:2] for record in chunk.records.records()] == [(7, "Leeds"), (8, "Leeds")]


def test_origins_are_written_to_yaml() -> None:
    schema = replace(parse_schema(RENAMED), unknown=Unknown.FAIL)
    assert parse_schema(to_yaml(schema)) == schema
    assert schema.relations[0].attributes[1].origin == "customer.address.city"


@pytest.mark.parametrize(
    "options",
    [("--engine", "local"), ("--engine", "local", "--jobs", "2"), pytest.param((), marks=pytest.mark.slow)],
)
def test_search_reports_ignored_attributes_once(tmp_path: Path, skws: Skws, options: tuple[str, ...]) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(RENAMED)
    file = json_records(tmp_path, [{**ORDER, "vip": 1}, {**ORDER, "Order ID": 8, "vip": 2}])
    outcome = skws("search", "leeds", "kettle", "-s", schema, "-r", file, "-f", "jsonl", *options)
    assert (outcome.code, len(outcome.records)) == (0, 2)
    assert outcome.err.count("ignored: order has no attribute 'vip' (2 values)") == 1


def test_watch_reports_an_ignored_attribute_once(tmp_path: Path, skws: Skws) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(RENAMED.replace("relations:", "window: 1 hour\nrelations:"))
    file = json_records(tmp_path, [{**ORDER, "vip": 1}, {**ORDER, "Order ID": 8, "vip": 2}])
    source = ("--source", f"replay:{file}?speed=1e9", "--engine", "local")
    outcome = skws("watch", "leeds", "kettle", "-s", schema, *source, "-f", "jsonl")
    assert (outcome.code, len(outcome.records)) == (0, 2)
    assert outcome.err.count("ignored: order has no attribute 'vip'") == 1
    assert "bad" not in outcome.err


def test_notes_are_not_counted_as_bad_records() -> None:
    note = BadRecord("f", 0, 0, b"", "a has no attribute 'x'", passed_over=3)
    log = BadRecordLog(OnError.FAIL)
    assert list(log.records([note, Record(0, 1, (1,))])) == [Record(0, 1, (1,))]
    assert (log.count, log.news(), log.news()) == (0, ("ignored: a has no attribute 'x'",), ())


def test_line_feeds_are_white_space_between_tokens_only() -> None:
    schema = parse_schema(PLAIN)
    valid = b'{"relation": "order",\n"time": 1,\n"row": {"number": 7}}\n'
    broken = b'{"relation": "order", "time": 1, "row": {"number": 7, "item": "a\nb"}}'
    for texts in ([valid, broken], [valid, broken] * 20_000):
        chunks = list(TextReader("x", schema).read(texts))
        assert sum(len(chunk.records) for chunk in chunks) == len(texts) // 2
        assert sum(len(chunk.bad) for chunk in chunks) == len(texts) // 2
        assert "not JSON" in chunks[0].bad[0].reason


def test_unknown_names_without_end_are_counted_together() -> None:
    """A stream that never ends may have rows whose field names are values."""
    texts = [
        orjson.dumps({"relation": "order", "time": 1, "row": {"number": 1, f"x{n}": 1}}) for n in range(3000)
    ]
    schema = parse_schema(PLAIN)
    with BadRecordLog(OnError.SKIP) as log:
        for part in (texts[:2000], texts[2000:], texts[:1]):
            for chunk in TextReader("texts", schema).read(part):
                assert len(chunk.bad) <= 1001
                log.take(chunk.bad)
        assert len(log.passed_over) == 1001
        assert log.passed_over["further values, for other reasons"] == 2000
        assert log.passed_over.total() == 3001
        assert len(log.news()) == 1001
