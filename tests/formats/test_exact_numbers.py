"""Numbers with more digits than a double: their keys and joins are exact in every format."""

from __future__ import annotations

import csv
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skws as library
from skws.data.value_conversion import MalformedError, conversion
from skws_schema.model import AttributeType
from tests.commands import Skws

IDS = {
    "beyond doubles": (2**53, 2**53 + 1),
    "beyond 64 bits": (2**64 + 1, 2**64 + 2),
    "on both sides of 63 bits": (2**63 - 1, 2**63, 2**63 + 1),
}
"""Adjacent integers that are the same double."""


def tables(ids: tuple[int, ...]) -> dict[str, list[dict[str, Any]]]:
    return {
        "owner": [{"id": number, "name": f"owner {position}"} for position, number in enumerate(ids)],
        "pet": [{"owner_id": number, "pet": f"pet {position}"} for position, number in enumerate(ids)],
    }


def as_json(rows: list[dict[str, Any]]) -> str:
    return "\n".join(
        "{"
        + ", ".join(f'"{n}": {v if isinstance(v, int) else orjson.dumps(v).decode()}' for n, v in row.items())
        + "}"
        for row in rows
    )


def write_jsonl(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"{name}.jsonl").write_text(as_json(rows) + "\n")


def write_document(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"{name}.json").write_text(f"[\n{as_json(rows).replace(chr(10), ',')}]")


def write_csv(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    with (folder / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows[0].keys(), *(row.values() for row in rows)])


def decimals(rows: list[dict[str, Any]]) -> pa.Table:
    """Ids as decimals, in tables with different scales."""
    kind = pa.decimal128(30, len(rows[0]) if "name" in rows[0] else 0)
    return pa.table(
        {
            name: pa.array([Decimal(row[name]) for row in rows], kind)
            if isinstance(rows[0][name], int)
            else [row[name] for row in rows]
            for name in rows[0]
        }
    )


