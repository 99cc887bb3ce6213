"""Bare rows read as columns have the same records and bad records as when they are read row by row."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.data.batch import BATCH, Chunk, Item, Record, RecordBatch
from skws.data.packing import pack, unpack
from skws.formats import BadRecordLog, Replay, read_split
from skws.formats import parquet_files as parquet
from skws.formats.csv_columns import chunks as csv_chunks
from skws.formats.jsonl import BareChunkReader, reads_bare_columns
from skws.spec.enums import OnError
from skws.store.table_tuples import table_tuples
from skws_purging.lifespans import ALWAYS, GroupKey, StreamTuple, identity
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema, Unknown
from skws_windows.window import FOREVER
from tests.commands import python
from tests.formats.test_jsonl_columns import normalized
from tests.strategies import examples

T = AttributeType
KINDS = tuple(Attribute(kind.value, kind) for kind in T)
OTHER = Relation("other", (Attribute("k", T.INTEGER),), table=True)
KEYED = (Join("j", "a", "other", (("integer", "k"),)),)


def schema(relation: Relation, unknown: Unknown = Unknown.IGNORE) -> Schema:
    return Schema("s", (relation, OTHER), KEYED, unknown=unknown)


SCHEMAS = {
    "table": schema(Relation("a", KINDS, search=("text",), table=True)),
    "timed": schema(Relation("a", KINDS, search=("text", "string"), time="timestamp", key=("string",))),
    "stamped": schema(Relation("a", KINDS, search=("text",))),
    "strict": schema(Relation("a", KINDS, search=("text",), table=True), Unknown.FAIL),
    "renamed": schema(
        Relation("a", tuple(Attribute(a.name, a.type, origin=f"the {a.name}") for a in KINDS), table=True)
    ),
}

TEXTS = {
    T.TEXT: ["one", "é", "", " ", 'say "x"', "a,b", "two\nlines", "NULL", "nan", "\u2028", "x" * 70],
    T.STRING: ["s", "7", "", "\t", "ſ"],
    T.INTEGER: [
        "1",
        "-7",
        "0012",
        "+3",
        "1.",
        "5.0",
        "5.5",
        "",
        "nan",
        " 1",
        "9223372036854775808",
        "0x10",
        "1_0",
    ],
    T.NUMBER: [
        "1",
        "2.5",
        ".5",
        "1.",
        "+1e3",
        "-0",
        "1e999",
        "inf",
        "NaN",
        "",
        "1,5",
        "0.1",
        "123456789.123456789",
    ],
    T.BOOLEAN: ["true", "F", "1", "no", "YES", "", "2", "yeſ", "İ"],
    T.TIMESTAMP: [
        *("2024-01-02", "2024-01-02 03:04", "2024-01-02T03:04:05.5", "2024-01-02T03:04:05Z", "17", "17.25"),
        *(
            "2024-01-02T03:04:05.123456+02:00",
            "2024-02-30",
            "0000-01-01",
            "9999-12-31",
            "0001-01-01",
            "infinity",
        ),
        *(
            "0001-01-01T00:00:00+05:00",
            "2024-01-02T24:00:00",
            "2024-01-02T03:04:05.1234567",
            "20240102",
            "-5",
            "",
        ),
        *(
            "2024-01-02T03:04:60",
            "2024-01-02T03:04:05+99:00",
            "999999999999",
            "2024-01-02t03:04",
            "10000-01-01",
        ),
        *(
            "2024-01-02T03:04:05.",
            "2024-1-2",
            "4400 BC",
            "2024-01-02T03:04:05.12Z",
            "2024-01-02 03:04:05+01:00",
        ),
    ],
}
USUAL = {
    T.TEXT: "one",
    T.STRING: "s",
    T.INTEGER: "7",
    T.NUMBER: "2.5",
    T.BOOLEAN: "true",
    T.TIMESTAMP: "2024-01-02T03:04:05Z",
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """A header and fields, with most columns in a single format."""
    names = [kind.value for kind in T]
    if draw(st.integers(0, 3)) == 0:
        names.remove(draw(st.sampled_from(names)))
    names += draw(
        st.lists(st.sampled_from(["extra", "time", "op", "__deleted", "k"]), unique=True, max_size=2)
    )
    size = draw(st.integers(1, 8))
    fields = []
    for name in names:
        kind = T(name) if name in {k.value for k in T} else None
        odd = TEXTS[kind] if kind is not None else ["", "", "1", "+", "2024-01-02"]
        usual = [USUAL.get(kind, "1")] if kind is not None else odd
        form = draw(
            st.sampled_from(
                [usual, usual, odd[:3], odd, draw(st.lists(st.sampled_from(odd), min_size=1, max_size=2))]
            )
        )
        fields.append(draw(st.lists(st.sampled_from(form), min_size=size, max_size=size)))
    return names, [list(row) for row in zip(*fields, strict=True)]


def row_reader_items(path: Path, schema: Schema) -> list[Item]:
    return normalized(
        Chunk.of(item for split in Replay.open(path, schema).splits for item in read_split(split, schema))
    )


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[list[str], bytes]:
    names, rows = draw(columns())
    buffer = io.StringIO(newline="")
    writer = csv.writer(
        buffer,
        lineterminator=draw(st.sampled_from(["\n", "\r\n"])),
        delimiter=draw(st.sampled_from(",;\t")),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
    )
    writer.writerow(names)
    writer.writerows(rows * draw(st.sampled_from([1, 12])))
    lines = buffer.getvalue().encode().splitlines(keepends=True)
    odd_lines = [
        b"\n",
        b"   \n",
        b",,,,,\n",
        b"a,b\n",
        b'"open\n',
        b'x"y,"z"w\n',
        b"\xff,1\n",
        b"\xef\xbb\xbf1,2\n",
        b"a\rb\n",
        b"\0\n",
        b'""\n',
    ]
    for line in draw(st.lists(st.integers(1, len(lines)), max_size=2)):
        lines.insert(line, draw(st.sampled_from(odd_lines)))
    for line in draw(st.lists(st.integers(1, len(lines) - 1), max_size=1)) if len(lines) > 1 else ():
        offset = draw(st.integers(0, len(lines[line])))
        stray = draw(st.sampled_from([b'"', b'"', b"\r", b"\r", b"\0", b"\xff", b'""', b"\n"]))
        lines[line] = lines[line][:offset] + stray + lines[line][offset:]
    content = b"".join(lines)
    return names, draw(st.sampled_from([content, content.rstrip(b"\r\n"), b"\xef\xbb\xbf" + content]))


@pytest.mark.parametrize("kind", SCHEMAS)
@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(csv_files(), st.integers(1, 400))
def test_csv_columns_equal_csv_rows(
    tmp_path: Path, kind: str, file: tuple[list[str], bytes], piece_bytes: int
) -> None:
    path, schema = tmp_path / "a.csv", SCHEMAS[kind]
    path.write_bytes(file[1])
    (split,) = Replay.open(path, schema).splits
    if split.relation is not None:
        items = normalized(Chunk.concat(csv_chunks(split, schema, piece_bytes=piece_bytes)))
        assert items == row_reader_items(path, schema)


STRAY = (
    b'a"b',
    b'a"',
    b'"a"b',
    b'"a" ',
    b' "a"',
    b'"a""',
    b"a\rb",
    b"a\r",
    b'"a\rb"',
    b'"a\r\nb"',
    b'"a\nb"',
    b'"',
    b'""""',
)


