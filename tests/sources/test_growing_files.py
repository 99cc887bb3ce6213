"""Files that grow or are added while they are followed."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections import Counter
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import BadRecord, Chunk, Record
from skws.data.blocks import ColumnBlock
from skws.formats import plan, read_split
from skws.sources.growing_files import FilesFeed
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from tests.sources.followed_files import SCHEMA, Follower, append, line, numbers
from tests.sources.table_items import table_items
from tests.strategies import examples


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    assert follower.poll() == []
    append(path, line(3) + line(4)[:-12])
    assert follower.poll() == [3]
    assert follower.feed.backlog(follower.offset).text == f"{len(line(4)) - 12} bytes behind"
    follower.restart()
    append(path, line(4)[-12:] + b"nonsense\n" + line(5))
    reason, four = follower.poll(2)
    assert four == 4
    assert str(reason).startswith("not JSON")
    assert follower.poll(2) == [5]
    (bad_record,) = (
        item for _, items, _ in follower.polled_batches for item in items if isinstance(item, BadRecord)
    )
    assert (bad_record.line, bad_record.offset, bad_record.raw) == (5, 4 * len(line(1)), b"nonsense")
    follower.replay()


def test_the_first_part_of_a_line_is_no_document(tmp_path: Path) -> None:
    """A whole .json file may be one document, whose first line leaves an object open."""
    path = tmp_path / "stream.json"
    cut = line(1).index(b",") + 1
    path.write_bytes(line(1)[:cut])
    follower = Follower(path)
    assert follower.poll() == []
    for rest, expected in ((line(1)[cut:] + line(2), [1, 2]), (line(3), [3])):
        append(path, rest)
        assert follower.poll() == expected
    follower.replay()


def test_table_rows_after_many_blank_lines_are_read(tmp_path: Path) -> None:
    row = b'{"gid":7,"label":"x"}\n'
    (tmp_path / "genre.jsonl").write_bytes(row + b"\n" * 25_000 + row)
    assert numbers(table_items(FilesFeed(tmp_path, SCHEMA))) == [7, 7]


def test_files_of_unequal_lengths_fill_a_poll(tmp_path: Path) -> None:
    """Otherwise a job would assume that nothing else is waiting, and its batches would never grow."""
    for name, count in (("a", 100), ("b", 1), ("c", 30), ("d", 1)):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join(line(1000 * ord(name) + n) for n in range(count)))
    follower = Follower(tmp_path)
    sizes = []
    while items := follower.poll(20):
        sizes.append(len(items))
        assert items == sorted(items, key=lambda number: int(number) // 1000)  # type: ignore[call-overload]
    assert sizes == [20] * 6 + [12]
    follower.replay()


GENRE = b'{"relation":"genre","row":{"gid":7,"label":"x"}}\n'


@pytest.mark.check
@pytest.mark.parametrize("unusual_lines", [[], [b"nonsense\n"], [GENRE, line(8)]])
def test_usual_lines_of_a_long_portion_are_read_as_columns(
    tmp_path: Path, unusual_lines: list[bytes]
) -> None:
    path = tmp_path / "stream.jsonl"
    before = [line(n, "some title", "play" if n % 3 == 0 else "movie") for n in range(9000)]
    path.write_bytes(b"".join(before) + b"".join(unusual_lines) + line(9000)[:-1])
    follower = Follower(path)
    (plays, movies) = follower.feed.poll(follower.offset, 5000).read.records.rows.blocks
    assert isinstance(plays, ColumnBlock)
    assert isinstance(movies, ColumnBlock)
    values = follower.poll(5000) + follower.poll(5000)
    assert [n for n in values if isinstance(n, int) and n != 8] == [n for n in range(9001) if n != 8]
    assert values.count(8) == 1 + (line(8) in unusual_lines)
    assert sum(isinstance(n, str) for n in values) == unusual_lines.count(b"nonsense\n")
    split = plan(path, SCHEMA)[0]
    expected = Chunk.of(
        item for item in read_split(split, SCHEMA) if isinstance(item, BadRecord) or item.relation
    )
    assert list(Chunk.of(item for _, items, _ in follower.polled_batches for item in items)) == list(expected)
    follower.replay()


def test_an_unterminated_last_line_is_read_once_complete(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2)[:-1])
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    append(path, b"\n" + line(3)[:-2])
    assert follower.poll() == []
    append(path, line(3)[-2:])
    assert follower.poll() == [3]
    follower.replay()


def test_new_files_of_every_format_are_read(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.poll() == []
    (tmp_path / "b.jsonl").write_bytes(line(1))
    (tmp_path / "play.csv").write_bytes(b"mid,time\n2,5\n3,6\n")
    with gzip.open(tmp_path / "c.jsonl.gz", "wb") as compressed_file:
        compressed_file.write(line(4) + line(5) + line(6))
    (tmp_path / "movie").mkdir()
    rows = {"mid": [7, 8, 9], "title": ["a", None, "c"], "time": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(rows), tmp_path / "movie" / "part-0.parquet", row_group_size=2)
    (tmp_path / "notes.txt").write_text("no replay")
    (tmp_path / "_hidden.jsonl").write_bytes(b"nonsense")
    assert follower.poll() == [1, 4, 5, 6, 7, 8, 9, 2, 3]
    assert follower.notices == ["skipped notes.txt: unknown format"]
    assert follower.poll() == []
    follower.restart()
    assert follower.poll() == []
    append(tmp_path / "play.csv", b"10,7\n")
    assert follower.poll() == [10]
    follower.replay()


def test_names_of_files_need_not_be_utf_8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    try:
        os.mkdir(folder + b"/of m\xfcller")
    except OSError:  # as on macOS
        pytest.skip("the file system only has names in UTF-8")
    for name, content in (
        (b"/m\xfc.jsonl", line(1)),
        (b"/of m\xfcller/x.jsonl", line(2)),
        (b"/\xfc.txt", b"x"),
    ):
        with open(folder + name, "wb") as file:
            file.write(content)
    follower = Follower(tmp_path)
    assert follower.poll() == [1, 2]
    assert follower.notices == [r"skipped \xfc.txt: unknown format"]
    follower.restart()
    assert follower.poll() == []
    follower.replay()


def test_notices_of_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no replay")
    follower = Follower(tmp_path)
    for number in (*range(300), 0):
        (tmp_path / f"{number}.tmp").write_text("no replay")
        assert follower.poll() == []
        (tmp_path / f"{number}.tmp").unlink()
    notices = [f"skipped {number}.tmp: unknown format" for number in (*range(300), 0)]
    assert sorted(follower.notices) == sorted(["skipped notes.txt: unknown format", *notices])


def test_whole_files_are_read_in_portions_across_restarts(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as compressed_file:
        compressed_file.write(b"".join(map(line, range(10))))
    rows = {"relation": ["movie"] * 10, "mid": list(range(10, 20)), "title": ["x"] * 10, "time": [0] * 10}
    pq.write_table(pa.table(rows), tmp_path / "b.parquet", row_group_size=3)
    follower = Follower(tmp_path)
    numbers_read = []
    for _ in range(8):
        numbers_read += follower.poll(8)
        follower.restart()
    assert sorted(map(str, numbers_read)) == sorted(map(str, range(20)))
    follower.replay()


@pytest.mark.parametrize("name", ["late.parquet", "late.jsonl.gz"])
def test_incomplete_files_wait(tmp_path: Path, name: str) -> None:
    source = tmp_path / f"_{name}"
    if name.endswith("gz"):
        source.write_bytes(gzip.compress(line(1) * 100))
    else:
        pq.write_table(pa.table({"relation": ["movie"], "mid": [1], "title": ["x"], "time": [0]}), source)
    data = source.read_bytes()
    follower = Follower(tmp_path)
    for prefix in (data[:0], data[: len(data) // 2], data[:-1]):
        (tmp_path / name).write_bytes(prefix)
        assert follower.poll() == []
    assert any("reading it once it is complete" in notice for notice in follower.notices)
    (tmp_path / name).write_bytes(data)
    assert set(follower.poll()) == {1}


@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf", b"# titles\n"])
def test_the_header_of_a_growing_csv_file_may_have_several_lines(tmp_path: Path, begin: bytes) -> None:
    path = tmp_path / "movie.csv"
    path.write_bytes(begin + b'"mid","time","the\n')
    follower = Follower(path)
    assert follower.poll() == []
    append(path, b'title"\n1,5,\n')
    assert follower.poll()[-1] == 1  # after a note on text before the header
    append(path, b"2,6,\nz,6,\n")
    assert follower.poll() == ["movie.mid: expected an integer, got 'z'", 2]
    assert follower.polled_batches[-1][1][0].line == 5 + begin.startswith(b"#")  # type: ignore[union-attr]
    follower.replay()


@pytest.mark.parametrize("title", [b"Films\n", b"Films of 2026\n\n", b"sep=;\nFilms;\n"])
def test_a_title_of_a_growing_csv_file_is_not_taken_for_its_header(tmp_path: Path, title: bytes) -> None:
    path = tmp_path / "movie.csv"
    follower = Follower(path.parent)
    content = title + (b"mid;time\n1;5\n2;6\n" if title.startswith(b"sep") else b"mid,time\n1,5\n2,6\n")
    items: list[object] = []
    for text in content.splitlines(keepends=True):
        append(path, text)
        items += follower.poll()
    assert items == ["text before the header in movie.csv", 1, 2]
    follower.replay()


def test_a_wrong_layout_of_a_growing_csv_file_is_corrected_before_its_first_row(tmp_path: Path) -> None:
    path = tmp_path / "movie.csv"
    path.write_bytes(b"Report\nby me\n")
    follower = Follower(path)
    assert follower.poll() == ["movie has no attribute 'Report'"]
    append(path, b"mid,time,title\n1,5,x\n")
    assert follower.poll() == ["text before the header in movie.csv", 1]
    append(path, b"2,6,y\n")
    assert follower.poll() == [2]
    follower.replay()


def test_the_number_of_columns_of_a_growing_csv_file_does_not_change_once_a_row_was_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "movie.csv"
    path.write_bytes(b"mid,time\n1,5,an extra field\n")
    follower = Follower(path)
    assert follower.poll() == ["movie has no attribute 'column_3'", 1]
    append(path, b"2,6\n3,7\n")
    assert follower.poll() == [2, 3]
    follower.restart()
    append(path, b"4,8,5\n")
    assert follower.poll() == ["movie has no attribute 'column_3'", 4]
    follower.replay()


def test_multiline_csv_records_wait_for_their_end(tmp_path: Path) -> None:
    path = tmp_path / "movie.csv"
    path.write_bytes(b"mid,title")
    follower = Follower(path)
    assert follower.poll() == []
    append(path, b',time\n1,"two\nlines",5\n2,"not')
    assert follower.poll() == [1]
    follower.restart()
    append(path, b' yet\n\nor now",6\n')
    assert follower.poll() == [2]
    append(path, b"x,bad,7\r\n3,half")
    (reason,) = follower.poll()
    assert "movie.mid" in str(reason)
    append(path, b",8\n\n")
    assert follower.poll() == [3]
    (bad_record,) = (
        item for _, items, _ in follower.polled_batches for item in items if isinstance(item, BadRecord)
    )
    expected = [item for split in plan(path, SCHEMA) for item in read_split(split, SCHEMA)]
    assert bad_record in expected
    assert [i for _, items, _ in follower.polled_batches for i in items] == expected
    follower.replay()


TABLE_ROWS = 120_000
"""The rows of a table that is read as columns (``LARGE_CSV``)."""


@pytest.mark.parametrize("name", ["genre.csv", "genre.jsonl", "genre.csv.gz", "genre.parquet"])
def test_a_large_table_with_an_odd_value_is_read_whole(tmp_path: Path, name: str) -> None:
    """A bad record in the middle is named by its line; the rows around it keep their order."""
    rows: list[dict[str, object]] = [
        {"gid": n, "label": None if n % 1000 == 0 else f"genre {n}"} for n in range(TABLE_ROWS)
    ]
    bad = TABLE_ROWS // 2
    path = tmp_path / name
    if name.endswith(".parquet"):
        texts = [str(row["gid"]) for row in rows]
        texts[bad] = "x"
        pq.write_table(pa.table({"gid": texts, "label": [row["label"] for row in rows]}), path)
    elif name.endswith(".jsonl"):
        path.write_bytes(
            b"".join(orjson.dumps(row | ({"gid": "x"} if row["gid"] == bad else {})) + b"\n" for row in rows)
        )
    else:
        lines = [f"{'x' if row['gid'] == bad else row['gid']},{row['label'] or ''}\n" for row in rows]
        text = ("gid,label\n" + "".join(lines)).encode()
        path.write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    items = table_items(FilesFeed(tmp_path, SCHEMA))
    bad_records = [item for item in items if isinstance(item, BadRecord)]
    records = [item for item in items if isinstance(item, Record)]
    first_line = 2 if ".csv" in name else 1
    assert [(each.source, each.line) for each in bad_records] == [
        (str(path), 0 if name.endswith(".parquet") else bad + first_line)
    ]
    assert [record.row for record in records] == [
        (row["gid"], row["label"]) for row in rows if row["gid"] != bad
    ]
    assert {(record.relation, record.time, record.delete) for record in records} == {(0, 0, False)}


def test_the_incomplete_end_of_a_table_is_left_out(tmp_path: Path) -> None:
    """A process may be writing it. Whatever the cut, the records before it are there, and no others."""
    csv_records = [b"gid,label\n", b"1,a\n", b'2,"b\nc"\n', b"x,d\n", b'"3","e"\n']
    json_records = [b'{"gid":1,"label":"a"}\n', b"\n", b"x\n", b'{"gid":3,"label":"\\n"}\n']
    for name, records, values in (
        ("genre.csv", csv_records, [None, 1, 2, "bad", 3]),
        ("genre.jsonl", json_records, [1, None, "bad", 3]),
    ):
        path = tmp_path / name
        data = b"".join(records)
        for end in range(len(data) + 1):
            path.write_bytes(data[:end])
            complete: list[object] = []
            position = 0
            for record, value in zip(records, values, strict=True):
                position += len(record)
                # An object is complete without a line end.
                if end >= position - (record.endswith(b"}\n")) and value is not None:
                    complete.append(value)
            items = table_items(FilesFeed(tmp_path, SCHEMA))
            found = [item.row[0] if isinstance(item, Record) else "bad" for item in items]
            assert Counter(found) == Counter(complete), (name, data[:end])
        path.unlink()


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", ["genre.csv", "genre.jsonl", "genre.parquet"])
def test_a_table_may_be_empty_or_have_one_row(tmp_path: Path, name: str, rows: int) -> None:
    path = tmp_path / name
    if name.endswith(".parquet"):
        table = pa.table({"gid": pa.array([7] * rows, pa.int64()), "label": pa.array(["x"] * rows)})
        pq.write_table(table.cast(pa.schema({"gid": pa.int64(), "label": pa.string()})), path)
    elif name.endswith(".jsonl"):
        path.write_bytes(b'{"gid":7,"label":"x"}\n' * rows)
    else:
        path.write_bytes(b"gid,label\n" + b"7,x\n" * rows)
    assert numbers(table_items(FilesFeed(tmp_path, SCHEMA))) == [7] * rows


def test_static_tables_come_first(tmp_path: Path) -> None:
    genre = orjson.dumps({"relation": "genre", "row": {"gid": 1, "label": "crime"}}) + b"\n"
    (tmp_path / "stream.jsonl").write_bytes(line(1) + genre + line(2))
    (tmp_path / "genre.csv").write_bytes(b"gid,label\n2,drama\nx,y\n")
    follower = Follower(tmp_path)
    bad_record, first, second = sorted(table_items(follower.feed), key=lambda item: isinstance(item, Record))
    assert isinstance(bad_record, BadRecord)
    assert numbers([first, second]) == [2, 1]
    assert follower.poll() == [1, 2]
    append(tmp_path / "genre.csv", b"3,comedy\n")
    append(tmp_path / "stream.jsonl", genre + line(3))
    assert follower.poll() == [3]
    assert sorted(notice.split(" ")[0] for notice in follower.notices) == ["genre.csv", "stream.jsonl"]
    follower.replay()


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (AttributeType.TIMESTAMP, "write 'time: made' in the schema in place of 'table: true'"),
        (AttributeType.INTEGER, "give each row a time, in a column 'time', and leave out 'table: true'"),
    ],
)
def test_a_table_that_grows_is_reported_with_the_way_to_follow_it(
    tmp_path: Path, kind: AttributeType, way: str
) -> None:
    table = Relation("genre", (Attribute("gid", AttributeType.INTEGER), Attribute("made", kind)), table=True)
    (tmp_path / "genre.csv").write_text("gid,made\n1,5\n")
    follower = Follower(tmp_path, Schema("shop", (table,), ()))
    assert len(table_items(follower.feed)) == 1
    assert follower.poll() == []
    append(tmp_path / "genre.csv", b"2,6\n")
    assert follower.poll() == []
    (notice,) = follower.notices
    assert way in notice


def test_debezium_events_are_read(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    event = {"op": "u", "before": {"mid": 1, "title": "a"}, "after": {"mid": 1, "title": "b"}}
    source = {"table": "movie", "ts_ms": 5000}
    path.write_bytes(orjson.dumps({"payload": {**event, "source": source}}) + b"\nnull\n")
    feed = FilesFeed(path, SCHEMA)
    assert list(feed.poll(feed.start(), 10).read) == [
        Record(1, 5_000_000, (1, "a"), True),
        Record(1, 5_000_000, (1, "b")),
    ]


def test_every_file_gets_its_share(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 100)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(line, range(first, first + 50))))
    assert Follower(tmp_path).poll(10) == [*range(5), *range(100, 105)]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@examples(60)
@given(
    kind=st.sampled_from(["jsonl", "csv"]), titles=st.lists(TEXTS, min_size=1, max_size=12), data=st.data()
)
def test_portions_of_any_size_have_the_records_of_a_replay(
    tmp_path_factory: pytest.TempPathFactory, kind: str, titles: list[str], data: st.DataObject
) -> None:
    """Each record of the whole file once, for any arrival of its bytes and any size of polls."""
    path = tmp_path_factory.mktemp("pieces") / f"movie.{kind}"
    content = _jsonl(titles) if kind == "jsonl" else _csv(titles)
    path.touch()
    follower = Follower(path)
    while content:
        size = data.draw(st.integers(1, len(content)))
        append(path, content[:size])
        content = content[size:]
        follower.poll(data.draw(st.integers(1, 4)))
        if data.draw(st.booleans()):
            follower.restart()
    while follower.poll(3):
        pass
    expected = [item for split in plan(path, SCHEMA) for item in read_split(split, SCHEMA)]
    assert [item for _, items, _ in follower.polled_batches for item in items] == expected
    follower.replay()


def _jsonl(titles: list[str]) -> bytes:
    return b"".join(
        orjson.dumps({"mid": number, "title": title, "time": number}) + b"\n"
        for number, title in enumerate(titles)
    )


def _csv(titles: list[str]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([("mid", "title", "time"), *((i, title, i) for i, title in enumerate(titles))])
    return text.getvalue().encode()


def test_a_file_of_no_relation_is_skipped_with_a_notice(tmp_path: Path) -> None:
    (tmp_path / "movie.jsonl").write_text("")
    (tmp_path / "other.csv").write_text("a,b\n1,x\n2,y\n")
    feed = FilesFeed(tmp_path, SCHEMA)
    batch = feed.poll(feed.start(), 100)
    assert (len(batch.read), list(batch.read.bad)) == (0, [])
    (notice,) = batch.notices
    assert notice.startswith("other.csv is skipped: its records name no relation")
    second = feed.poll(batch.end, 100)
    assert (len(second.read), second.notices) == (0, ())
    (tmp_path / "any.csv").write_text("rel")
    third = feed.poll(second.end, 100)
    (tmp_path / "any.csv").write_text("relation,mid,time\nmovie,1,5\n")
    assert len(feed.poll(third.end, 100).read.records) == 1
