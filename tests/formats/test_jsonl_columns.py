"""Reading JSON lines in chunks has the same result as reading them one by one, for any content."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.data.batch import BadRecord, Chunk, Item, Record
from skws.formats import BadRecordLog, Replay, read_split
from skws.formats.jsonl import CHUNK_BYTES, ChunkReader
from skws.formats.jsonl_order import in_order, timed_blocks
from skws.spec.enums import OnError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from tests.formats.samples import by_rows
from tests.strategies import examples

KINDS = tuple(Attribute(kind.value, kind) for kind in AttributeType)
SCHEMA = Schema(
    "s",
    (
        Relation("a", KINDS, search=("text",)),
        Relation("b", (Attribute("x", AttributeType.INTEGER),)),
        Relation("t", (Attribute("x", AttributeType.INTEGER),), table=True),
    ),
    (Join("j", "a", "b", (("integer", "x"),)),),
)

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.just(2**63),
    st.floats(-9, 9),
    st.sampled_from(["x", "7", "é", ""]),
)
usual = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["one", None]),
        "string": st.just("s"),
        "integer": st.integers(-3, 3),
        "number": st.sampled_from([1.5, 2, None]),
        "boolean": st.booleans(),
        "timestamp": st.sampled_from([None, 5, "2020-01-01T00:00:00Z"]),
    }
)
odd = st.dictionaries(st.sampled_from([a.name for a in KINDS] + ["q"]), values, max_size=7)
rows = st.one_of(usual, usual, usual, odd, st.lists(values, max_size=2))
times = st.one_of(
    st.integers(0, 9), st.integers(0, 9), st.floats(0, 9), st.sampled_from(["2020-01-01", "no", None, True])
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A usual or unusual record, or a line that is not a record."""
    item: dict[str, Any] = {
        "relation": draw(st.sampled_from(["a", "a", "a", "b", "t", "z"])),
        "time": draw(times),
    }
    item["row"] = {"x": draw(st.integers(0, 3))} if item["relation"] in "bt" else draw(rows)
    if draw(st.integers(0, 9)) == 0:
        item["op"] = draw(st.sampled_from(["+", "-", "?"]))
    if draw(st.integers(0, 19)) == 0:
        del item[draw(st.sampled_from(sorted(item)))]
    text = orjson.dumps(item)
    return draw(
        st.sampled_from([text] * 12 + [text[:-3], b"", b"  ", b"null", b"[1]", b"\xff", text + b"," + text])
    )


def chunk_reader_items(
    path: Path, split_bytes: int, schema: Schema = SCHEMA, chunk_bytes: int = CHUNK_BYTES
) -> list[Item]:
    """The bad records, the other records, and the skipped ones."""
    splits = Replay.open(path, schema, split_bytes=split_bytes).splits
    reader = ChunkReader(schema, chunk_bytes)
    return normalized(Chunk.concat(chunk for split in splits for chunk in reader.read(split)))


def line_reader_items(path: Path, schema: Schema = SCHEMA) -> list[Item]:
    """The bad records, the other records, and the skipped ones."""
    splits = Replay.open(path, schema).splits
    return normalized(Chunk.of(item for split in splits for item in read_split(split, schema)))


def normalized(items: Iterable[Item]) -> list[Item]:
    """The items, with notes on skipped records last and summed by reason; each chunk has its own notes."""
    all_items = list(items)
    skipped_counts: Counter[str] = Counter()
    for item in all_items:
        if isinstance(item, BadRecord) and item.passed_over:
            skipped_counts[item.reason] += item.passed_over
    records = [item for item in all_items if isinstance(item, Record) or not item.passed_over]
    notes = [
        BadRecord("", 0, 0, b"", reason, passed_over=count)
        for reason, count in sorted(skipped_counts.items())
    ]
    return [*records, *notes]


@given(st.lists(lines(), min_size=1, max_size=30), st.integers(1, 800), st.integers(20, 2000))
@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_equal_single_lines(
    tmp_path: Path, record_lines: list[bytes], chunk_bytes: int, split_bytes: int
) -> None:
    path = tmp_path / "r.jsonl"
    first = b'{"relation": "b", "time": 0, "row": {"x": 1}}'
    path.write_bytes(b"\n".join([first, *record_lines]) + b"\n")
    assert chunk_reader_items(path, split_bytes, chunk_bytes=chunk_bytes) == line_reader_items(path)
    replay = Replay.open(path, SCHEMA)
    logs = BadRecordLog(OnError.SKIP), BadRecordLog(OnError.SKIP)
    batches = [record for batch in replay.batches(logs[0]) for record in batch.records()]
    assert batches == by_rows(replay, logs[1])
    assert logs[0].count == logs[1].count


SINGLE_RELATION = Schema("s", (Relation("b", (Attribute("x", AttributeType.INTEGER), KINDS[0])),), ())
PLAIN = b'{"relation": "b", "time": 1, "row": {"x": 1}}'
ODD = (
    [PLAIN + PLAIN, PLAIN.replace(b", ", b",\n")],
    [PLAIN + PLAIN, PLAIN.replace(b"{", b"\n{")],
    [PLAIN, b"", PLAIN + b"\r"],
    [b"  " + PLAIN, PLAIN + b" "],
    [PLAIN.replace(b"}}", b"}\n}")],
    [PLAIN.replace(b"1}", b'1, "text": "}\n{"}')],
    [PLAIN.replace(b'"b"', b'"b", "relation": "a"')],
    [PLAIN.replace(b'"relation": "b", ', b"")],
    [PLAIN.replace(b"}}", b'}, "op": "+"}'), PLAIN],
    [PLAIN.replace(b"}}", b'}, "op": "-"}'), PLAIN],
    [PLAIN.replace(b'"x": 1', b'"x": 1, "x": 2'), PLAIN.replace(b'"x"', b'"\\u0078"')],
    *(
        [PLAIN.replace(b'"x": 1', b'"x": ' + value)]
        for value in (b"9223372036854775808", b"-0", b"1.0", b"1e2")
    ),
    *(
        [PLAIN.replace(b'"time": 1', b'"time": ' + time)]
        for time in (b"1e99", b"-0", b"true", b'"2020-01-01"')
    ),
    [PLAIN.replace(b"1}", b'1, "text": "\xff"}')],
    [PLAIN.replace(b"1}", b'1, "text": "\\ud800"}')],
    [PLAIN.replace(b"1}", b'1, "text": "\\ud83d\\ude00 \\u0000"}')],
)


