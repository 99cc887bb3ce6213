"""Values of Arrow's types, and rejected types."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.data.batch import BadRecord, Record
from skws.formats import BadRecordLog, Replay
from skws.formats import parquet_files as parquet
from skws.formats.parquet_files import columns
from skws.formats.sampling import sample
from skws.spec.enums import OnError
from skws_schema.errors import BadRecordsError, SourceError
from skws_schema.infer.infer import infer
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema, Value
from skws_schema.yaml.load import parse_schema
from tests.formats.samples import PLAYS, SCHEMA, T, by_rows, items
from tests.strategies import examples


def schema_of(kind: AttributeType) -> Schema:
    return Schema("one", (Relation("r", (Attribute("v", kind),), table=True),), ())


def read_values(tmp_path: Path, kind: AttributeType, array: pa.Array) -> list[Value]:
    pq.write_table(pa.table({"v": array}), tmp_path / "r.parquet")
    read_items = items(tmp_path / "r.parquet", schema_of(kind))
    return [item.row[0] if isinstance(item, Record) else f"bad: {item.reason}" for item in read_items]


@pytest.mark.parametrize(
    ("kind", "array", "values"),
    [
        (T.INTEGER, pa.array([1, None, 3], pa.int8()), [1, None, 3]),
        (T.INTEGER, pa.array([4.0, None]), [4, None]),
        (T.INTEGER, pa.array([Decimal("2.00")]), [2]),
        (T.NUMBER, pa.array([1, 2]), [1.0, 2.0]),
        (T.NUMBER, pa.array([Decimal("1.50"), None]), [1.5, None]),
        (T.BOOLEAN, pa.array([True, None]), [True, None]),
        (T.TEXT, pa.array(["a", "", None]), ["a", "", None]),
        (T.TEXT, pa.array([b"caf\xc3\xa9"]), ["café"]),
        (T.TEXT, pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
        (T.TEXT, pa.nulls(2), [None, None]),
        (T.TIMESTAMP, pa.array([1999, -1, None], pa.timestamp("ns")), [1, -1, None]),
        (T.TIMESTAMP, pa.array([5], pa.timestamp("ms", "Europe/Paris")), [5000]),
        (T.TIMESTAMP, pa.array([date(1970, 1, 2), None]), [86_400_000_000, None]),
        (T.TIMESTAMP, pa.array(["1970-01-01T00:00:01Z"]), [1_000_000]),
        (T.TIMESTAMP, pa.array([2]), [2_000_000]),
    ],
)
def test_arrow_values_are_converted(
    tmp_path: Path, kind: AttributeType, array: pa.Array, values: list[Value]
) -> None:
    read = read_values(tmp_path, kind, array)
    assert read == values
    assert list(map(type, read)) == list(map(type, values))


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (T.INTEGER, pa.array([2**63], pa.uint64())),
        (T.INTEGER, pa.array([1.5])),
        (T.TEXT, pa.array([1.5])),
        (T.TEXT, pa.array([b"\xff"])),
        (T.TEXT, pa.array([[1, 2]])),
        (T.INTEGER, pa.array([5], pa.timestamp("us"))),
        (T.TIMESTAMP, pa.array([True])),
    ],
)
def test_unsuitable_arrow_values_are_bad_records(
    tmp_path: Path, kind: AttributeType, array: pa.Array
) -> None:
    (reason,) = read_values(tmp_path, kind, array)
    assert str(reason).startswith("bad: r.v: ")


def array(kind: pa.DataType, *values: object) -> pa.Array:
    return pa.array([*values, None], kind)


HALF, DAY = Decimal("1.5"), date(2026, 3, 1)
MOMENT = datetime(2026, 3, 1, 9, 30)  # noqa: DTZ001 - Arrow's time stamps need no zone


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (array(pa.time32("ms"), time(9, 30)), T.TEXT, "09:30:00"),
        (array(pa.time64("us"), time(9, 30, 1, 5)), T.TEXT, "09:30:01.000005"),
        (array(pa.time64("ns"), time(9, 30)), T.TEXT, "09:30:00"),
        (array(pa.duration("ms"), timedelta(seconds=90)), T.NUMBER, 90.0),
        (array(pa.duration("us"), timedelta(microseconds=5)), T.NUMBER, 5e-06),
        (array(pa.list_(pa.date32()), [DAY, DAY]), T.TEXT, "2026-03-01, 2026-03-01"),
        (array(pa.list_(pa.time64("us")), [time(9, 30)]), T.TEXT, "09:30:00"),
        (array(pa.list_(pa.timestamp("us")), [MOMENT]), T.TEXT, "2026-03-01T09:30:00"),
        (array(pa.list_(pa.duration("s")), [timedelta(seconds=90)]), T.TEXT, "90.0"),
        (array(pa.list_(pa.decimal128(9, 1)), [HALF, Decimal(2)]), T.TEXT, "1.5, 2"),
        (array(pa.list_(pa.list_(pa.date32())), [[DAY], [DAY]]), T.TEXT, "2026-03-01, 2026-03-01"),
        (array(pa.list_(pa.float64()), [1.5, float("nan")]), T.TEXT, "1.5"),
        (array(pa.list_(pa.binary()), [b"a", b"b"]), T.TEXT, "a, b"),
        (array(pa.decimal128(9, 1), HALF), T.NUMBER, 1.5),
        (array(pa.decimal128(38, 0), Decimal(2**62)), T.INTEGER, 2**62),
        (array(pa.decimal128(38, 0), Decimal(10**30)), T.TEXT, "1" + "0" * 30),
        (array(pa.decimal128(38, 2), Decimal("12345678901234567890.12")), T.TEXT, "12345678901234567890.12"),
        (array(pa.uint64(), 2**64 - 1), T.TEXT, str(2**64 - 1)),
        (array(pa.float64(), 1.5, float("nan")), T.NUMBER, 1.5),
        (array(pa.float32(), 1.5, float("inf")), T.NUMBER, 1.5),
        (array(pa.binary(2), b"ab"), T.TEXT, "ab"),
        (array(pa.string(), "a").dictionary_encode(), T.TEXT, "a"),
        (pa.array([3 * 10**17, 3 * 10**17]).cast(pa.timestamp("us")), T.TEXT, None),
        (pa.nulls(2), T.TEXT, None),
        (pa.nulls(2, pa.date32()), T.TEXT, None),
    ],
)
def test_arrow_types_are_inferred_and_read(
    tmp_path: Path, values: pa.Array, kind: AttributeType, read: Value
) -> None:
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"id": range(len(values)), "v": values}), path)
    schema = infer(sample([path]).tables()).schema()
    assert schema.relations[0].attributes[1].type is kind
    read_items = [
        item for item in items(path, schema) if not (isinstance(item, BadRecord) and item.passed_over)
    ]
    assert [row.row[1] for row in read_items if isinstance(row, Record)] == [
        read,
        *[None] * (len(values) - 1),
    ]


def test_arrow_maps_are_read_as_objects(tmp_path: Path) -> None:
    tags = pa.array([[("tone", "blue"), ("size", "xl")], None], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"id": [1, 2], "tags": tags}), tmp_path / "r.parquet")
    schema = infer(sample([tmp_path]).tables()).schema()
    assert [a.column for a in schema.relations[0].attributes] == ["id", "tags.tone", "tags.size"]
    assert [i.row for i in items(tmp_path, schema) if isinstance(i, Record)] == [
        (1, "blue", "xl"),
        (2, None, None),
    ]


def test_binary_columns_are_not_inferred(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": [1, 2], "v": [b"\xff", b"a"], "w": [[b"\xff"], []]}), tmp_path / "r.parquet"
    )
    inference = infer(sample([tmp_path]).tables())
    assert [column.name for column in inference.relations[0].left_out] == ["v", "w"]
    assert sum(isinstance(item, Record) for item in items(tmp_path, inference.schema())) == 2


ARRAYS = """\
name: s
relations:
  r:
    attributes: {id: integer, v: {type: text, from: v}, w: {type: text, from: w}, x: number}
    table: true
