"""Rows in arrays of objects are the same in Parquet files and in JSON lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skws
from skws.data.batch import BadRecord, Record
from skws.formats import BadRecordLog, Replay
from skws.formats import parquet_files as parquet
from skws.spec.enums import OnError
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from tests.commands import Skws

KEYED = [
    {"id": 1, "name": "lamp", "items": [{"q": "big", "n": 1}, {"q": "tiny", "n": 2}]},
    {"id": 2, "name": "desk", "items": [{"q": "small", "n": 3}]},
    {"id": 3, "name": "lamp", "items": None},
]
WITHOUT_KEY = [
    {"name": "lamp", "items": [{"q": "tiny"}, {"q": "big"}]},
    {"name": "lamp", "items": [{"q": "small"}]},
]
IN_AN_OBJECT = [
    {"r": {"name": "lamp", "items": [{"q": "tiny"}]}},
    {"r": {"name": "lamp", "items": [{"q": "x"}]}},
]
SHOP = parse_schema("""\
relations:
  shop:
    attributes: {id: integer, name: text, at: timestamp, worth: number}
    key: [id]
    time: at
  shop_item:
    from: shop.items
    attributes:
      shop: {type: integer, from: shop.id}
      q: text
joins: [shop_item.shop = shop.id]
""")


def write_both(folder: Path, rows: list[dict[str, Any]]) -> tuple[Path, Path]:
    """Writes the rows to two files."""
    jsonl, parquet_file = folder / "shop.jsonl", folder / "shop.parquet"
    jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), parquet_file)
    return jsonl, parquet_file


def values(row: dict[str, Any]) -> list[Any]:
    """The values of a row except its position, which contains the file's name."""
    return [value for value in row.values() if not str(value).startswith("shop.")]


def records(path: Path, schema: Schema) -> list[Record]:
    bad = BadRecordLog(OnError.SKIP)
    stream = [record for batch in Replay.open(path, schema).batches(bad) for record in batch.records()]
    assert not bad.count
    return stream


@pytest.mark.parametrize("rows", [KEYED, WITHOUT_KEY, IN_AN_OBJECT])
@pytest.mark.parametrize("query", ["lamp", "lamp tiny"])
def test_nested_parquet_has_the_results_of_nested_json(
    skws: Skws, tmp_path: Path, rows: list[dict[str, Any]], query: str
) -> None:
    results_by_format = []
    for path in write_both(tmp_path, rows):
        outcome = skws("search", path, *query.split(), "--format", "jsonl")
        assert outcome.code == 0, outcome.err
        assert "bad record" not in outcome.err
        assert "passed over" not in outcome.err
        results = [json.loads(line)["tuples"] for line in outcome.out.splitlines()]
        results_by_format.append(sorted([values(tuple_["row"]) for tuple_ in result] for result in results))
    assert results_by_format[0] == results_by_format[1]
    assert results_by_format[0]


def test_nested_parquet_values_of_all_types_are_read(tmp_path: Path) -> None:
    """Times, exact numbers, and missing values."""
    moment = datetime(2024, 5, 1, 10, tzinfo=UTC)
    table = pa.table(
        {
            "id": [1, 2],
            "name": ["lamp", None],
            "at": pa.array([moment, moment], pa.timestamp("us", "UTC")),
            "worth": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "items": pa.array([[{"q": "big"}, {"q": None}], []], pa.list_(pa.struct([("q", pa.string())]))),
        }
    )
    pq.write_table(table, tmp_path / "shop.parquet")
    time = int(moment.timestamp()) * 1_000_000
    assert records(tmp_path / "shop.parquet", SHOP) == [
        Record(0, time, (1, "lamp", time, 1.5)),
        Record(1, time, (1, "big")),
        Record(1, time, (1, None)),
        Record(0, time, (2, None, time, None)),
    ]


def test_a_bad_row_of_nested_parquet_has_its_position(tmp_path: Path) -> None:
    path = tmp_path / "shop.parquet"
    columns = {"id": [1, 2], "name": pa.array([b"\xff", b"lamp"], pa.binary()).cast(pa.binary())}
    times = pa.array([5, 6], pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({**columns, "at": times, "items": pa.array([[{"q": "a"}], [{"q": "b"}]])}), path)
    (split,) = Replay.open(path, SHOP).splits
    bad, *good = parquet.read(split, SHOP)
    assert isinstance(bad, BadRecord)
    assert bad.offset == 0
    assert "name" in bad.reason
    assert [record.row[:2] for record in good if isinstance(record, Record)] == [(2, "lamp"), (2, "b")]


def test_nested_rows_of_frames_are_searched() -> None:
    times = pa.array([5, 6], pa.timestamp("s", "UTC"))
    frame = pa.table(
        {
            "id": [1, 2],
            "name": ["lamp", "desk"],
            "at": times,
            "worth": [1.5, 2.5],
            "items": [[{"q": "tiny"}], []],
        }
    )
    results = skws.search("lamp tiny", {"shop": frame}, schema=SHOP)
    (result,) = results
    assert len(result.tuples) == 2
    assert not results.bad.passed_over
