"""Parquet read as columns gives what the row reader gives, in its order; what is not plain is left to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.formats import BadRecordLog, Replay, parquet
from skws.spec.enums import OnError
from skws_schema.errors import BadRecordsError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from tests.strategies import examples

KINDS = tuple(Attribute(f"a_{kind.value}", kind) for kind in AttributeType)
ARROW: dict[str, pa.DataType] = {
    "a_text": pa.string(),
    "a_string": pa.large_string(),
    "a_integer": pa.int32(),
    "a_number": pa.float64(),
    "a_boolean": pa.bool_(),
    "a_timestamp": pa.timestamp("us", "UTC"),
}
SCHEMA = Schema(
    "s",
    (
        Relation("a", KINDS, search=("a_text",)),
        Relation(
            "b", (Attribute("x", AttributeType.INTEGER), Attribute("at", AttributeType.TIMESTAMP)), time="at"
        ),
        Relation("t", (Attribute("x", AttributeType.INTEGER),), table=True),
    ),
    (Join("j", "a", "b", (("a_integer", "x"),)),),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a_text": st.sampled_from(["one two", "é", "", None]),
    "a_string": st.sampled_from(["s", None]),
    "a_integer": st.sampled_from([-1, 0, 7, None]),
    "a_number": st.sampled_from([1.5, -0.0, None]),
    "a_boolean": st.sampled_from([True, False, None]),
    "a_timestamp": st.sampled_from([0, 1_500_000, None]),
}
times = st.lists(st.integers(0, 9), max_size=25).map(lambda t: sorted(m * 1_000_000 for m in t))


def write(folder: Path, a: dict[str, Any], b: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    kinds = {"time": pa.timestamp("us"), "x": pa.int64(), "at": pa.timestamp("us"), **ARROW}
    for name, columns in (("a", a), ("b", b)):
        table = pa.table({column: pa.array(values, kinds[column]) for column, values in columns.items()})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=4)
    return folder


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    of_a, of_b = draw(times), draw(times)
    a: dict[str, Any] = {"time": of_a}
    for name, values in VALUES.items():
        a[name] = draw(st.lists(values, min_size=len(of_a), max_size=len(of_a)))
    return a, {"x": list(range(len(of_b))), "at": of_b}


@given(files(), st.integers(1, 9), st.integers(40, 400))
@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_to_the_row_reader(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: tuple[dict[str, Any], dict[str, Any]],
    rows: int,
    split_bytes: int,
) -> None:
    monkeypatch.setattr(parquet, "READ_TOGETHER", rows)
    monkeypatch.setattr(parquet, "LEAST_ROWS", 1)
    replay = Replay.open(write(tmp_path / "r", *written), SCHEMA, split_bytes=split_bytes)
    assert parquet.plain(replay.splits, SCHEMA)
    done: list[int] = []
    batches = list(replay.batches(BadRecordLog(), done.append))
    records = [record for batch in batches for record in batch.records()]
    assert records == list(replay.stream(BadRecordLog()))
    assert done == sorted(done)
    assert not done or done[-1] <= replay.size_bytes


USUAL = {name: [None] for name in VALUES}
LATER: list[tuple[dict[str, Any], str]] = [
    ({"time": [5, 4], **{name: [None, None] for name in VALUES}}, "times out of order"),
    ({"time": [5], **USUAL, "a_number": [float("nan")]}, "a number that is none"),
    ({"time": [5], **{k: v for k, v in USUAL.items() if k != "a_text"}}, "an attribute that is not there"),
]


@pytest.mark.parametrize(("a", "why"), LATER, ids=[why for _, why in LATER])
def test_what_is_not_plain_is_left_to_the_row_reader(tmp_path: Path, a: dict[str, Any], why: str) -> None:
    replay = Replay.open(write(tmp_path / "r", a, {"x": [1], "at": [2]}), SCHEMA)
    assert not parquet.plain(replay.splits, SCHEMA)
    logs = BadRecordLog(OnError.SKIP), BadRecordLog(OnError.SKIP)
    records = [record for batch in replay.batches(logs[0]) for record in batch.records()]
    assert records == list(replay.stream(logs[1]))
    assert logs[0].count == logs[1].count


def test_bad_values_are_told_of(tmp_path: Path) -> None:
    a = {"time": [5], **USUAL, "a_number": [float("inf")]}
    replay = Replay.open(write(tmp_path / "r", a, {"x": [1], "at": [2]}), SCHEMA)
    with pytest.raises(BadRecordsError, match=r"a\.parquet"):
        list(replay.batches(BadRecordLog(OnError.FAIL)))