"""
INNER = "  r_inner: {from: r.inner, attributes: {y: number, z: text}, table: true}\n"


@pytest.mark.parametrize("nested", [False, True])
def test_nan_and_infinity_in_arrays_are_skipped_and_counted(tmp_path: Path, nested: bool) -> None:
    """Also in a file with rows in arrays, which are read as JSON."""
    nan, inf = float("nan"), float("inf")
    columns = {"id": [1, 2], "v": [[1.5, nan], [nan, inf]], "w": [[[nan], [2.0]], []], "x": [nan, 1.0]}
    inner = {"inner": [[{"y": nan, "z": "a"}], []]} if nested else {}
    pq.write_table(pa.table(columns | inner), tmp_path / "r.parquet")
    read_items = items(tmp_path, parse_schema(ARRAYS + (INNER if nested else "")))
    rows = [item.row[1:] for item in read_items if isinstance(item, Record) and item.relation == 0]
    assert rows == [("1.5", "2.0", None), (None, None, 1.0)]
    skipped = {
        bad.reason.partition(":")[0]: bad.passed_over for bad in read_items if isinstance(bad, BadRecord)
    }
    assert skipped == {"r.v": 3, "r.w": 1, "r.x": 1} | ({"r_inner.y": 1} if nested else {})


@pytest.mark.parametrize(("key", "outcome"), [("[v]", "bad"), ("[id]", "row")])
def test_nan_makes_a_row_bad_only_in_a_key(tmp_path: Path, key: str, outcome: str) -> None:
    pq.write_table(pa.table({"id": [1], "v": [float("nan")]}), tmp_path / "r.parquet")
    text = f"{{r: {{attributes: {{id: integer, v: number}}, key: {key}, table: true}}}}"
    first, *notes = items(tmp_path, parse_schema(f"name: s\nrelations: {text}"))
    if outcome == "row":
        assert first.row == (1, None)  # type: ignore[union-attr]
        assert [bad.passed_over for bad in notes if isinstance(bad, BadRecord)] == [1]
    else:
        assert first.reason == "r.v: NaN and infinity are not numbers, so they are missing"  # type: ignore[union-attr]


def test_a_column_name_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "cast.parquet"
    pq.write_table(pa.table({"role": ["x"]}), path)
    path.write_bytes(path.read_bytes().replace(b"role", b"\xefole"))
    with pytest.raises(SourceError, match=r"cast.parquet: .* the name of a column is not UTF-8"):
        columns(path)


@pytest.mark.parametrize(
    ("kind", "raw_time"), [(pa.timestamp("us"), 253_402_300_800_000_000), (pa.date32(), 2**31 - 1)]
)
def test_a_schema_is_inferred_despite_times_beyond_the_calendar(
    tmp_path: Path, kind: pa.DataType, raw_time: int
) -> None:
    times = pa.array([0] * 9 + [raw_time], pa.int64() if kind != pa.date32() else pa.int32()).cast(kind)
    pq.write_table(pa.table({"v": range(10), "at": times}), tmp_path / "r.parquet")
    assert set(sample([tmp_path]).tables()["r"]["at"][-2:]) == {times[0].as_py().isoformat(), None}
    schema = "name: s\nrelations: {r: {attributes: {v: integer, at: timestamp}, table: true}}"
    assert [item.reason for item in items(tmp_path, parse_schema(schema)) if isinstance(item, BadRecord)] == [
        "r.at: times outside of the years 1 to 9999, and infinity, are missing"
    ]


def test_a_time_beyond_the_calendar_is_missing_in_an_object(tmp_path: Path) -> None:
    times = pa.array([0, 253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"o": pa.StructArray.from_arrays([times], ["at"])}), tmp_path / "r.parquet")
    schema = "name: s\nrelations: {r: {attributes: {at: {type: timestamp, from: o.at}}, table: true}}"
    first, second, note = items(tmp_path / "r.parquet", parse_schema(schema))
    assert (first.row, second.row) == ((0,), (None,))  # type: ignore[union-attr]
    assert note.passed_over == 1  # type: ignore[union-attr]


def test_a_bad_parquet_record_has_its_row_number_and_values(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"mid": i, "role": "x", "time": "1970-01-02"} for i in range(7)]
    rows[5]["time"] = "soon"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "plays.parquet", row_group_size=2)
    (bad,) = (i for i in items(tmp_path / "plays.parquet", split_bytes=1) if isinstance(i, BadRecord))
    assert (bad.line, bad.offset) == (0, 5)
    assert orjson.loads(bad.raw) == rows[5]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_parquet_texts_that_are_not_utf_8_are_reported(tmp_path: Path, kind: pa.DataType) -> None:
    """Arrow writes and reads them unchecked."""
    raw = pa.large_binary() if kind == pa.large_string() else pa.binary()
    roles = pa.array([b"ok", b"\x90", None], raw).view(kind)
    table = pa.table(
        {"mid": [1, 2, 3], "role": roles, "time": pa.array([10**6, 2 * 10**6, 3 * 10**6], pa.timestamp("us"))}
    )
    pq.write_table(table, tmp_path / "plays.parquet")
    first, bad, last = items(tmp_path / "plays.parquet")
    assert (first, last) == (Record(PLAYS, 1_000_000, (1, "ok")), Record(PLAYS, 3_000_000, (3, None)))
    assert isinstance(bad, BadRecord)
    assert bad.reason == "plays.role: expected a text, got b'\\x90'"
    with pytest.raises(SourceError, match=r"plays\.parquet: cannot read as Parquet: .*UTF"):
        list(Replay.open(tmp_path / "plays.parquet", SCHEMA).batches(BadRecordLog()))


KINDS = tuple(Attribute(f"a_{kind.value}", kind) for kind in AttributeType)
ARROW: dict[str, pa.DataType] = {
    "a_text": pa.string(),
    "a_string": pa.large_string(),
    "a_integer": pa.int32(),
    "a_number": pa.float64(),
    "a_boolean": pa.bool_(),
    "a_timestamp": pa.timestamp("us", "UTC"),
}
PLAIN = Schema(
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
    for name, table_columns in (("a", a), ("b", b)):
        table = pa.table(
            {column: pa.array(values, kinds[column]) for column, values in table_columns.items()}
        )
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=4)
    return folder


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    times_of_a, times_of_b = draw(times), draw(times)
    a: dict[str, Any] = {"time": times_of_a}
    for name, values in VALUES.items():
        a[name] = draw(st.lists(values, min_size=len(times_of_a), max_size=len(times_of_a)))
    return a, {"x": list(range(len(times_of_b))), "at": times_of_b}


@given(files(), st.integers(1, 9), st.integers(40, 400))
@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parquet_batches_equal_the_row_reader(
    tmp_path: Path,
    tables: tuple[dict[str, Any], dict[str, Any]],
    rows: int,
    split_bytes: int,
) -> None:
    replay = Replay.open(write(tmp_path / "r", *tables), PLAIN, split_bytes=split_bytes)
    assert parquet.plain(replay.splits, PLAIN)
    byte_counts: list[int] = []
    streams = [split for split in replay.splits if not PLAIN.relations[split.relation or 0].table]
    batches = list(parquet.batches(streams, PLAIN, byte_counts.append, rows, least_rows=1))
    records = [record for batch in batches for record in batch.records()]
    assert records == by_rows(replay, BadRecordLog())
    assert min(byte_counts, default=0) >= 0
    assert sum(byte_counts) <= replay.size_bytes


USUAL = {name: [None] for name in VALUES}
IRREGULAR: list[tuple[dict[str, Any], str]] = [
    ({"time": [5, 4], **{name: [None, None] for name in VALUES}}, "times out of order"),
    ({"time": [5], **USUAL, "a_number": [float("nan")]}, "a number that is NaN"),
    ({"time": [5], **{k: v for k, v in USUAL.items() if k != "a_text"}}, "a missing attribute"),
]


@pytest.mark.parametrize(
    ("a", "irregularity"), IRREGULAR, ids=[irregularity for _, irregularity in IRREGULAR]
)
def test_irregular_parquet_falls_back_to_the_row_reader(
    tmp_path: Path, a: dict[str, Any], irregularity: str
) -> None:
    replay = Replay.open(write(tmp_path / "r", a, {"x": [1], "at": [2]}), PLAIN)
    assert not parquet.plain(replay.splits, PLAIN)
    logs = BadRecordLog(OnError.SKIP), BadRecordLog(OnError.SKIP)
    records = [record for batch in replay.batches(logs[0]) for record in batch.records()]
    assert records == by_rows(replay, logs[1])
    assert logs[0].count == logs[1].count


def test_a_bad_value_of_parquet_fails_the_replay(tmp_path: Path) -> None:
    a = {"time": [None], **USUAL}
    replay = Replay.open(write(tmp_path / "r", a, {"x": [1], "at": [2]}), PLAIN)
    with pytest.raises(BadRecordsError, match=r"a\.parquet"):
        list(replay.batches(BadRecordLog(OnError.FAIL)))


def test_duplicate_parquet_columns_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["t", "t"]), path)
    with pytest.raises(SourceError, match="two columns are called 't'; rename one of them"):
        parquet.columns(path)