def write_parquet(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    pq.write_table(decimals(rows), folder / f"{name}.parquet")


def write_debezium(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    scale = 2 if name == "pet" else 0

    def encoded(value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return b64encode((value * 10**scale).to_bytes(12, "big", signed=True)).decode()

    kinds = [
        {
            "field": column,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": str(scale)},
        }
        for column, value in rows[0].items()
        if isinstance(value, int)
    ]
    lines = [
        {
            "schema": {"fields": [{"field": "after", "fields": kinds}]},
            "payload": {
                "op": "c",
                "ts_ms": 1_000,
                "source": {"table": name},
                "after": {column: encoded(value) for column, value in row.items()},
            },
        }
        for row in rows
    ]
    (folder / f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


WRITERS: list[Callable[[Path, str, list[dict[str, Any]]], None]] = [
    write_jsonl,
    write_document,
    write_csv,
    write_parquet,
    write_debezium,
]


@pytest.mark.check
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_keys_and_joins_of_files_are_exact(
    skws: Skws, tmp_path: Path, write: Callable[..., None], ids: tuple[int, ...]
) -> None:
    for name, rows in tables(ids).items():
        write(tmp_path, name, rows)
    outcome = skws("search", tmp_path, "owner", "pet", "-f", "jsonl")
    assert outcome.code == 0, outcome.err
    assert joined_ids(outcome.records) == {
        (str(number), position, position) for position, number in enumerate(ids)
    }
    watch_outcome = skws("watch", "owner", "pet", "-S", f"replay:{tmp_path}?speed=1e9", "-f", "jsonl")
    assert joined_ids(watch_outcome.records) == joined_ids(outcome.records), watch_outcome.err


def joined_ids(records: list[dict[str, Any]]) -> set[tuple[str, int, int]]:
    matches = set()
    for record in records:
        row = {name: value for tuple_ in record["tuples"] for name, value in tuple_["row"].items()}
        assert str(row["id"]) == str(row["owner_id"])
        matches.add((str(row["id"]), int(row["name"][-1]), int(row["pet"][-1])))
    return matches


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize(
    "make_frame", [list, pd.DataFrame, decimals], ids=["rows", "pandas", "decimals of Arrow"]
)
def test_keys_and_joins_of_frames_are_exact(make_frame: Callable[[Any], Any], ids: tuple[int, ...]) -> None:
    results = list(
        library.search("owner pet", {name: make_frame(rows) for name, rows in tables(ids).items()})
    )
    assert joined_ids(
        [{"tuples": [{"row": tuple_.row} for tuple_ in result.tuples]} for result in results]
    ) == {(str(number), position, position) for position, number in enumerate(ids)}


@pytest.mark.parametrize(
    ("numbers", "kind", "expected"),
    [
        (["12.50", "3"], "number", [12.5, 3.0]),
        (["1.00", "-0.00"], "integer", [1, 0]),
        (["12345678901234.567", "-0.500"], "text", ["12345678901234.567", "-0.5"]),
        (["9007199254740993.5", "1e2"], "text", ["9007199254740993.5", "100"]),
    ],
)
def test_decimals_are_numbers_if_a_double_has_all_their_digits(
    tmp_path: Path, numbers: list[str], kind: str, expected: list[Any]
) -> None:
    values = [Decimal(number) for number in numbers]
    table = pa.table({"name": ["kettle"] * 2, "price": pa.array(values, pa.decimal128(38, 4))})
    pq.write_table(table, tmp_path / "r.parquet")
    rows = [{"name": "kettle", "price": value} for value in values]
    for data in (table, rows, pd.DataFrame(rows), tmp_path / "r.parquet", [*rows, {"inner": [{"x": 1}]}]):
        results = library.search("kettle", data if isinstance(data, Path) else {"r": data})
        relation = results.schema.relation("r")
        assert relation.attributes[relation.columns["price"]].type.value == kind
        assert {result.tuples[0].row["price"] for result in results} == set(expected)


def test_large_integers_mixed_with_fractions_keep_their_digits(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"a": "x", "v": 9007199254740993}\n{"a": "x", "v": 1.5}\n')
    values = {
        result["tuples"][0]["row"]["v"] for result in skws("search", tmp_path, "x", "-f", "jsonl").records
    }
    assert values == {"9007199254740993", "1.5"}


@pytest.mark.parametrize("number", ["18446744073709551617", "-18446744073709551617", "1" * 60])
def test_integers_of_any_size_are_read_as_texts(skws: Skws, tmp_path: Path, number: str) -> None:
    schema = tmp_path / "s.yaml"
    schema.write_text(
        "name: s\nrelations: {r: {attributes: {a: text, v: string, w: {type: text, from: o.w}}}}"
    )
    line = f'"a": "kettle", "v": {number}, "o": {{"w": [{number}, 1]}}'
    (tmp_path / "r.jsonl").write_text(f'{{"time": 1, {line}}}\n')
    (result,) = skws("search", "kettle", "-s", schema, "-r", tmp_path / "r.jsonl", "-f", "jsonl").records
    assert result["tuples"][0]["row"] == {"a": "kettle", "v": number, "w": f"{number}, 1"}


def test_the_time_of_a_record_may_be_a_decimal() -> None:
    """Like that of an attribute."""
    schema = {"relations": {"a": {"attributes": {"t": "text"}}}}
    rows = [{"t": "lamp", "time": Decimal("1704067200.25")}]
    (result,) = library.search("lamp", {"a": rows}, schema=schema, window="1 day")
    assert result.start == 1704067200.25


@pytest.mark.parametrize("kind", ["integer", "number", "timestamp", "text", "boolean"])
def test_the_error_for_a_huge_decimal_names_the_type_of_its_attribute(kind: str) -> None:
    with pytest.raises(MalformedError, match=rf"^expected an? {kind}.*, got Decimal"):
        conversion(AttributeType(kind), Decimal)(Decimal("1E+200000"))
