"""Paced replays on a clock that the test advances, and standard input from a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO

import pytest

from skws.data.batch import BadRecord
from skws.sources.replays import ReplayFeed, ReplaySource
from skws.sources.stdin import StdinFeed
from skws_schema.errors import SourceError
from skws_schema.model import Schema
from tests.clocks import HandClock
from tests.sources.followed_files import SCHEMA, line, numbers


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(130) + line(100) + b"nonsense\n" + line(110) + line(110) + line(160))
    return path


def test_records_arrive_when_they_are_due(replay: Path) -> None:
    clock = HandClock()
    feed = ReplaySource(replay, 10, clock).open(SCHEMA)
    offset = feed.start()
    seen = []
    for _ in range(7):
        batch = feed.poll(offset, 100)
        seen.append((numbers(list(batch.read))[-2:], batch.ended))
        offset = batch.end
        clock.sleep(1_000_000)
    bad, hundred = seen[0][0]
    assert (str(bad)[:8], hundred) == ("not JSON", 100)
    assert seen[1:] == [
        ([110, 110], False),
        ([], False),
        ([130], False),
        ([], False),
        ([], False),
        ([160], True),
    ]


def test_all_records_of_an_unpaced_replay_are_due(replay: Path) -> None:
    source = ReplaySource(replay)
    assert source.bounded
    assert source.name == f"replay:{replay}"
    feed = source.open(SCHEMA)
    batch = feed.poll(feed.start(), 100)
    assert numbers(list(batch.read))[1:] == [100, 110, 110, 130, 160]
    assert batch.ended


def test_a_replay_resumes_and_repeats_its_records(replay: Path) -> None:
    clock = HandClock()
    feed = ReplaySource(replay, 1, clock).open(SCHEMA)
    clock.sleep(60_000_000)
    first = feed.poll(feed.start(), 2)
    assert numbers(list(first.read))[1:] == [100]
    other = ReplaySource(replay, 1, clock).open(SCHEMA)
    assert numbers(list(other.poll(first.end, 10).read)) == [110, 110]
    clock.sleep(20_000_000)
    assert numbers(list(other.poll({"items": 4}, 10).read)) == [130]
    assert list(other.replay(feed.start(), first.end)) == list(first.read)
    assert numbers(list(other.replay({"items": 3}, {"items": 6}))) == [110, 130, 160]
    with pytest.raises(SourceError, match="is not an offset of a replay"):
        other.poll({"lsn": "0/0"}, 10)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("bad", [b"", b"nonsense\n"])
@pytest.mark.parametrize("last", [b"", line(1)])
def test_polls_of_any_size_have_the_records_read_again(
    tmp_path: Path, few: bool, bad: bytes, last: bytes
) -> None:
    """For files in order of time or not, kept in memory or read a second time."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"".join(line(n // 7) for n in range(60)) + bad + last)
    clock = HandClock()
    kept = 1000 if few else 3
    feed = ReplaySource(path, 1, clock, kept).open(SCHEMA)
    rng = Random(3)
    at, seen, ended = feed.start(), [], False
    while not ended:
        other = ReplaySource(path, 1e9, clock, kept).open(SCHEMA)
        batch = feed.poll(at, rng.randint(1, 9))
        items = list(batch.read)
        assert list(other.replay(at, batch.end)) == items
        seen += numbers(items)
        at, ended = batch.end, batch.ended
        clock.sleep(rng.randint(0, 2_000_000))
    told = [n for n in seen if isinstance(n, int)]
    assert told == sorted([n // 7 for n in range(60)] + ([1] if last else []))
    assert [isinstance(n, str) for n in seen] == [bool(bad)] * bool(bad) + [False] * len(told)


@pytest.mark.parametrize("kept", [0, 1_000_000])
def test_seeking_an_instant_reads_in_batches(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"".join(line(n // 7) for n in range(40_000)))
    feed = ReplayFeed(path, SCHEMA, 1, HandClock(), kept)
    parts = [numbers(list(batch.read)) for batch in feed.seek(1_000_000, 5_000_000_000)]
    assert len(parts) == 3
    assert [number for part in parts for number in part] == [n // 7 for n in range(7, 7 * 5001)]


def test_a_paced_replay_begins_with_its_tables(tmp_path: Path) -> None:
    (tmp_path / "genre.csv").write_bytes(b"gid,label\n2,drama\nx,y\n")
    (tmp_path / "stream.jsonl").write_bytes(line(1))
    feed = ReplaySource(tmp_path, 1, HandClock()).open(SCHEMA)
    good, bad = feed.tables()
    assert isinstance(bad, BadRecord)
    assert numbers([good]) == [2]
    assert numbers(list(feed.poll(feed.start(), 10).read)) == [1]


def test_a_missing_replay_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        ReplaySource(tmp_path / "none").open(SCHEMA)


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb", buffering=0) as writer:
        yield reader, writer


def test_lines_of_a_pipe_are_read_as_they_arrive(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    feed = StdinFeed(reader, SCHEMA)
    offset = feed.start()
    assert list(feed.tables()) == []
    assert list(feed.poll(offset, 10).read) == []
    writer.write(line(1) + line(2) + line(3)[:5])
    batch = feed.poll(offset, 10)
    assert numbers(list(batch.read)) == [1, 2]
    assert not batch.ended
    writer.write(line(3)[5:] + b"\nnonsense\n" + line(4) + line(5)[:-1])
    batch = feed.poll(batch.end, 4)
    bad, three, four = batch.read
    assert numbers([three, four]) == [3, 4]
    assert isinstance(bad, BadRecord)
    assert (bad.source, bad.line, bad.offset) == ("standard input", 5, 3 * len(line(1)) + 1)
    writer.close()
    batch = feed.poll(batch.end, 10)
    assert numbers(list(batch.read)) == [5]
    assert batch.ended


def test_many_lines_are_read_in_portions(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    writer.write(b"".join(line(i) for i in range(1000)))
    writer.close()
    feed = StdinFeed(reader, SCHEMA)
    offset, seen = feed.start(), []
    ended = False
    while not ended:
        batch = feed.poll(offset, 7)
        assert len(batch.read) <= 7
        seen += numbers(list(batch.read))
        offset, ended = batch.end, batch.ended
    assert seen == list(range(1000))


def test_a_pipe_cannot_be_read_again(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    writer.write(line(1) + line(2))
    feed = StdinFeed(reader, SCHEMA)
    start = feed.start()
    batch = feed.poll(start, 10)
    assert list(feed.replay(batch.end, batch.end)) == []
    with pytest.raises(SourceError, match="cannot be read again"):
        feed.replay(start, batch.end)
    with pytest.raises(SourceError, match="is after line 2"):
        feed.poll(start, 10)


def genre(number: int) -> bytes:
    return b'{"relation": "genre", "row": {"gid": %d, "label": "x"}}\n' % number


def test_table_rows_must_come_first_on_a_pipe(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    """Until the first record of a stream; after it they are bad records, with advice."""
    reader, writer = pipe
    feed = StdinFeed(reader, SCHEMA)
    assert list(feed.tables()) == []
    writer.write(genre(1) + b"\n" + genre(2) + b"nonsense\n" + genre(3)[:9])
    one, two, bad = feed.tables()
    assert numbers([one, two]) == [1, 2]
    assert isinstance(bad, BadRecord)
    assert (bad.line, bad.offset) == (4, 2 * len(genre(1)) + 1)
    writer.write(genre(3)[9:] + line(10) + genre(4) + line(11))
    assert numbers(list(feed.tables())) == [3]
    assert not feed.tables_pending
    assert list(feed.tables()) == []
    late, ten, eleven = feed.poll(feed.start(), 10).read
    assert numbers([ten, eleven]) == [10, 11]
    assert isinstance(late, BadRecord)
    assert late.reason == "genre is a table, whose rows must come before the first record of a stream"
    assert (late.line, late.raw) == (7, genre(4).rstrip())


@pytest.mark.parametrize("text", [b"", genre(1), genre(1)[:-1]])
def test_tables_end_with_the_input(pipe: tuple[IO[bytes], IO[bytes]], text: bytes) -> None:
    reader, writer = pipe
    writer.write(text)
    writer.close()
    feed = StdinFeed(reader, SCHEMA)
    found = [item for _ in range(3) for item in feed.tables()]
    assert numbers(found) == [1] * bool(text)
    assert not feed.tables_pending
    assert feed.poll(feed.start(), 10).ended


def test_a_schema_without_tables_waits_for_no_rows(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    assert not StdinFeed(pipe[0], Schema("s", SCHEMA.relations[1:], ())).tables_pending


def test_tombstones_on_a_pipe_follow_changes(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    event = b'{"op": "c", "after": {"mid": 1, "title": "x"}, "source": {"table": "movie", "ts_ms": 7}}\n'
    writer.write(b"null\n" + event + b"null\n")
    feed = StdinFeed(reader, SCHEMA)
    reasons = numbers(list(feed.poll(feed.start(), 10).read))
    assert reasons == ["expected a JSON object, got None", 1]


@pytest.mark.usefixtures("many_files")
def test_a_pipe_is_read_beside_many_open_files() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb", buffering=0) as writer:
        feed = StdinFeed(reader, SCHEMA)
        offset = feed.start()
        assert list(feed.poll(offset, 10).read) == []
        writer.write(line(1))
        assert numbers(list(feed.poll(offset, 10).read)) == [1]


def test_a_file_or_nothing_as_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    for content in (line(1) + line(2), b""):
        path.write_bytes(content)
        with path.open("rb") as file:
            feed = StdinFeed(file, SCHEMA)
            batch = feed.poll(feed.start(), 10)
        assert numbers(list(batch.read)) == ([1, 2] if content else [])
        assert batch.ended
    with open(os.devnull, "rb") as nothing:
        feed = StdinFeed(nothing, SCHEMA)
        assert feed.poll(feed.start(), 10).ended


def test_a_closed_standard_input_is_reported() -> None:
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read, "rb", closefd=False) as reader:
        feed = StdinFeed(reader, SCHEMA)
        os.close(read)
        with pytest.raises(SourceError, match="standard input: cannot read: Bad file descriptor"):
            feed.poll(feed.start(), 10)
