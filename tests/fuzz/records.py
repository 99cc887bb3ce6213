"""Records in the formats of replays."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hypothesis import strategies as st

from skws.data.batch import BadRecord, Item, Record
from skws.formats import BadRecordLog, OnError, Replay
from skws_schema.errors import SourceError
from skws_schema.model import AttributeType, Value
from tests.formats.samples import (
    MOVIE,
    NAMES,
    PLAYS,
    RECORDS,
    SCHEMA,
    by_rows,
    iso,
    items,
    json_lines,
    parquet_stream,
)
from tests.fuzz.fuzzing import Language, check_rejection

_GOOD: Final = b'{"relation":"plays","time":1,"row":{"mid":1,"role":"last"}}'
_TYPES: Final = {
    AttributeType.INTEGER: int,
    AttributeType.NUMBER: float,
    AttributeType.BOOLEAN: bool,
    AttributeType.TIMESTAMP: int,
    AttributeType.TEXT: str,
    AttributeType.STRING: str,
}
_LATEST: Final = 253_402_300_799_000_000
"""The last second of the year 9999."""


def _row(record: Record) -> dict[str, Value]:
    attributes = SCHEMA.relations[record.relation].attributes
    return {attribute.name: value for attribute, value in zip(attributes, record.row, strict=True)}


def row_with_iso_times(record: Record) -> dict[str, Value]:
    return {
        name: iso(value) if name == "seen" and isinstance(value, int) else value
        for name, value in _row(record).items()
    }


@st.composite
def _json_lines(draw: st.DrawFn) -> bytes:
    """Records as other programs may write them: fields in any order, with blanks, escapes, extra fields."""
    lines = []
    for record in draw(RECORDS):
        time: object = draw(st.sampled_from((iso(record.time), record.time // 1_000_000, record.time / 1e6)))
        item: dict[str, Any] = {
            "relation": SCHEMA.relations[record.relation].name,
            "time": time,
            "row": row_with_iso_times(record)
            | draw(st.sampled_from(({}, {}, {"colours": [1, {"x": None}]}))),
        }
        if record.delete or draw(st.booleans()):
            item["op"] = "-" if record.delete else "+"
        lines.append(dump(draw, item))
    return draw(st.sampled_from(("\n", "\r\n", "\n\n", " \n"))).join([*lines, ""]).encode()


def dump(draw: st.DrawFn, item: object) -> str:
    return json.dumps(
        item,
        ensure_ascii=draw(st.booleans()),
        sort_keys=draw(st.booleans()),
        separators=draw(st.sampled_from(((",", ":"), (", ", ": "), (" ,\t", " : ")))),
    )


@st.composite
def _csv(draw: st.DrawFn) -> bytes:
    """CSV with columns in any order, any quotes, and any line ends."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(
        out,
        draw(st.permutations(NAMES)),
        quoting=draw(st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC))),
        lineterminator=draw(st.sampled_from(("\n", "\r\n"))),
    )
    writer.writeheader()
    for record in draw(RECORDS):
        name, op = SCHEMA.relations[record.relation].name, "-" if record.delete else "+"
        writer.writerow({"relation": name, "time": iso(record.time), "op": op, **row_with_iso_times(record)})
    return draw(st.sampled_from((b"", b"\xef\xbb\xbf"))) + out.getvalue().encode()


