"""Paced replays on a clock that the test advances, and standard input from a pipe."""

from __future__ import annotations

import gc
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
from tests.sources.table_items import table_items


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(130) + line(100) + b"nonsense\n" + line(110) + line(110) + line(160))
    return path


def test_records_arrive_when_they_are_due(replay: Path) -> None:
    clock = HandClock()
    feed = ReplaySource(replay, 10, clock).open(SCHEMA)
    offset = feed.start()
    polls = []
    for _ in range(7):
        batch = feed.poll(offset, 100)
        polls.append((numbers(list(batch.read))[-2:], batch.ended))
        offset = batch.end
        clock.sleep(1_000_000)
    bad_record, first_item = polls[0][0]
    assert (str(bad_record)[:8], first_item) == ("not JSON", 100)
    assert polls[1:] == [
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
    second_feed = ReplaySource(replay, 1, clock).open(SCHEMA)
    assert numbers(list(second_feed.poll(first.end, 10).read)) == [110, 110]
    clock.sleep(20_000_000)
    assert numbers(list(second_feed.poll({"items": 4}, 10).read)) == [130]
    assert list(second_feed.replay(feed.start(), first.end)) == list(first.read)
    assert numbers(list(second_feed.replay({"items": 3}, {"items": 6}))) == [110, 130, 160]
    with pytest.raises(SourceError, match="is not an offset of a replay"):
        second_feed.poll({"lsn": "0/0"}, 10)


@pytest.mark.parametrize("keeps_all", [True, False])
@pytest.mark.parametrize("bad_line", [b"", b"nonsense\n"])
@pytest.mark.parametrize("last_line", [b"", line(1)])
def test_polls_of_any_size_have_the_records_read_again(
    tmp_path: Path, keeps_all: bool, bad_line: bytes, last_line: bytes
) -> None:
    """For files in order of time or not, kept in memory or read a second time."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"".join(line(n // 7) for n in range(60)) + bad_line + last_line)
    clock = HandClock()
    memory_limit = 1000 if keeps_all else 3
    feed = ReplaySource(path, 1, clock, memory_limit).open(SCHEMA)
    rng = Random(3)
    offset, numbers_read, is_end = feed.start(), [], False
    while not is_end:
        second_feed = ReplaySource(path, 1e9, clock, memory_limit).open(SCHEMA)
        batch = feed.poll(offset, rng.randint(1, 9))
        items = list(batch.read)
        assert list(second_feed.replay(offset, batch.end)) == items
        numbers_read += numbers(items)
        offset, is_end = batch.end, batch.ended
        clock.sleep(rng.randint(0, 2_000_000))
    numbers_of_records = [n for n in numbers_read if isinstance(n, int)]
    assert numbers_of_records == sorted([n // 7 for n in range(60)] + ([1] if last_line else []))
    assert [isinstance(n, str) for n in numbers_read] == [bool(bad_line)] * bool(bad_line) + [False] * len(
        numbers_of_records
    )


@pytest.mark.parametrize("memory_limit", [0, 1_000_000])
def test_seeking_an_instant_reads_in_batches(tmp_path: Path, memory_limit: int) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"".join(line(n // 7) for n in range(40_000)))
    feed = ReplayFeed(path, SCHEMA, 1, HandClock(), memory_limit)
    batches = [numbers(list(batch.read)) for batch in feed.seek(1_000_000, 5_000_000_000)]
    assert len(batches) == 3
    assert [number for batch_numbers in batches for number in batch_numbers] == [
        n // 7 for n in range(7, 7 * 5001)
    ]


def test_bad_records_of_a_long_replay_are_in_memory_once(tmp_path: Path) -> None:
    """It is read twice: first its bad records, then the others in order of time."""
    path, count = tmp_path / "stream.jsonl", 200
    path.write_bytes((b"nonsense" * 10_000 + b"\n") * count + b"".join(map(line, range(20))))
    feed = ReplaySource(path, None, memory_records=3).open(SCHEMA)
    assert len(feed.poll(feed.poll(feed.start(), count).end, 1).read.records) == 1
    gc.collect()
    assert sum(type(each) is BadRecord for each in gc.get_objects()) < 1.5 * count


def test_a_paced_replay_begins_with_its_tables(tmp_path: Path) -> None:
    (tmp_path / "genre.csv").write_bytes(b"gid,label\n2,drama\nx,y\n")
    (tmp_path / "stream.jsonl").write_bytes(line(1))
    feed = ReplaySource(tmp_path, 1, HandClock()).open(SCHEMA)
    record, bad_record = table_items(feed)
    assert isinstance(bad_record, BadRecord)
    assert numbers([record]) == [2]
    assert numbers(list(feed.poll(feed.start(), 10).read)) == [1]


def test_a_missing_replay_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        ReplaySource(tmp_path / "none").open(SCHEMA)


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read_descriptor, write_descriptor = os.pipe()
    with os.fdopen(read_descriptor, "rb") as reader, os.fdopen(write_descriptor, "wb", buffering=0) as writer:
        yield reader, writer


def test_lines_of_a_pipe_are_read_as_they_arrive(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    feed = StdinFeed(reader, SCHEMA)
    offset = feed.start()
    assert table_items(feed) == []
    assert list(feed.poll(offset, 10).read) == []
    writer.write(line(1) + line(2) + line(3)[:5])
    batch = feed.poll(offset, 10)
    assert numbers(list(batch.read)) == [1, 2]
    assert not batch.ended
    writer.write(line(3)[5:] + b"\nnonsense\n" + line(4) + line(5)[:-1])
    batch = feed.poll(batch.end, 4)
    bad_record, three, four = batch.read
    assert numbers([three, four]) == [3, 4]
    assert isinstance(bad_record, BadRecord)
    assert (bad_record.source, bad_record.line, bad_record.offset) == (
        "standard input",
        5,
        3 * len(line(1)) + 1,
    )
    writer.close()
    batch = feed.poll(batch.end, 10)
    assert numbers(list(batch.read)) == [5]
    assert batch.ended


def test_many_lines_are_read_in_portions(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    writer.write(b"".join(line(i) for i in range(1000)))
    writer.close()
    feed = StdinFeed(reader, SCHEMA)
    offset, numbers_read = feed.start(), []
    is_end = False
    while not is_end:
        batch = feed.poll(offset, 7)
        assert len(batch.read) <= 7
        numbers_read += numbers(list(batch.read))
        offset, is_end = batch.end, batch.ended
    assert numbers_read == list(range(1000))


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
    assert table_items(feed) == []
    writer.write(genre(1) + b"\n" + genre(2) + b"nonsense\n" + genre(3)[:9])
    bad_record, one, two = table_items(feed)
    assert numbers([one, two]) == [1, 2]
    assert isinstance(bad_record, BadRecord)
    assert (bad_record.line, bad_record.offset) == (4, 2 * len(genre(1)) + 1)
    writer.write(genre(3)[9:] + line(10) + genre(4) + line(11))
    assert numbers(table_items(feed)) == [3]
    assert not feed.tables_pending
    assert table_items(feed) == []
    late_row, ten, eleven = feed.poll(feed.start(), 10).read
    assert numbers([ten, eleven]) == [10, 11]
    assert isinstance(late_row, BadRecord)
    assert late_row.reason == "genre is a table, whose rows must come before the first record of a stream"
    assert (late_row.line, late_row.raw) == (7, genre(4).rstrip())


@pytest.mark.parametrize("text", [b"", genre(1), genre(1)[:-1]])
def test_tables_end_with_the_input(pipe: tuple[IO[bytes], IO[bytes]], text: bytes) -> None:
    reader, writer = pipe
    writer.write(text)
    writer.close()
    feed = StdinFeed(reader, SCHEMA)
    items = [item for _ in range(3) for item in table_items(feed)]
    assert numbers(items) == [1] * bool(text)
    assert not feed.tables_pending
    assert feed.poll(feed.start(), 10).ended


def test_a_schema_without_tables_waits_for_no_rows(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    assert not StdinFeed(pipe[0], Schema("s", SCHEMA.relations[1:], ())).tables_pending


def test_a_null_line_is_a_tombstone_only_after_a_change(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = pipe
    event = b'{"op": "c", "after": {"mid": 1, "title": "x"}, "source": {"table": "movie", "ts_ms": 7}}\n'
    writer.write(b"null\n" + event + b"null\n")
    feed = StdinFeed(reader, SCHEMA)
    reasons = numbers(list(feed.poll(feed.start(), 10).read))
    assert reasons == ["expected a JSON object, got None", 1]


@pytest.mark.usefixtures("many_files")
def test_a_pipe_is_read_beside_many_open_files() -> None:
    read_descriptor, write_descriptor = os.pipe()
    with os.fdopen(read_descriptor, "rb") as reader, os.fdopen(write_descriptor, "wb", buffering=0) as writer:
        feed = StdinFeed(reader, SCHEMA)
        offset = feed.start()
        assert list(feed.poll(offset, 10).read) == []
        writer.write(line(1))
        assert numbers(list(feed.poll(offset, 10).read)) == [1]


def test_standard_input_may_be_a_file_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    for content in (line(1) + line(2), b""):
        path.write_bytes(content)
        with path.open("rb") as file:
            feed = StdinFeed(file, SCHEMA)
            batch = feed.poll(feed.start(), 10)
        assert numbers(list(batch.read)) == ([1, 2] if content else [])
        assert batch.ended
    with open(os.devnull, "rb") as null_device:
        feed = StdinFeed(null_device, SCHEMA)
        assert feed.poll(feed.start(), 10).ended


def test_a_closed_standard_input_is_reported() -> None:
    read_descriptor, write_descriptor = os.pipe()
    os.close(write_descriptor)
    with os.fdopen(read_descriptor, "rb", closefd=False) as reader:
        feed = StdinFeed(reader, SCHEMA)
        os.close(read_descriptor)
        with pytest.raises(SourceError, match="standard input: cannot read: Bad file descriptor"):
            feed.poll(feed.start(), 10)