@pytest.mark.check
@pytest.mark.parametrize("text", STRAY)
@pytest.mark.parametrize("piece_bytes", [1, 90, 10_000])
def test_csv_columns_with_stray_quotes_and_returns_equal_rows(
    tmp_path: Path, text: bytes, piece_bytes: int
) -> None:
    path, schema = tmp_path / "a.csv", SCHEMAS["table"]
    lines = [b"w%d,s,%d,1,,\n" % (n, n) for n in range(200)]
    for line in (60, 100, 120):
        lines[line] = b"%b,s,7,1,,\n" % text
    lines[150] = b"x,%b\n" % text
    lines[170] = b"w,s,7,1,,\rw,s,7,1,,\n"
    path.write_bytes(b"text,string,integer,number,boolean,timestamp\n" + b"".join(lines))
    (split,) = Replay.open(path, schema).splits
    assert normalized(Chunk.concat(csv_chunks(split, schema, piece_bytes=piece_bytes))) == row_reader_items(
        path, schema
    )


def test_csv_that_is_not_read_as_columns_comes_in_several_chunks(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.csv", SCHEMAS["stamped"]
    path.write_bytes(b"time,op,integer\n" + b"1,+,2\n" * (BATCH + 1))
    (split,) = Replay.open(path, schema).splits
    sizes = [len(chunk) for chunk in csv_chunks(split, schema)]
    assert sum(sizes) == BATCH + 1
    assert max(sizes) <= BATCH


@pytest.mark.parametrize("separator", ["§", "|", "\udca7"])
def test_csv_may_have_any_separator(tmp_path: Path, separator: str) -> None:
    path, schema = tmp_path / "a.csv", SCHEMAS["table"]
    lines = [f"sep={separator}", f"text{separator}integer", *(f"w{separator}{n}" for n in range(99))]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    (split,) = Replay.open(path, schema).splits
    items = normalized(Chunk.concat(csv_chunks(split, schema)))
    assert items == row_reader_items(path, schema)
    assert sum(isinstance(item, Record) for item in items) == 99


def test_regular_csv_is_read_as_columns(tmp_path: Path) -> None:
    """Even with quotes, empty fields and line ends inside."""
    path, schema = tmp_path / "a.csv", SCHEMAS["table"]
    row = b'"a ""b"", c\nd",s,%d,2.5,,2024-01-02\n'
    path.write_bytes(b"text,string,integer,number,boolean,timestamp\n" + b"".join(row % n for n in range(99)))
    (split,) = Replay.open(path, schema).splits
    batches = [chunk.records for chunk in csv_chunks(split, schema, piece_bytes=200)]
    rows = [record.row for batch in batches for record in batch.records()]
    assert rows == [('a "b", c\nd', "s", n, 2.5, None, 1704153600000000) for n in range(99)]
    assert {type(block).__name__ for batch in batches[1:-1] for block in batch.rows.blocks} == {"ColumnBlock"}


values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.just(2**63), st.floats(-9, 9),
    st.sampled_from(["x", "7", "é", "", "2024-01-02", ["a"], {"b": 1}]),
)  # fmt: skip
usual = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["one", None]),
        "string": st.just("s"),
        "integer": st.integers(-3, 3),
        "number": st.sampled_from([1.5, 2, None]),
        "boolean": st.booleans(),
        "timestamp": st.sampled_from([5, "2020-01-01T00:00:00Z"]),
    }
)
more = st.dictionaries(st.sampled_from(["time", "op", "extra", "__deleted", "integer"]), values, max_size=2)
odd_rows = st.dictionaries(st.sampled_from([a.name for a in KINDS] + ["q", "time"]), values, max_size=8)
stamps: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"time": 5}, {"time": "2020-01-01"}, {"op": "+"}, {"time": 1, "op": "-"}]
)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    item: dict[str, Any] = draw(usual) | draw(stamps)
    form = draw(st.integers(0, 9))
    if form == 0:
        item |= draw(more)
    elif form == 1:
        item = draw(odd_rows)
    elif form == 2:
        item = {f"the {name}": value for name, value in item.items()}
    text = orjson.dumps(item)
    return draw(
        st.sampled_from(
            [text] * 14
            + [text[:-3], b"", b"  ", b"null", b"[1]", b"\xff", text + text, text.replace(b"s", b"\\ud800")]
        )
    )


