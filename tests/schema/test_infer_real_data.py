"""Inference of foreign keys on data sets where they are known."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from skws_schema.infer.infer import infer
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from tests.places import DATA

SETS = ["sakila", "mondial", "stackexchange-ai"]

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data sets are not at {DATA}")


@contextmanager
def long_fields() -> Iterator[None]:
    before = csv.field_size_limit(1 << 28)
    yield
    csv.field_size_limit(before)


def columns(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


@lru_cache(maxsize=len(SETS))
def inferred_schema(data_set: str) -> tuple[Schema, str]:
    with long_fields():
        tables = {path.stem: columns(path) for path in sorted((DATA / data_set / "csv").glob("*.csv"))}
    inference = infer(tables, data_set)
    return inference.schema(), inference.to_yaml()


def description_of(data_set: str) -> Any:
    return json.loads((DATA / data_set / "schema.json").read_text())


@pytest.mark.parametrize(
    ("data_set", "precision", "recall"),
    [("sakila", 0.95, 1.0), ("mondial", 0.95, 0.9), ("stackexchange-ai", 0.85, 0.8)],
)
def test_inferred_joins_are_the_foreign_keys(data_set: str, precision: float, recall: float) -> None:
    foreign_keys = {
        (key["table"], key["ref_table"], frozenset(zip(key["columns"], key["ref_columns"], strict=True)))
        for key in description_of(data_set)["foreign_keys"]
    }
    joins = {(join.left, join.right, frozenset(join.on)) for join in inferred_schema(data_set)[0].joins}
    assert len(foreign_keys & joins) / len(joins) >= precision
    assert len(foreign_keys & joins) / len(foreign_keys) >= recall


@pytest.mark.parametrize(("data_set", "count"), [("sakila", 0), ("mondial", 1), ("stackexchange-ai", 3)])
def test_suggested_joins_are_foreign_keys(data_set: str, count: int) -> None:
    foreign_keys = {
        f"{key['table']}.{key['columns'][0]} = {key['ref_table']}.{key['ref_columns'][0]}"
        for key in description_of(data_set)["foreign_keys"]
    }
    suggestions = {possible.on for possible in inferred_schema(data_set)[0].possible}
    assert len(suggestions) == count
    assert suggestions <= foreign_keys


@pytest.mark.parametrize("data_set", SETS)
def test_inferred_keys_are_the_targets_of_foreign_keys(data_set: str) -> None:
    referenced: dict[str, set[frozenset[str]]] = {}
    for key in description_of(data_set)["foreign_keys"]:
        referenced.setdefault(key["ref_table"], set()).add(frozenset(key["ref_columns"]))
    inferred_keys = {r.name: frozenset(r.key) for r in inferred_schema(data_set)[0].relations}
    assert [name for name, keys in referenced.items() if inferred_keys[name] not in keys] == []


@pytest.mark.parametrize(
    ("data_set", "codes"),
    [
        ("sakila", {("customer", "email"), ("address", "phone"), ("film", "rating")}),
        ("mondial", {("country", "code")}),
        ("stackexchange-ai", {("Users", "WebsiteUrl"), ("PostHistory", "RevisionGUID")}),
    ],
)
def test_texts_and_codes_are_searched_unless_they_are_references(
    data_set: str, codes: set[tuple[str, str]]
) -> None:
    schema = inferred_schema(data_set)[0]
    texts = {
        (name, column)
        for name, table in description_of(data_set)["tables"].items()
        for column in table["text"]
    }
    references = {(join.left, column) for join in schema.joins for column, _ in join.on}
    searched = {(r.name, column) for r in schema.relations for column in r.search}
    assert texts - searched <= references
    assert codes <= searched


def test_event_times_are_inferred() -> None:
    times = {r.name: r.time for r in inferred_schema("stackexchange-ai")[0].relations}
    assert times == dict.fromkeys(times, "CreationDate") | {"Badges": "Date", "Tags": None}
    streams = {r.name: r.time for r in inferred_schema("sakila")[0].relations if not r.table}
    assert streams == {"rental": "rental_date", "payment": "payment_date"}
    assert all(r.table for r in inferred_schema("mondial")[0].relations)


@pytest.mark.parametrize("data_set", SETS)
def test_the_yaml_loads_as_the_inferred_schema(data_set: str) -> None:
    schema, text = inferred_schema(data_set)
    assert parse_schema(text) == schema
