"""The data of the examples, read with plain JSON and CSV parsers, conforms to their schemas."""

from __future__ import annotations

import csv
import json
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import TimeWindow, parse_window
from tests.places import DATA, ROOT

pytestmark = pytest.mark.check

EXAMPLES = ROOT / "examples"
PUBLIC = {"stackexchange": "stackexchange-ai", "sakila": "sakila", "mondial": "mondial"}
Row = dict[str, Any]


@cache
def schema(example: str) -> Schema:
    return load_schema(EXAMPLES / example / "schema.yaml")


@cache
def movie_lines() -> tuple[tuple[str, date, Row], ...]:
    text = (EXAMPLES / "movies" / "replay.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    return tuple(
        (record["relation"], date.fromisoformat(record["time"]), record["row"]) for record in records
    )


@cache
def tables(example: str) -> dict[str, list[Row]]:
    """The rows of each relation; in public data, missing values are empty texts."""
    rows: dict[str, list[Row]] = {relation.name: [] for relation in schema(example).relations}
    if example == "movies":
        for name, _, row in movie_lines():
            rows[name].append(row)
        return rows
    folder = DATA / PUBLIC[example] / "csv"
    if not folder.is_dir():
        pytest.skip(f"the public data set {PUBLIC[example]} is missing")
    name_by_casefold = {name.casefold(): name for name in rows}
    for path in folder.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            rows[name_by_casefold[path.stem.casefold()]] = list(csv.DictReader(file))
    return rows


@pytest.mark.parametrize("example", ["movies", *PUBLIC])
def test_example_rows_have_their_attributes_unique_keys_and_times(example: str) -> None:
    for relation in schema(example).relations:
        rows = tables(example)[relation.name]
        assert rows, relation.name
        assert all([*row] == [a.column for a in relation.attributes] for row in rows), relation.name
        keys = [tuple(row[name] for name in relation.key) for row in rows] if relation.key else []
        assert len(set(keys)) == len(keys), relation.name
        assert not any({None, ""} & set(key) for key in keys), relation.name
        assert relation.time is None or all(row[relation.time] for row in rows), relation.name


@pytest.mark.parametrize("example", ["movies", *PUBLIC])
def test_example_joins_have_matching_rows(example: str) -> None:
    for join in schema(example).joins:
        left_columns, right_columns = zip(*join.on, strict=True)
        left_keys = [tuple(row[name] for name in left_columns) for row in tables(example)[join.left]]
        right_keys = {tuple(row[name] for name in right_columns) for row in tables(example)[join.right]}
        complete_keys = [values for values in left_keys if "" not in values]
        # Deleted posts leave votes and links behind; no other relation loses more than these.
        assert sum(values in right_keys for values in complete_keys) >= 0.9 * len(complete_keys), join.name
        assert example != "movies" or set(left_keys) == right_keys, join.name


def test_movie_records_arrive_at_the_release_of_their_film() -> None:
    first_times: dict[tuple[str, int], date] = {}
    for relation, time, row in movie_lines():
        for name in ("mid", "did", "aid") if relation in {"movie", "plays"} else ():
            if name in row:
                first_times.setdefault((name, row[name]), time)
        if relation == "movie":
            assert time == date.fromisoformat(row["released"])
        if relation == "plays":
            assert time == first_times["mid", row["mid"]]
    for relation, time, row in movie_lines():
        if relation in {"director", "actor"}:
            key = "did" if relation == "director" else "aid"
            assert time == first_times[key, row[key]], row


def test_movie_records_are_sorted_and_within_the_window() -> None:
    times = [time for _, time, _ in movie_lines()]
    assert all(a <= b for a, b in pairwise(times))
    window = parse_window(schema("movies").window)
    assert isinstance(window, TimeWindow)
    assert times[-1] - times[0] < timedelta(microseconds=window.length)