@pytest.mark.check
@pytest.mark.parametrize("kind", SCHEMAS)
@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(json_lines(), min_size=1, max_size=20), st.integers(1, 800), st.integers(20, 2000))
def test_json_columns_equal_json_rows(
    tmp_path: Path, kind: str, lines: list[bytes], chunk_bytes: int, split_bytes: int
) -> None:
    path, schema = tmp_path / "a.jsonl", SCHEMAS[kind]
    path.write_bytes(b'{"integer": 1, "time": 0}\n' + b"\n".join(lines) + b"\n")
    splits = Replay.open(path, schema, split_bytes=split_bytes).splits
    if all(reads_bare_columns(split, schema) for split in splits):
        reader = BareChunkReader(schema, 0, chunk_bytes)
        items = Chunk.concat(chunk_bytes for split in splits for chunk_bytes in reader.read(split))
        assert normalized(items) == row_reader_items(path, schema)


def test_regular_json_lines_are_read_as_columns() -> None:
    line = b'{"text": null, "string": "s", "integer": 4, "number": 2, "timestamp": "1970-01-02"}\n'
    batch = BareChunkReader(SCHEMAS["timed"], 0).plain([line, line])
    assert batch is not None
    day = 86_400_000_000
    assert list(batch.records()) == [Record(0, day, (None, "s", 4, 2.0, None, day))] * 2


