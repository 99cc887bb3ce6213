"""A stream has the same records in every format, however it is split."""

from __future__ import annotations

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import BadRecord, Record, records_of
from skws.formats import BadRecordLog, Replay, plan, read_split
from skws.spec.enums import OnError
from tests.formats.samples import (
    DIRECTOR,
    MOVIE,
    PLAYS,
    RECORDS,
    SCHEMA,
    STREAMS,
    csv_text,
    debezium,
    iso,
    items,
    json_lines,
    records,
)
from tests.strategies import examples


@examples(60)
@given(RECORDS)
def test_every_format_of_a_stream_gives_the_same_records(expected: list[Record]) -> None:
    with TemporaryDirectory() as directory:
        for name, write in STREAMS.items():
            path = Path(directory) / name
            write(path, expected)
            read = records(path)
            assert read == expected, name
            assert [list(map(type, r.row)) for r in read] == [list(map(type, r.row)) for r in expected]


@pytest.mark.parametrize("name", STREAMS)
def test_a_directory_is_read_as_the_union_of_its_files(tmp_path: Path, name: str) -> None:
    first = [Record(PLAYS, 10**15 + i, (i, f"r{i}")) for i in range(5)]
    second = [Record(MOVIE, 10**15 + 2, (1, "t", None, 1.0, None, True))]
    (tmp_path / "deep").mkdir()
    STREAMS[name](tmp_path / f"a{name}", first)
    STREAMS[name](tmp_path / "deep" / f"b{name}", second)
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "_SUCCESS").write_text("")
    replay = Replay.open(tmp_path, SCHEMA)
    assert list(replay.stream(BadRecordLog())) == [*first[:3], *second, *first[3:]]
    assert list(records_of(replay.tables(BadRecordLog()))) == []


