"""Files that grow, arrive, are cut, rotated and replaced while they are followed."""

from __future__ import annotations

import csv
import gzip
import io
import os
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.errors import SourceError
from schema.model import Attribute, AttributeType, Relation, Schema
from skws.records import BadRecord, Record
from skws.replay import plan, read_split
from skws.sources.feed import Item, Offset
from skws.sources.files.feed import FilesFeed
from skws.sources.files.folder import Found
from skws.sources.files.growing import Part, read_part

T = AttributeType
SCHEMA = Schema(
    "s",
    (
        Relation("genre", (Attribute("gid", T.INTEGER), Attribute("label", T.TEXT)), table=True),
        Relation("movie", (Attribute("mid", T.INTEGER), Attribute("title", T.TEXT)), search=("title",)),
        Relation("play", (Attribute("mid", T.INTEGER),)),
    ),
    (),
)
Taken = tuple[Offset, list[Item], Offset]


def line(number: int, title: str = "x", relation: str = "movie") -> bytes:
    row: dict[str, object] = {"mid": number} if relation == "play" else {"mid": number, "title": title}
    return orjson.dumps({"relation": relation, "time": number, "row": row}) + b"\n"


def numbers(items: list[Item]) -> list[object]:
    """First attributes of records; reasons of bad ones."""
    return [item.reason if isinstance(item, BadRecord) else item.row[0] for item in items]