@st.composite
def _debezium(draw: st.DrawFn) -> bytes:
    """Inserts, updates and deletions in each of the envelopes."""
    lines = []
    for record in draw(RECORDS):
        row, table = _row(record), SCHEMA.relations[record.relation].name
        op = "d" if record.delete else draw(st.sampled_from(("c", "r", "u")))
        before = row if op == "d" or (op == "u" and record.relation == PLAYS) else None
        clock = draw(st.sampled_from((("ts_us", 1), ("ts_ms", 1000))))
        event = {
            "op": op,
            "before": before,
            "after": None if op == "d" else row,
            "source": {"table": table, clock[0]: record.time // clock[1]},
        }
        envelopes = [event, {"payload": event}, {"key": {"mid": row["mid"]}, "value": event}]
        if record.relation == MOVIE and op == "u":
            envelopes = envelopes[2:]
        lines.append(dump(draw, draw(st.sampled_from(envelopes))))
    return ("\n".join(lines) + "\n").encode()


def _parquet(records: Sequence[Record]) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.parquet"
        parquet_stream(path, records)
        return path.read_bytes()


def check_file(name: str, data: bytes) -> bool:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            read = items(path)
        except SourceError as error:
            return check_rejection(str(error), re.escape(name))
        records = [item for item in read if isinstance(item, Record)]
        malformed = [item for item in read if isinstance(item, BadRecord) and not item.passed_over]
        for record in records:
            _check_row(record)
        for bad in malformed:
            assert bad.reason
            assert 0 <= bad.offset <= len(data)
            assert bad.source == str(path)
        check_other_readers(path, records, malformed)
        if name.endswith(".jsonl") and records:
            check_next_line(path, data, read)
        check_round_trip(Path(folder) / "again.jsonl", records)
        return not malformed and bool(records)


def _check_row(record: Record) -> None:
    attributes = SCHEMA.relations[record.relation].attributes
    assert type(record.time) is int
    for attribute, value in zip(attributes, record.row, strict=True):
        assert value is None or type(value) is _TYPES[attribute.type], (attribute.name, value)
        if isinstance(value, str):
            value.encode()


def check_other_readers(path: Path, records: list[Record], malformed: list[BadRecord]) -> None:
    """The result must be the same in pieces, and in order of time by columns or rows."""
    pieces = items(path, split_bytes=100)
    assert [item for item in pieces if isinstance(item, Record)] == records
    assert [item for item in pieces if isinstance(item, BadRecord) and not item.passed_over] == malformed
    logs = BadRecordLog(OnError.SKIP), BadRecordLog(OnError.SKIP)
    replay = Replay.open(path, SCHEMA)
    by_columns = [record for batch in replay.batches(logs[0]) for record in batch.records()]
    assert by_columns == by_rows(replay, logs[1])
    assert logs[0].count == logs[1].count == len(malformed)
    tables = [record for record in records if SCHEMA.relations[record.relation].table]
    assert len(by_columns) + len(tables) == len(records)


def check_next_line(path: Path, data: bytes, expected: Sequence[Item]) -> None:
    """Errors in one line must not affect the next."""
    path.write_bytes(data + b"\n" + _GOOD)
    assert without_reasons(items(path)) == [
        *without_reasons(expected),
        Record(PLAYS, 1_000_000, (1, "last")),
    ]


def without_reasons(read_items: Sequence[Item]) -> list[Item]:
    """The reason for the last line may depend on its end."""
    reasonless = (replace(i, reason="") if isinstance(i, BadRecord) else i for i in read_items)
    return [item for item in reasonless if isinstance(item, Record) or not item.passed_over]


def check_round_trip(path: Path, records: list[Record]) -> None:
    """Parsed records can be written."""
    writable = [
        record for record in records if all(0 <= time <= _LATEST for time in (record.time, *_times(record)))
    ]
    json_lines(path, writable)
    assert items(path) == writable


def _times(record: Record) -> list[int]:
    kinds = [attribute.type for attribute in SCHEMA.relations[record.relation].attributes]
    pairs = zip(kinds, record.row, strict=True)
    return [value for kind, value in pairs if kind is AttributeType.TIMESTAMP and isinstance(value, int)]


def _parts(data: bytes) -> list[bytes]:
    return re.findall(rb"\w+|\s+|[^\w\s]", data)


def _few_bytes(data: bytes) -> list[bytes]:
    return [data[start : start + 4] for start in range(0, len(data), 4)]


_ODD: Final = (
    *(
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b'"',
        b"\\u0000",
        b"\\ud800",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
    ),
    *(b"\n", b"\r", b",", b"null", b"NaN", b"1e400", b"9223372036854775808", b"-0.0", b"true", b"2026-02-30"),
    *(b"[" * 2000, b"\xef\xbb\xbf", b"+", b"-", b"\xe2\x80\xa8"),
)


def _language(name: str, file: str, grammar: st.SearchStrategy[bytes]) -> Language[bytes]:
    tokens = _few_bytes if file.endswith("parquet") else _parts
    return Language(name, grammar, lambda data, _random: check_file(file, data), tokens, _ODD)


JSON_LINES: Final = _language("jsonl", "s.jsonl", _json_lines())
CSV: Final = _language("csv", "s.csv", _csv())
DEBEZIUM: Final = _language("debezium", "cdc.jsonl", _debezium())
PARQUET: Final = _language("parquet", "s.parquet", RECORDS.map(_parquet))