def write_bare_files(path: Path) -> None:
    """One file per relation, each in another format; times are those of the records."""
    (path / "Director.csv").write_text("name,did\nTarantino,7\n,8\n")
    rows = [{"mid": 1, "did": 7, "time": iso(2_000_000)}, {"mid": 1, "op": "-", "time": 4}]
    (path / "movie.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    plays = csv_text(("mid", "role", "time"), [{"mid": 1, "role": "Mia", "time": "3"}])
    (path / "PLAYS.csv.gz").write_bytes(gzip.compress(plays.encode()))


BARE_RECORDS = [
    Record(MOVIE, 2_000_000, (1, None, 7, None, None, None)),
    Record(PLAYS, 3_000_000, (1, "Mia")),
    Record(MOVIE, 4_000_000, (1, None, None, None, None, None), True),
]


def test_a_directory_may_have_one_file_per_relation(tmp_path: Path) -> None:
    write_bare_files(tmp_path)
    replay = Replay.open(tmp_path, SCHEMA)
    log = BadRecordLog()
    assert list(records_of(replay.tables(log))) == [
        Record(DIRECTOR, 0, (7, "Tarantino")),
        Record(DIRECTOR, 0, (8, None)),
    ]
    assert list(replay.stream(log)) == BARE_RECORDS
    assert log.count == 0


def test_table_rows_inside_a_stream_come_first_at_time_zero(tmp_path: Path) -> None:
    json_lines(tmp_path / "a.jsonl", [BARE_RECORDS[0], Record(DIRECTOR, 99, (7, "x")), BARE_RECORDS[1]])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("broken\n")
    replay = Replay.open([tmp_path / "a.jsonl"], SCHEMA)
    log = BadRecordLog(OnError.SKIP)
    assert list(records_of(replay.tables(log))) == [Record(DIRECTOR, 0, (7, "x"))]
    assert list(replay.stream(log)) == BARE_RECORDS[:2]
    assert log.count == 1


def test_splits_of_several_paths_are_numbered_consecutively(tmp_path: Path) -> None:
    json_lines(tmp_path / "a.jsonl", BARE_RECORDS[:1])
    debezium(tmp_path / "b.jsonl", BARE_RECORDS[1:])
    replay = Replay.open([tmp_path / "b.jsonl", tmp_path / "a.jsonl"], SCHEMA)
    assert [s.ordinal for s in replay.splits] == [0, 1]
    assert list(replay.stream(BadRecordLog())) == BARE_RECORDS


def test_progress_ends_at_the_total_size(tmp_path: Path) -> None:
    for name, write in STREAMS.items():
        write(tmp_path / name, [Record(PLAYS, 10**15 + i, (i, "x")) for i in range(50)])
    replay = Replay.open(tmp_path, SCHEMA, split_bytes=100)
    progress: list[int] = []
    assert len(list(replay.stream(BadRecordLog(), progress.append))) == 50 * len(STREAMS)
    assert progress == sorted(progress)
    assert progress[-1] == replay.size_bytes == sum(f.stat().st_size for f in tmp_path.iterdir())


LINES = st.lists(
    st.sampled_from(
        [
            b'{"relation":"plays","time":1,"row":{"mid":1,"role":"x"}}',
            b'{"relation":"plays","time":2,"row":{"mid":2,"role":"\xc3\xa9\xc3\xa9"}}\r',
            b'{"relation":"plays","time":3,"row":{"mid":"?"}}',
            b"{broken",
            b"",
            b"\r",
            b"null",
            b"\xff",
        ]
    ),
    max_size=12,
)


@examples(150)
@given(LINES, st.booleans(), st.integers(1, 200))
def test_json_lines_may_be_split_anywhere(lines: list[bytes], final_newline: bool, split_bytes: int) -> None:
    text = b"\n".join(lines) + (b"\n" if final_newline else b"")
    with TemporaryDirectory() as directory:
        path = Path(directory) / "s.jsonl"
        path.write_bytes(text)
        unsplit = items(path)
        assert items(path, split_bytes=split_bytes) == unsplit
    bad_lines = [
        i for i, line in enumerate(lines, 1) if line in {b"{broken", b"\xff", b"null"} or b"?" in line
    ]
    bad = [i for i in unsplit if isinstance(i, BadRecord)]
    assert [b.line for b in bad] == bad_lines
    for record in bad:
        raw = text[record.offset : record.offset + len(record.raw)]
        assert raw == record.raw == lines[record.line - 1]


@pytest.mark.parametrize("split_bytes", [1, 700, 1 << 30])
def test_parquet_is_split_by_row_groups(tmp_path: Path, split_bytes: int) -> None:
    expected = [Record(PLAYS, 10**15 + i, (i, "x")) for i in range(20)]
    expected[13] = Record(PLAYS, 10**15, (13, "y"), True)
    STREAMS["s.parquet"](tmp_path / "s.parquet", expected)
    splits = plan(tmp_path / "s.parquet", SCHEMA, split_bytes=split_bytes)
    assert [s.start for s in splits[1:]] == [s.end for s in splits[:-1]]
    assert [item for split in splits for item in read_split(split, SCHEMA)] == expected


@pytest.mark.parametrize("name", ["plays.csv", "plays.jsonl", "any.jsonl", "plays.jsonl.gz"])
def test_an_empty_file_has_no_records(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    assert items(tmp_path / name) == []


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_blank_lines_and_byte_order_marks_are_accepted(
    tmp_path: Path, end: str, last: bool
) -> None:
    texts = {
        "plays.csv": ["", "mid,role,time", "", '1,"a\nb",5', ""],
        "plays.jsonl": ["", '{"mid":1,"role":"a\\nb","time":5}', "  "],
    }
    for name, lines in texts.items():
        text = "\ufeff" + end.join(lines) + (end if last else "")
        (tmp_path / name).write_bytes(text.encode())
        assert items(tmp_path / name) == [Record(PLAYS, 5_000_000, (1, "a\nb"))]