class Follower:
    """Polls a path, and remembers each batch, to read it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.feed = FilesFeed(path, SCHEMA)
        self.offset = self.feed.start()
        self.taken: list[Taken] = []
        self.notices: list[str] = []

    def poll(self, limit: int = 1000) -> list[object]:
        batch = self.feed.poll(self.offset, limit)
        end: Offset = orjson.loads(orjson.dumps(batch.end))
        self.taken.append((self.offset, list(batch.items), end))
        self.notices += batch.notices
        self.offset = end
        return numbers(list(batch.items))

    def restart(self) -> None:
        self.feed = FilesFeed(self.path, SCHEMA)

    def again(self) -> None:
        """Every batch comes again the same, in this process and in another."""
        for feed in (self.feed, FilesFeed(self.path, SCHEMA)):
            for start, items, end in self.taken:
                assert list(feed.again(start, end)) == items


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    assert follower.poll() == []
    append(path, line(3) + line(4)[:-12])
    assert follower.poll() == [3]
    assert follower.feed.behind(follower.offset) == f"{len(line(4)) - 12} bytes behind"
    follower.restart()
    append(path, line(4)[-12:] + b"nonsense\n" + line(5))
    four, reason = follower.poll(2)
    assert four == 4
    assert str(reason).startswith("not JSON")
    assert follower.poll(2) == [5]
    (bad,) = (item for _, items, _ in follower.taken for item in items if isinstance(item, BadRecord))
    assert (bad.line, bad.offset, bad.raw) == (5, 4 * len(line(1)), b"nonsense")
    follower.again()


def test_a_last_line_without_end_counts_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2)[:-1])
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    append(path, b"\n" + line(3)[:-2])
    assert follower.poll() == []
    append(path, line(3)[-2:])
    assert follower.poll() == [3]
    follower.again()


def test_new_files_of_every_format(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.poll() == []
    (tmp_path / "b.jsonl").write_bytes(line(1))
    (tmp_path / "play.csv").write_bytes(b"mid,time\n2,5\n3,6\n")
    with gzip.open(tmp_path / "c.jsonl.gz", "wb") as packed:
        packed.write(line(4) + line(5) + line(6))
    (tmp_path / "movie").mkdir()
    rows = {"mid": [7, 8, 9], "title": ["a", None, "c"], "time": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(rows), tmp_path / "movie" / "part-0.parquet", row_group_size=2)
    (tmp_path / "notes.txt").write_text("no replay")
    (tmp_path / "_hidden.jsonl").write_bytes(b"nonsense")
    assert follower.poll() == [1, 4, 5, 6, 7, 8, 9, 2, 3]
    assert follower.notices == ["notes.txt is passed over: its format is unknown"]
    assert follower.poll() == []
    follower.restart()
    assert follower.poll() == []
    append(tmp_path / "play.csv", b"10,7\n")
    assert follower.poll() == [10]
    follower.again()


def test_whole_files_come_in_portions_and_after_a_restart(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as packed:
        packed.write(b"".join(map(line, range(10))))
    rows = {"relation": ["movie"] * 10, "mid": list(range(10, 20)), "title": ["x"] * 10, "time": [0] * 10}
    pq.write_table(pa.table(rows), tmp_path / "b.parquet", row_group_size=3)
    follower = Follower(tmp_path)
    seen = []
    for _ in range(8):
        seen += follower.poll(8)
        follower.restart()
    assert sorted(map(str, seen)) == sorted(map(str, range(20)))
    follower.again()


@pytest.mark.parametrize("name", ["late.parquet", "late.jsonl.gz"])
def test_files_that_are_not_whole_wait(tmp_path: Path, name: str) -> None:
    source = tmp_path / f"_{name}"
    if name.endswith("gz"):
        source.write_bytes(gzip.compress(line(1) * 100))
    else:
        pq.write_table(pa.table({"relation": ["movie"], "mid": [1], "title": ["x"], "time": [0]}), source)
    data = source.read_bytes()
    follower = Follower(tmp_path)
    for part in (data[:0], data[: len(data) // 2], data[:-1]):
        (tmp_path / name).write_bytes(part)
        assert follower.poll() == []
    assert any("it waits until it is whole" in notice for notice in follower.notices)
    (tmp_path / name).write_bytes(data)
    assert set(follower.poll()) == {1}


def test_csv_records_over_several_lines_wait_for_their_end(tmp_path: Path) -> None:
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
    (bad,) = (item for _, items, _ in follower.taken for item in items if isinstance(item, BadRecord))
    read = [item for split in plan(path, SCHEMA) for item in read_split(split, SCHEMA)]
    assert bad in read
    assert [i for _, items, _ in follower.taken for i in items] == read
    follower.again()


def test_a_cut_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    path.write_bytes(line(3))
    assert follower.poll() == [3]
    assert follower.notices == [
        f"stream.jsonl was cut from at least {2 * len(line(1))} to {len(line(3))} bytes: read from its start"
    ]
    path.write_bytes(line(4) + line(5) + line(6))
    assert follower.poll() == [4, 5, 6]
    start, items, end = follower.taken[-1]
    assert list(FilesFeed(path, SCHEMA).again(start, end)) == items
    with pytest.raises(SourceError, match=r"stream\.jsonl is gone or has changed"):
        list(follower.feed.again(*follower.taken[0][::2]))


def test_a_rotated_file_is_read_to_its_end_then_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1))
    follower = Follower(tmp_path)
    assert follower.poll() == [1]
    append(path, line(2))
    path.rename(tmp_path / "stream.jsonl.1")
    path.write_bytes(line(3))
    assert follower.poll() == [2, 3]
    assert follower.notices == ["stream.jsonl is now stream.jsonl.1, and is read on there"]
    append(path, line(4))
    (tmp_path / "stream.jsonl.1").rename(tmp_path / "stream.jsonl.2")
    path.rename(tmp_path / "stream.jsonl.1")
    path.write_bytes(line(5))
    follower.restart()
    assert follower.poll() == [4, 5]
    follower.again()


def test_a_replaced_file_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    (tmp_path / "next").write_bytes(line(3) + line(4) + line(5))
    os.replace(tmp_path / "next", path)
    assert follower.poll() == [3, 4, 5]
    assert "was replaced by another file" in follower.notices[0]


def test_the_same_file_in_another_place_goes_on(tmp_path: Path) -> None:
    """A directory restored from a copy has other inodes, and the same beginning."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    (tmp_path / "copy").write_bytes(path.read_bytes() + line(3))
    os.replace(tmp_path / "copy", path)
    follower.restart()
    assert follower.poll() == [3]
    assert follower.notices == []
    follower.again()