MOMENT = datetime(2024, 1, 2, 3)  # noqa: DTZ001 - as Arrow has it
ARRAYS = [
    pa.array(["x", "", None, "é"]),
    pa.array(["1", None, "2", "-3"]),
    pa.array(["1.5", None, "2", "nan"], pa.large_string()),
    pa.array(["x", None, "y", "x"]).dictionary_encode(),
    pa.array([1, None, 0, 1], pa.int8()),
    pa.array([1, 2, 3, 2**64 - 1], pa.uint64()),
    pa.array([2**53 + 1, 1, None, 2], pa.int64()),
    pa.array([1, 2, 3, None], pa.uint16()),
    pa.array([1.5, None, 2.0, 3.25], pa.float32()),
    pa.array([1.0, None, 2.0, float("nan")]),
    pa.array([True, None, False, True]),
    pa.array([date(2024, 1, 2), None, date(1, 1, 1), date(9999, 12, 31)]),
    pa.array([date(2024, 1, 2), None, date(1, 1, 1), date(9999, 12, 31)], pa.date64()),
    *(pa.array([MOMENT, None, MOMENT, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    pa.array([MOMENT, None, None, None], pa.timestamp("us", "Europe/Berlin")),
    pa.array([2**60, 1, 2, 3]).cast(pa.timestamp("us")),
    pa.array([-(10**15), 1, 2, 3]).cast(pa.timestamp("ms")),
    pa.array([Decimal("1.50"), None, Decimal("2.00"), Decimal("3.25")]),
    pa.array([b"x", None, b"\xff", b""]),
    pa.array([None] * 4),
    pa.array([["a"], None, [], ["b", "c"]]),
    pa.Array.from_buffers(pa.string(), 4, pa.array([b"a", b"\xff", b"c", b"d"], pa.binary()).buffers()),
]  # fmt: skip


@pytest.mark.check
@pytest.mark.parametrize("kind", T)
@pytest.mark.parametrize("index", range(len(ARRAYS)))
@pytest.mark.parametrize("relation", ["table", "timed"])
def test_parquet_columns_equal_parquet_rows(tmp_path: Path, index: int, kind: T, relation: str) -> None:
    schema, path = SCHEMAS[relation], tmp_path / "a.parquet"
    columns = {"string": ["s", "t", "u", "v"], "integer": [1, 2, 3, 4], "timestamp": [MOMENT] * 4}
    pq.write_table(pa.table({**columns, kind.value: ARRAYS[index], "extra": [1, None, 2, None]}), path)
    (split,) = Replay.open(path, schema).splits
    items = Chunk.concat(parquet.chunks(split, schema))
    assert repr(normalized(items)) == repr(row_reader_items(path, schema))


def record_batches(rows: list[tuple[int, tuple[Any, ...]]]) -> Iterator[RecordBatch]:
    """Batches of three rows, in turn as rows and as columns: a file may have both."""
    for begin in range(0, len(rows), 3):
        batch = RecordBatch.of([Record(relation, 0, row) for relation, row in rows[begin : begin + 3]])
        yield unpack(pack(batch)) if begin % 2 else batch


TABLES = Schema(
    "s",
    (
        Relation("keyed", (Attribute("k", T.TEXT), Attribute("v", T.INTEGER)), key=("k",), table=True),
        Relation("free", (Attribute("x", T.INTEGER), Attribute("y", T.TEXT)), table=True),
    ),
    (Join("j", "keyed", "free", (("v", "x"),)),),
)
table_rows = st.one_of(
    st.tuples(st.just(0), st.tuples(st.sampled_from(["a", "b", None, "é"]), st.integers(0, 2) | st.none())),
    st.tuples(st.just(1), st.tuples(st.integers(0, 1) | st.none(), st.sampled_from(["x", "y", "z", None]))),
)


def static_tuples(schema: Schema, rows: Iterable[tuple[int, Row]]) -> list[StreamTuple]:
    """The tuples of static tables, row by row."""
    tuples: dict[tuple[GroupKey, int], StreamTuple] = {}
    occurrences: Counter[GroupKey] = Counter()
    for relation, row in rows:
        key = identity(schema, relation, row)
        _, _, has_key = key
        occurrence = 0 if has_key else occurrences[key]
        occurrences[key] += 1
        tuples[key, occurrence] = StreamTuple(relation, row, ALWAYS, FOREVER, occurrence=occurrence)
    return list(tuples.values())


@given(st.lists(table_rows, max_size=12))
@examples(300)
def test_table_rows_with_equal_keys_are_replaced(rows: list[tuple[int, tuple[Any, ...]]]) -> None:
    """The last one of equal keys, in the position of the first; equal rows without a key are distinct."""
    expected = static_tuples(TABLES, rows)
    tuples = table_tuples(TABLES, record_batches(rows))
    assert list(zip(tuples.relation.tolist(), tuples.rows, strict=True)) == [
        (t.relation, t.row) for t in expected
    ]
    tracked = {position: (t.relation, t.row, t.occurrence) for position, t in tuples.followed.items()}
    expected_tracked = {
        position: (t.relation, t.row, t.occurrence) for position, t in enumerate(expected) if t.occurrence
    }
    assert tracked == expected_tracked
    assert np.all(tuples.end > tuples.start)


def test_bad_records_of_a_large_file_have_line_numbers(tmp_path: Path) -> None:
    """Like those of a small one."""
    path, schema = tmp_path / "a.csv", SCHEMAS["table"]
    lines = [f"some words in a row of a long file number {n},s,{n},1,,\n" for n in range(60_000)]
    lines[30_000], lines[59_999] = "one,s,x,1,,\n", "one,s\n"
    path.write_text("text,string,integer,number,boolean,timestamp\n" + "".join(lines))
    bad = BadRecordLog(OnError.SKIP)
    size = sum(len(batch) for batch in Replay.open(path, schema).tables(bad))
    assert (size, [record.line for record in bad.first]) == (59_998, [30_002, 60_001])


def test_columns_are_typed_without_pandas() -> None:
    code = """
import io, sys
import pyarrow.csv as pv
from skws.formats.bare_columns import typed
from skws_schema.model import AttributeType as T
data = b"text,integer,number,boolean,timestamp\\none,1,1.5,true,2024-05-06 07:08:09\\n" + b",,,,\\n" * 600
options = pv.ConvertOptions(column_types=dict.fromkeys(map(str, T), "string"), strings_can_be_null=True)
table = pv.read_csv(io.BytesIO(data), convert_options=options).combine_chunks()
values = [typed(table[name].combine_chunks(), T(name)).to_pylist()[:2] for name in table.column_names]
print(values, "pandas" in sys.modules)
"""
    outcome = python("-c", code)
    expected = "[['one', None], [1, None], [1.5, None], [True, None], [1714979289000000, None]]"
    assert (outcome.code, outcome.out.strip()) == (0, f"{expected} False"), outcome.err