@pytest.mark.parametrize("lines", ODD)
def test_chunks_with_irregular_lines_equal_single_lines(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "r.jsonl"
    for ending in (b"", b"\n"):
        path.write_bytes(b"\n".join([PLAIN, *lines, PLAIN]) + ending)
        assert chunk_reader_items(path, 1 << 20, SINGLE_RELATION) == line_reader_items(path, SINGLE_RELATION)


def test_the_first_second_of_the_year_10000_is_bad_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    times = (b"253402300799.0", b"253402300800.0")
    path.write_bytes(b"".join(PLAIN.replace(b'"time": 1', b'"time": ' + time) + b"\n" for time in times))
    items = chunk_reader_items(path, 1 << 20, SINGLE_RELATION)
    assert items == line_reader_items(path, SINGLE_RELATION)
    assert [type(item) for item in items] == [BadRecord, Record]
    assert ChunkReader(SINGLE_RELATION).plain([PLAIN.replace(b": 1,", b": 1e303,") + b"\n"]) is None


def test_regular_lines_are_read_as_a_batch() -> None:
    """Even if optional attributes are missing or times are numbers."""
    lines = [
        b'{"relation": "a", "time": 1.5, "row": {"integer": 7, "number": 2, "timestamp": "1970-01-02"}}\n',
        PLAIN.replace(b"1,", b'"1970-01-01T00:00:02Z", "op": "+",') + b"\n",
    ]
    day = 86_400_000_000
    batch = ChunkReader(SCHEMA).plain(lines)
    assert batch is not None
    assert list(batch.records()) == [
        Record(0, 1_500_000, (None, None, 7, 2.0, None, day)),
        Record(1, 2_000_000, (1,)),
    ]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "1", "2.5", "30"], True),
        (["1", "2", "1.9"], False),
        (['"2020-01-01T00:00:00Z"', '"2020-01-02T00:00:00Z"'], True),
        (['"2020-01-02T00:00:00Z"', '"2020-01-01T00:00:00Z"'], False),
        (['"2020-01-01T00:00:00Z"', '"2020-01-01T00:00:00.5Z"'], True),
        (['"2020-01-01T00:00:00.5Z"', '"2020-01-01T00:00:00Z"'], False),
        (['"2020-01-01T00:00:00+01:00"', '"2020-01-02T00:00:00+01:00"'], True),
        (['"2020-01-01T00:00:00Z"', '"2020-01-01T00:00:00+01:00"'], False),
        (["1", '"2020-01-02T00:00:00Z"'], True),
        (['"2020-01-02T00:00:00Z"', "1"], False),
        (
            [
                '"2020-01-01 00:00:00Z"',
                '"2020-01-01 23:00:00Z"',
                '"2020-01-01T01:00:00Z"',
                '"2020-01-01T23:30:00Z"',
            ],
            False,
        ),
        (["1", "null", "2"], True),
        (["2", "null", "1"], False),
    ],
)
def test_in_order_compares_times_in_any_notation(tmp_path: Path, texts: list[str], expected: bool) -> None:
    path = tmp_path / "r.jsonl"
    lines = [f'{{"relation": "b", "time": {text}, "row": {{"x": 1}}}}' for text in texts]
    path.write_text("\n".join(lines))
    assert in_order(Replay.open(path, SCHEMA, split_bytes=30).splits) is expected


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 30), min_size=1), st.booleans(), st.booleans(), st.integers(1, 200))
def test_in_order_does_not_depend_on_block_size(
    tmp_path: Path, times: list[int], sort: bool, final_newline: bool, block_bytes: int
) -> None:
    times = sorted(times) if sort else times
    lines = [b'{"relation": "b", "time": %d, "row": {"x": 1}}' % time for time in times]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * final_newline)
    assert in_order(Replay.open(path, SCHEMA).splits, block_bytes) is (times == sorted(times))


def test_the_times_of_blocks_include_the_first_line_after_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    lines = b"".join(b'{"relation": "b", "time": %d, "row": {"x": 1}}\n' % time for time in (5, 6))
    for mark in (b"", BOM_UTF8):
        path.write_bytes(mark + lines)
        (split,) = Replay.open(path, SCHEMA).splits
        assert [(block.first, block.last) for block in timed_blocks(split) or ()] == [(5_000_000, 6_000_000)]
        assert in_order([split])
        path.write_bytes(mark + lines.replace(b"5", b"7"))
        assert not in_order([split])


def test_in_order_ignores_times_inside_texts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    text = orjson.dumps({"relation": "a", "time": 5, "row": {"text": 'say "time": 1'}})
    path.write_bytes(text + b"\n" + text.replace(b"5", b"4"))
    assert not in_order(Replay.open(path, SCHEMA).splits)
