"""The policies for bad records."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.record import BadRecord, Record
from skws.formats import BadRecordLog
from skws.formats.dead_letters import DeadLetterError, dead_letter
from skws.spec.enums import OnError
from skws_schema.errors import BadRecordsError, UsageError

GOOD = Record(0, 1, (1,))


def bad(number: int, raw: bytes = b"x") -> BadRecord:
    return BadRecord("s.jsonl", number, 10 * number, raw, f"reason {number}")


def test_fail_names_file_line_and_reason() -> None:
    log = BadRecordLog()
    records = log.records([GOOD, bad(7), GOOD])
    assert next(records) == GOOD
    with pytest.raises(BadRecordsError, match=r"^s\.jsonl:7: reason 7 \(use --on-error skip or dead-letter"):
        next(records)
    assert log.count == 1


def test_skip_counts_and_keeps_the_first_reasons() -> None:
    log = BadRecordLog(OnError.SKIP)
    assert list(log.records([bad(1), GOOD, *map(bad, range(2, 9))])) == [GOOD]
    assert log.count == 8
    lines = log.summary().splitlines()
    assert lines[0] == "8 bad records"
    assert lines[1] == "  s.jsonl:1: reason 1"
    assert lines[-1] == "  and 3 more"


def test_dead_letters_keep_everything(tmp_path: Path) -> None:
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
def test_raw_bytes_are_kept_whatever_they_are(raw: bytes) -> None:
    line = dead_letter(bad(1, raw))
    assert line.count(b"\n") == 1
    letter = orjson.loads(line)
    kept = letter["raw"].encode() if "raw" in letter else base64.b64decode(letter["raw_base64"])
    assert kept == raw


def test_dead_letters_need_a_file_that_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the name of a file"):
        BadRecordLog(OnError.DEAD_LETTER)
    log = BadRecordLog(OnError.DEAD_LETTER, tmp_path / "none" / "dead.jsonl")
    with pytest.raises(DeadLetterError, match="cannot write dead letters"):
        log.add(bad(1))


def test_a_full_disk_is_told_as_such() -> None:
    with (
        pytest.raises(DeadLetterError, match="/dev/full: cannot write dead letters: No space left"),
        BadRecordLog(OnError.DEAD_LETTER, Path("/dev/full")) as log,
    ):
        log.add(bad(1))
