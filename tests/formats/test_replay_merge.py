"""Replays are sorted in bounded memory."""

from __future__ import annotations

import base64
import os
import tempfile
import tracemalloc
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import BadRecord, Record, RecordBatch
from skws.formats import BadRecordLog
from skws.formats.dead_letters import DeadLetterError, dead_letter
from skws.formats.replay_files import sorted_batches
from skws.spec.enums import OnError
from skws_schema.errors import BadRecordsError, SkwsError, SourceError, UsageError
from tests.strategies import examples

ROWS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(max_size=4),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.booleans(),
)
RECORDS = st.lists(
    st.builds(Record, st.integers(0, 2), st.integers(-3, 3), ROWS, st.booleans()),
    max_size=60,
)


@pytest.fixture
def spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # As by TMPDIR, if it is set before the first temporary file.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def in_batches(records: Iterable[Record], size: int) -> Iterator[RecordBatch]:
    remaining = iter(records)
    while batch := list(islice(remaining, size)):
        yield RecordBatch.of(batch)


def sorted_records(
    records: Iterable[Record], memory: int, size: int = 3, runs: int = 64
) -> Generator[Record, None, None]:
    for batch in sorted_batches(in_batches(records, size), memory_records=memory, runs_together=runs):
        yield from batch.records()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@examples(60)
@given(RECORDS, st.integers(1, 20), st.integers(1, 9), st.sampled_from([2, 3, 64]))
def test_merged_records_equal_sorted_records(
    records: list[Record], memory: int, size: int, runs: int
) -> None:
    actual = list(sorted_records(records, memory, size, runs))
    expected = sorted(records, key=lambda r: r.time)
    # Comparing texts distinguishes 1 from True and 1.0, and 0.0 from -0.0.
    assert list(map(repr, actual)) == list(map(repr, expected))


def descending(count: int) -> Iterator[Record]:
    return (Record(0, -i, (i, "x")) for i in range(count))


def test_many_sorted_runs_are_merged_in_passes(spill: Path) -> None:
    times = [record.time for record in sorted_records(descending(700), 3)]
    assert times == list(range(-699, 1))
    assert list(spill.iterdir()) == []


def test_few_records_are_sorted_without_a_file(spill: Path) -> None:
    spill.rmdir()
    assert [r.row[0] for r in sorted_records(descending(50), 1000)] == list(range(49, -1, -1))


def test_an_unwritable_temporary_file_is_reported(spill: Path) -> None:
    spill.rmdir()
    with pytest.raises(SourceError, match="cannot write a temporary file: No such file"):
        next(sorted_records(descending(100), 7))


def test_closing_a_merge_removes_its_temporary_file(spill: Path) -> None:
    open_count = open_files()
    stream = sorted_records(descending(100), 7)
    next(stream)
    assert open_files() > open_count
    stream.close()
    assert open_files() == open_count
    assert list(spill.iterdir()) == []


def test_a_failing_source_removes_the_temporary_file(spill: Path) -> None:
    open_count = open_files()

    def failing() -> Iterator[Record]:
        yield from descending(100)
        assert open_files() > open_count
        raise SkwsError("the source broke")

    with pytest.raises(SkwsError, match="the source broke"):
        list(sorted_records(failing(), 7))
    assert open_files() == open_count


def test_memory_for_sorting_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        next(sorted_batches([], memory_records=0))


@pytest.mark.slow
def test_a_million_records_are_sorted_within_bounded_memory(spill: Path) -> None:
    tracemalloc.start()
    try:
        last, count = -(10**9), 0
        for record in sorted_records(descending(1_000_000), 20_000, 1_000):
            assert record.time >= last
            last, count = record.time, count + 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 1_000_000
    # A record of two values takes about 250 bytes: a million of them, 250 MB.
    assert peak < 40 << 20


GOOD = Record(0, 1, (1,))


def bad(number: int, raw: bytes = b"x") -> BadRecord:
    return BadRecord("s.jsonl", number, 10 * number, raw, f"reason {number}")


def test_on_error_fail_names_file_line_and_reason() -> None:
    log = BadRecordLog()
    records = log.records([GOOD, bad(7), GOOD])
    assert next(records) == GOOD
    with pytest.raises(BadRecordsError, match=r"^s\.jsonl:7: reason 7 \(use --on-error skip or dead-letter"):
        next(records)
    assert log.count == 1


def test_on_error_skip_counts_and_keeps_the_first_reasons() -> None:
    log = BadRecordLog(OnError.SKIP)
    assert list(log.records([bad(1), GOOD, *map(bad, range(2, 9))])) == [GOOD]
    assert log.count == 8
    lines = log.summary().splitlines()
    assert lines[0] == "8 bad records"
    assert lines[1] == "  s.jsonl:1: reason 1"
    assert lines[-1] == "  and 3 more"


def test_dead_letters_contain_every_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    path.write_text("of an earlier run\n")
    with BadRecordLog(OnError.DEAD_LETTER, path) as log:
        assert list(log.records([bad(1, b"\xc3\xa9"), GOOD, bad(2, b"\xff\x00")])) == [GOOD]
        log.close()
        assert list(log.records([bad(3)])) == []
    first, second, third = map(orjson.loads, path.read_bytes().splitlines())
    assert first == {"source": "s.jsonl", "line": 1, "offset": 10, "reason": "reason 1", "raw": "é"}
    assert base64.b64decode(second["raw_base64"]) == b"\xff\x00"
    assert third["line"] == 3


@given(st.binary())
def test_dead_letters_preserve_arbitrary_bytes(raw: bytes) -> None:
    line = dead_letter(bad(1, raw))
    assert line.count(b"\n") == 1
    letter = orjson.loads(line)
    content = letter["raw"].encode() if "raw" in letter else base64.b64decode(letter["raw_base64"])
    assert content == raw


def test_dead_letters_need_a_writable_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the name of a file"):
        BadRecordLog(OnError.DEAD_LETTER)
    log = BadRecordLog(OnError.DEAD_LETTER, tmp_path / "none" / "dead.jsonl")
    with pytest.raises(DeadLetterError, match="cannot write dead letters"):
        log.add(bad(1))


def test_dead_letters_on_a_full_disk_fail() -> None:
    with (
        pytest.raises(DeadLetterError, match="/dev/full: cannot write dead letters: No space left"),
        BadRecordLog(OnError.DEAD_LETTER, Path("/dev/full")) as log,
    ):
        log.add(bad(1))
