"""Replay folders with unrelated files, links and pipes, and malformed lines."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws.formats import BadRecordLog, Replay
from skws.formats.sampling import sample
from skws.formats.splits import plan, read_pieces
from skws.sources.folder import check_path, listing
from skws.sources.inferred_schemas import inferred
from skws.spec.enums import OnError
from skws_schema.errors import SourceError
from tests.formats.samples import SCHEMA, bad_records

RECORD = b'{"relation": "plays", "time": 1, "row": {"mid": 1, "role": "x"}}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(RECORD)
    return tmp_path / "in"


def test_a_link_to_a_parent_folder_is_skipped(folder: Path) -> None:
    (folder / "back").symlink_to(folder)
    (folder / "above").symlink_to("..")
    assert [split.path.name for split in plan(folder, SCHEMA)] == ["a.jsonl"]
    assert [file.name for file in listing(folder, SCHEMA).files] == ["a.jsonl"]
    assert list(sample([folder]).tables()) == ["plays"]


def test_folders_that_link_to_each_other_do_not_loop(folder: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (folder / name).mkdir()
        (folder / name / "c.jsonl").write_bytes(RECORD)
        (folder / name / "link").symlink_to(folder / other)
    names = ["a/c.jsonl", "a/link/c.jsonl", "a.jsonl", "b/c.jsonl", "b/link/c.jsonl"]
    assert [str(split.path.relative_to(folder)) for split in plan(folder, SCHEMA)] == names
    assert sorted(file.name for file in listing(folder, SCHEMA).files) == sorted(names)


def test_a_linked_folder_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.jsonl").write_bytes(RECORD)
    (folder / "link").symlink_to(tmp_path / "other")
    assert [split.path.name for split in plan(folder, SCHEMA)] == ["a.jsonl", "b.jsonl"]
    assert [file.name for file in listing(folder, SCHEMA).files] == ["a.jsonl", "link/b.jsonl"]


def test_a_pipe_in_a_folder_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    for read in (lambda: plan(folder, SCHEMA), lambda: sample([folder])):
        with pytest.raises(SourceError, match=r"pipe\.jsonl: not a file"):
            read()
    assert listing(folder, SCHEMA).unknown == ("pipe.jsonl",)
    with pytest.raises(SourceError, match="--source -"):
        check_path(folder / "pipe.jsonl")


def test_lines_skipped_by_a_sample_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(RECORD + b"nonsense\n\n[1]\nnull\n")
    (tmp_path / "b.csv").write_bytes(b"x,y\n1,2\n\n1,2,3\n")
    assert sample([tmp_path]).unreadable == 3


def test_a_file_deleted_before_it_is_read_is_reported(folder: Path) -> None:
    (split,) = plan(folder, SCHEMA)
    split.path.unlink()
    with pytest.raises(SourceError, match=r"a\.jsonl: cannot read: No such file or directory"):
        list(read_pieces(split, SCHEMA))


def test_a_dash_is_not_a_replay() -> None:
    with pytest.raises(SourceError, match="skws watch --source - reads standard input"):
        plan(Path("-"), SCHEMA)


def test_only_a_similar_file_name_is_suggested(folder: Path) -> None:
    for name, hint in (("A.jsonl", "; did you mean 'a.jsonl'?"), ("missing.jsonl", "")):
        with pytest.raises(SourceError) as error:
            plan(folder / name, SCHEMA)
        assert str(error.value) == f"{folder / name}: no such file or directory{hint}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"relation": "plays", "role": "é"}'.encode("latin-1"), "not UTF-8: byte 0xE9 at column 32"),
        (b'{"relation": plays}', "not JSON: unexpected character, expected a JSON value (column 14)"),
        (
            b'{"relation": "plays", "time": 1.8e302, "row": {"mid": 1}}',
            "expected seconds since the epoch within the years 1 to 9999, got 1.8e+302"
            " (milliseconds or microseconds?)",
        ),
        (b'{"relation":"plays","row":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "not JSON: "),
        (b'{"relation": "plays"}', "the record has no field 'row'"),
    ],
)
def test_a_malformed_line_has_a_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "stream.jsonl").write_bytes(text)
    assert bad_records(tmp_path / "stream.jsonl")[0].reason.startswith(reason)
    replay = Replay.open([tmp_path / "stream.jsonl"], SCHEMA)
    log = BadRecordLog(OnError.SKIP)
    assert sum(map(len, replay.batches(log))) == 0
    assert log.first[0].reason.startswith(reason)


def test_a_sample_infers_no_relation_from_malformed_records(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b'{}\n{"foo": 1}\n' + RECORD + b'\nnonsense\n{"foo": 2}\n')
    samples = sample([path])
    assert list(samples.tables()) == ["plays"]
    assert samples.unreadable == 4


def test_a_sample_of_columns_skips_rows_and_relations_of_other_types(tmp_path: Path) -> None:
    """A row in a column is an object, as JSON or, in Parquet, as a struct."""
    path = tmp_path / "stream.csv"
    lines = ["relation,time,row", 'plays,1,"{""mid"": 1}"', 'plays,1,"[1]"', "plays,1,5", "plays,1,null"]
    path.write_text("\n".join(lines) + "\n")
    samples = sample([path])
    assert (samples.tables(), samples.unreadable) == ({"plays": {"mid": [1]}}, 3)
    assert samples.reasons[0] == "expected a row (a JSON object) of plays, got [1]"
    table = pa.table({"relation": ["plays"], "time": [1], "row": [{"mid": 1}]})
    pq.write_table(table, tmp_path / "stream.parquet")
    assert sample([tmp_path / "stream.parquet"]).tables() == {"plays": {"mid": [1]}}
    pq.write_table(table.set_column(0, "relation", [[7]]), tmp_path / "stream.parquet")
    with pytest.raises(SourceError, match="expected the name of a relation, got 7"):
        sample([tmp_path / "stream.parquet"])


def test_a_name_with_dots_takes_precedence_in_a_sample(tmp_path: Path) -> None:
    """As in the rows that are read by the schema."""
    (tmp_path / "t.jsonl").write_text('{"a": {"b": 1, "c": [1]}, "a.b": ["x", {"d": 2}], "a.c": 3}\n')
    assert sample([tmp_path / "t.jsonl"]).tables() == {"t": {"a.b": [["x"]], "a.b.d": [[2]], "a.c": [3]}}


def test_a_sample_skips_flattened_events_with_impossible_times(tmp_path: Path) -> None:
    for name, lines in (
        (
            "plays.jsonl",
            ['{"__op":"c","__ts_ms":1,"mid":1}', '{"__op":"c","__ts_ms":99999999999999999,"mid":2}'],
        ),
        ("plays.csv", ["__op,__ts_ms,mid", "c,1,1", "c,99999999999999999,2"]),
    ):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        samples = sample([tmp_path / name])
        assert {column: len(values) for column, values in samples.tables()["plays"].items()} == {"mid": 1}
        assert "years 1 to 9999" in samples.reasons[0]


def test_records_of_equal_time_are_ordered_by_file_and_line(folder: Path) -> None:
    def line(role: str, time: int) -> bytes:
        return b'{"relation": "plays", "time": %d, "row": {"mid": 1, "role": "%s"}}\n' % (time, role.encode())

    (folder / "a.jsonl").write_bytes(line("d", 2) + line("a", 1) + line("b", 1))
    (folder / "b.jsonl").write_bytes(line("c", 1) + line("e", 2))
    records = Replay.open(folder, SCHEMA).stream(BadRecordLog())
    assert "".join(str(record.row[1]) for record in records) == "abcde"


@pytest.mark.parametrize("name", ["part-00000.snappy.parquet", "data_0.parquet"])
def test_partitions_of_a_table_are_one_relation(tmp_path: Path, name: str) -> None:
    """As Spark and DuckDB write them: each folder of a partition has the name of a column and a value."""
    for table in ("events", "users"):
        for day in (1, 2):
            folder = tmp_path / "lake" / table / f"day=2024-01-0{day}" / "hour=7"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"id": [day], "what": [f"{table} {day}"]}), folder / name)
    inference = inferred([str(tmp_path / "lake")])
    schema = inference.schema()
    assert [relation.name for relation in schema.relations] == ["events", "users"]
    splits = plan(tmp_path / "lake", schema)
    assert [split.relation for split in splits] == [0, 0, 1, 1]
    partition = tmp_path / "lake" / "events" / "day=2024-01-01"
    (relation,) = inferred([str(partition)]).schema().relations
    assert relation.name == "day_2024-01-01"
    assert [split.relation for split in plan(partition, inferred([str(partition)]).schema())] == [0]