def test_files_that_are_gone_leave_the_offset_but_not_all_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)
    follower.poll()
    (tmp_path / "a.jsonl").unlink()
    follower.poll()
    assert list(follower.offset["files"]) == ["b.jsonl"]
    (tmp_path / "b.jsonl").rename(tmp_path / "_b.jsonl")
    follower.poll()
    (tmp_path / "_b.jsonl").rename(tmp_path / "b.jsonl")
    assert follower.poll() == []


def test_a_file_that_goes_while_it_is_read_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)

    def rotate(found: Found, *arguments: int, **more: int) -> Part:
        if found.name == "b.jsonl" and found.path.exists():
            found.path.rename(tmp_path / "c.jsonl")
        return read_part(found, SCHEMA, *arguments[1:], **more)

    monkeypatch.setattr("skws.sources.files.feed.read_part", rotate)
    assert follower.poll() == [1, 1]
    assert sorted(follower.offset["files"]) == ["a.jsonl", "c.jsonl"]


def test_static_tables_come_first(tmp_path: Path) -> None:
    genre = orjson.dumps({"relation": "genre", "row": {"gid": 1, "label": "crime"}}) + b"\n"
    (tmp_path / "stream.jsonl").write_bytes(line(1) + genre + line(2))
    (tmp_path / "genre.csv").write_bytes(b"gid,label\n2,drama\nx,y\n")
    follower = Follower(tmp_path)
    first, bad, second = follower.feed.tables()
    assert isinstance(bad, BadRecord)
    assert numbers([first, second]) == [2, 1]
    assert follower.poll() == [1, 2]
    append(tmp_path / "genre.csv", b"3,comedy\n")
    append(tmp_path / "stream.jsonl", genre + line(3))
    assert follower.poll() == [3]
    assert sorted(notice.split(" ")[0] for notice in follower.notices) == ["genre.csv", "stream.jsonl"]
    follower.again()


def test_debezium_events(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    event = {"op": "u", "before": {"mid": 1, "title": "a"}, "after": {"mid": 1, "title": "b"}}
    source = {"table": "movie", "ts_ms": 5000}
    path.write_bytes(orjson.dumps({"payload": {**event, "source": source}}) + b"\nnull\n")
    feed = FilesFeed(path, SCHEMA)
    assert feed.poll(feed.start(), 10).items == [
        Record(1, 5_000_000, (1, "a"), True),
        Record(1, 5_000_000, (1, "b")),
    ]


def test_every_file_gets_its_share(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 100)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(line, range(first, first + 50))))
    assert Follower(tmp_path).poll(10) == [*range(5), *range(100, 105)]


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "movies.jsonl").touch()
    with pytest.raises(SourceError, match=r"no such file or directory; did you mean 'movies\.jsonl'"):
        FilesFeed(tmp_path / "movie.jsonl", SCHEMA)
    (tmp_path / "movies.txt").touch()
    with pytest.raises(SourceError, match="unknown format"):
        FilesFeed(tmp_path / "movies.txt", SCHEMA)
    feed = FilesFeed(tmp_path / "movies.jsonl", SCHEMA)
    (tmp_path / "movies.jsonl").unlink()
    assert feed.poll(feed.start(), 10).items == []
    with pytest.raises(SourceError, match="is no offset of files"):
        feed.poll({"lsn": "0/0"}, 10)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["jsonl", "csv"]), titles=st.lists(TEXTS, min_size=1, max_size=12), data=st.data()
)
def test_any_pieces_give_what_a_replay_gives(
    tmp_path_factory: pytest.TempPathFactory, kind: str, titles: list[str], data: st.DataObject
) -> None:
    """However the bytes come and however little is taken at once: the records of the whole file, once."""
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
    read = [item for split in plan(path, SCHEMA) for item in read_split(split, SCHEMA)]
    assert [item for _, items, _ in follower.taken for item in items] == read
    follower.again()


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
