"""Malformed input becomes a bad record with position and reason, and never raises an error."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from skws.data.batch import BadRecord, Record
from skws.formats import plan
from skws.formats.sampling import sample
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, Relation, Schema
from skws_schema.yaml.load import parse_schema
from tests.formats.samples import MOVIE, PLAYS, SCHEMA, T, bad_records, items, records
from tests.places import DATA

GOOD = {"relation": "movie", "time": 5, "row": {"mid": 1, "did": 2}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"relation": "movies"}, "no relation 'movies' in schema movies; did you mean 'movie'?"),
        ({"relation": ["movie"]}, "no relation ['movie'] in schema movies"),
        ({"row": {"titel": "x"}}, "movie has no attribute 'titel'; did you mean 'title'?"),
        ({"row": {"mid": 1}}, "movie.did is missing, and a join needs it"),
        ({"row": {"did": 1}}, "movie.mid is missing, and the key needs it"),
        ({"row": {"did": 1}, "op": "-"}, "movie.mid is missing, and the key needs it"),
        ({"row": [1, 2]}, "expected a row (a JSON object) of movie, got [1, 2]"),
        ({"row": {"mid": "x", "did": 2}}, "movie.mid: expected an integer, got 'x'"),
        ({"row": {"mid": {"a": 1}, "did": 2}}, "movie.mid: expected an integer, got {'a': 1}"),
        ({"row": {"mid": 1, "did": 2, "title": 1.5}}, "movie.title: expected a text, got 1.5"),
        ({"time": None}, "no time: a record of movie needs a `time`, or its schema a `time:`"),
        ({"time": "soon"}, "expected a timestamp (ISO 8601, or seconds since the epoch), got 'soon'"),
        ({"time": True}, "expected a timestamp (ISO 8601, or seconds since the epoch), got True"),
        ({"op": "x"}, "expected op '+', '-' or 'truncate', got 'x'"),
        ({"tiem": 1}, "unknown field 'tiem' in a record; did you mean 'time'?"),
        (
            {"relation": "director", "op": "-"},
            "director is a static table, and static tables take no deletions",
        ),
    ],
)
def test_a_bad_json_record_has_position_and_reason(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    line = orjson.dumps(GOOD | change)
    (tmp_path / "s.jsonl").write_bytes(orjson.dumps(GOOD) + b"\n" + line + b"\n" + orjson.dumps(GOOD))
    first, bad_record, last = items(tmp_path / "s.jsonl")
    assert first == last == Record(MOVIE, 5_000_000, (1, None, 2, None, None, None))
    offset = len(orjson.dumps(GOOD)) + 1
    assert bad_record == BadRecord(str(tmp_path / "s.jsonl"), 2, offset, line, reason)


@pytest.mark.parametrize(
    ("text", "line", "raw", "reason"),
    [
        ("mid,role,time\n1,a,1\n2,b\n", 3, b"2,b", "2 fields, but the header names 3"),
        ('mid,role,time\n1,"a\nb",1\nx,,1\n', 4, b"x,,1", "plays.mid: expected an integer, got 'x'"),
        ('mid,role,time\n1,a,1\n2,"b\n\n', 3, b'2,"b', "a quoted field is never closed"),
        ("mid,role,time\n1,a,\n", 2, b"1,a,", "no time: a record of plays needs a `time`"),
        ("rule,time\na,1\n", 2, b"a,1", "plays has no attribute 'rule'; did you mean 'role'?"),
        ("role,time\na,1\n", 2, b"a,1", "plays.mid is missing, and a join needs it"),
        ("relation,did,time\nplays,2,1\n", 2, b"plays,2,1", "plays has no attribute 'did'"),
        ("relation,row,time\nplays,{,1\n", 2, b"plays,{,1", "the column 'row' is not JSON"),
    ],
)
def test_a_bad_csv_record_has_position_and_reason(
    tmp_path: Path, text: str, line: int, raw: bytes, reason: str
) -> None:
    path = tmp_path / "plays.csv"
    path.write_text(text, newline="")
    (bad_record,) = bad_records(path)
    assert (bad_record.line, bad_record.raw) == (line, raw)
    assert bad_record.reason.startswith(reason)
    assert path.read_bytes()[bad_record.offset :].startswith(raw)


def test_invalid_utf8_is_a_bad_record_with_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_bytes(b"mid,role,time\n1,\xff,1\n2,\xc3\xa9,1\n")
    (tmp_path / "plays.jsonl").write_bytes(
        b'{"mid":1,"role":"\xff","time":1}\n{"mid":2,"role":"\xc3\xa9","time":1}'
    )
    for name in ("plays.csv", "plays.jsonl"):
        bad_record, good = items(tmp_path / name)
        assert isinstance(bad_record, BadRecord)
        assert b"\xff" in bad_record.raw
        assert good == Record(PLAYS, 1_000_000, (2, "é"))


def timed(table: bool = False) -> Schema:
    movie = SCHEMA.relations[MOVIE]
    attributes, key = movie.attributes, movie.key
    return Schema("timed", (Relation("movie", attributes, key, time="seen", table=table),), ())


def test_the_time_attribute_wins_except_for_deletions(tmp_path: Path) -> None:
    rows = [
        {"relation": "movie", "time": 9, "row": {"mid": 1, "seen": 4}},
        {"relation": "movie", "time": 9, "op": "-", "row": {"mid": 1, "seen": 4}},
        {"relation": "movie", "op": "-", "row": {"mid": 1, "seen": 4}},
        {"relation": "movie", "time": 9, "row": {"mid": 1, "seen": None}},
    ]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    read = items(path, timed())
    assert [r.time for r in read if isinstance(r, Record)] == [4_000_000, 9_000_000, 4_000_000]
    assert [b.reason for b in read if isinstance(b, BadRecord)] == [
        "movie.seen gives the time of the record, but is None"
    ]
    table_times = [r.time for r in items(path, timed(table=True)) if isinstance(r, Record)]
    assert table_times == [0, 0]


@pytest.mark.parametrize("depth", [500, 1010, 5000])
def test_deeply_nested_json_is_a_bad_record(tmp_path: Path, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    lines = [nested, b'{"relation":"plays","time":1,"row":' + nested + b"}", b'{"payload":' + nested + b"}"]
    lines.append(b'{"relation":"plays","time":1,"row":{"mid":' + nested + b"}}")
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(lines))
    assert [b.line for b in bad_records(tmp_path / "s.jsonl")] == [1, 2, 3, 4]


@pytest.mark.parametrize("depth", [300, 1_000, 1_020])
@pytest.mark.parametrize("name", ["r.json", "r.jsonl"])
def test_deeply_nested_values_are_read_or_bad_records(tmp_path: Path, name: str, depth: int) -> None:
    """Even where a schema refers to them, is inferred from them, and in a single document."""
    nested_arrays = "[" * depth + '"x"' + "]" * depth
    nested_objects = '{"a": ' * depth + "1" + "}" * depth
    rows = [
        f'{{"id": {n}, "v": {value}}}'
        for n, value in enumerate(['{"a": "x"}', nested_arrays, nested_objects])
    ]
    (tmp_path / name).write_text(f"[{','.join(rows)}]" if name == "r.json" else "\n".join(rows))
    schema = "name: s\nrelations: {r: {attributes: {id: integer, v: {type: text, from: v.a}}, table: true}}"
    read = items(tmp_path / name, parse_schema(schema))
    assert len(read) == 3
    assert read[0].row == (0, "x")  # type: ignore[union-attr]
    reasons = [item.reason for item in read if isinstance(item, BadRecord)]
    assert len(reasons) == (1 if depth == 300 else 2)
    assert all("deeply nested" in reason or "{'a'" in reason for reason in reasons)
    samples = sample([tmp_path / name])
    assert samples.tables()["r"]["id"][0] == 0
    assert len(samples.tables()["r"]["id"]) + samples.unreadable == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nothing.jsonl", None, "no such file or directory; did you mean 'nothing.json'?"),
        ("notes.txt", b"x", "unknown format"),
        ("plays.parquet", b"PAR1 no", "cannot read as Parquet"),
        ("plays.jsonl.gz", b"no gzip", "cannot read"),
        ("play.csv", b"mid,role\n1,x\n", "is called 'play'; did you mean 'plays'?"),
        ("play.jsonl", b'{"mid":1}\n', "is called 'play'; did you mean 'plays'?"),
    ],
)
def test_an_unreadable_source_is_reported(
    tmp_path: Path, name: str, text: bytes | None, message: str
) -> None:
    (tmp_path / "nothing.json").touch()
    if text is not None:
        (tmp_path / name).write_bytes(text)
    with pytest.raises(SourceError) as error:
        items(tmp_path / name)
    assert message in str(error.value)
    assert name in str(error.value)
    assert error.value.exit_code == 4


def test_a_directory_without_replay_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / ".x").touch()
    with pytest.raises(SourceError, match="no replay files"):
        plan(tmp_path, SCHEMA)


def test_the_header_of_a_csv_file_does_not_depend_on_files_read_before(tmp_path: Path) -> None:
    """Python's limit on the size of a field applies to the whole process."""
    (tmp_path / "director.csv").write_text(f"Report\ndid,name\n1,{'x' * 200_000}\n2,y\n3,z\n")
    limit = csv.field_size_limit(128 << 10)
    try:
        assert list(sample([tmp_path / "director.csv"]).tables()["director"]) == ["did", "name"]
    finally:
        csv.field_size_limit(limit)


def test_a_damaged_zip_is_reported(tmp_path: Path) -> None:
    line = b'{"mid":1,"role":"x","time":1}\n'
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", kind) as archive:
            archive.writestr("plays.jsonl", b"".join(b"%d%b" % (n, line) for n in range(99)))
        data = bytearray(buffer.getvalue())
        data[80:90] = bytes(10)
        (tmp_path / "plays.jsonl.zip").write_bytes(data)
        with pytest.raises(SourceError, match=r"plays\.jsonl\.zip: cannot read"):
            items(tmp_path / "plays.jsonl.zip")


def test_a_truncated_gzip_stream_is_rejected(tmp_path: Path) -> None:
    compressed = gzip.compress(b'{"mid":1,"role":"x","time":1}\n' * 99)
    (tmp_path / "plays.jsonl.gz").write_bytes(compressed[:-9])
    with pytest.raises(SourceError, match="cut off"):
        items(tmp_path / "plays.jsonl.gz")


PUBLIC_COLUMNS = {
    "stackexchange-ai": {
        "Comments": "Id:integer PostId:integer Score:integer Text:text CreationDate:timestamp UserId:integer",
        "Badges": "Id:integer UserId:integer Name:text Date:timestamp Class:integer TagBased:boolean",
    },
    "mondial": {
        "organization": "abbreviation:string name:text city:text country:string province:text"
        " established:timestamp",
        "borders": "country1:string country2:string length:number",
    },
    "sakila": {
        "rental": "rental_id:integer rental_date:timestamp inventory_id:integer customer_id:integer"
        " return_date:timestamp staff_id:integer last_update:timestamp",
        "actor": "actor_id:integer first_name:text last_name:text last_update:timestamp",
    },
}


@pytest.mark.check
@pytest.mark.parametrize(("source", "name"), [(s, n) for s, names in PUBLIC_COLUMNS.items() for n in names])
def test_public_data_has_no_bad_records(source: str, name: str) -> None:
    path = DATA / source / "csv" / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"the {source} data set is missing")
    pairs = [pair.split(":") for pair in PUBLIC_COLUMNS[source][name].split()]
    attributes = tuple(Attribute(n, T(t)) for n, t in pairs)
    schema = Schema(source, (Relation(name, attributes, table=True),), ())
    with path.open(newline="") as file:
        rows = sum(1 for _ in csv.reader(file)) - 1
    assert len(records(path, schema)) == rows > 0
