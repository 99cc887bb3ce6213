"""Row files: live rows are found again, dead ones are dropped, and damaged files are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from skws.data.batch import Record, RecordBatch
from skws.data.blocks import MappedBlock
from skws.queries.keywords.stream_engine import StreamEngine
from skws.store import row_files
from skws.store.live_store import LiveRecords
from skws.store.row_files import SUFFIX, RowFile, RowFiles, Stored
from skws_schema.errors import StateError
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_windows.window import Unbounded
from tests.strategies import seeds


@pytest.fixture(autouse=True)
def _few_rows_are_worth_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "LEAST", 3)
    monkeypatch.setattr(row_files, "MOST", 4)
    monkeypatch.setattr(row_files, "BATCH", 5)


SCHEMA = Schema(
    "rows",
    tuple(
        Relation(
            name,
            (
                Attribute("n", AttributeType.INTEGER),
                Attribute("t", AttributeType.TEXT),
                Attribute("x", AttributeType.NUMBER),
            ),
            search=("t",),
        )
        for name in ("even", "odd")
    ),
    (),
)


def records(numbers: range) -> RecordBatch:
    rows: list[Row] = [(n, None if n % 7 == 0 else f"row {n}", n / 2) for n in numbers]
    return RecordBatch.of([Record(n % 2, n, row) for n, row in zip(numbers, rows, strict=True)])


class StoredTuples:
    """Live tuples, and files for their rows. ``live``: the slots of the live ones."""

    def __init__(self, folder: Path, batch: RecordBatch) -> None:
        self.files = RowFiles(folder)
        self._engine = StreamEngine(SCHEMA, Unbounded())
        self.live = np.zeros(0, dtype=bool)
        self.add(batch)

    def add(self, batch: RecordBatch) -> None:
        for _ in self._engine.process_batches([batch]):
            pass
        self.live = np.concatenate([self.live, np.ones(len(batch), dtype=bool)])

    def current_records(self, leading: Sequence[Record] = ()) -> LiveRecords:
        records_of_engine = self._engine.live_records()
        assert records_of_engine.live.all()
        return replace(records_of_engine, leading=RecordBatch.of(leading), live=self.live)

    def store(self, name: str, leading: Sequence[Record] = ()) -> Stored:
        """Store the live tuples, and check that they are read from their new files."""
        before = list(self.current_records().records.records())
        stored = self.files.store(self.current_records(leading), name)
        assert list(self.current_records().records.records()) == before
        return stored

    def blocks(self) -> set[type]:
        """The types of the blocks that contain the rows."""
        return set(map(type, self.current_records().records.rows.blocks))


def read(folder: Path, stored: Stored) -> list[Record]:
    """The records that another process finds."""
    return list(RowFiles(folder).read(stored.files, stored.rest).whole.records())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_records_are_read_back_unchanged(tmp_path: Path) -> None:
    rows_in_files = StoredTuples(tmp_path, records(range(23)))
    stored = rows_in_files.store("a")
    assert rows_in_files.blocks() == {MappedBlock}
    assert not len(stored.rest)
    assert names(tmp_path) == [f"a{SUFFIX}"]
    assert read(tmp_path, stored) == list(records(range(23)).records())


def test_few_records_need_no_file(tmp_path: Path) -> None:
    stored = StoredTuples(tmp_path, records(range(2))).store("a")
    assert list(stored.rest.records()) == list(records(range(2)).records())
    assert not stored.files
    assert names(tmp_path) == []


def test_remaining_rows_are_not_written_again(tmp_path: Path) -> None:
    rows_in_files = StoredTuples(tmp_path, records(range(20)))
    rows_in_files.store("a")
    earlier_stat = (tmp_path / f"a{SUFFIX}").stat()
    rows_in_files.live[:5] = False
    stored = rows_in_files.store("b")
    assert [file["name"] for file in stored.files] == [f"a{SUFFIX}"]
    assert (tmp_path / f"a{SUFFIX}").stat().st_mtime_ns == earlier_stat.st_mtime_ns
    assert read(tmp_path, stored) == list(records(range(5, 20)).records())


def test_a_mostly_dead_file_is_replaced(tmp_path: Path) -> None:
    rows_in_files = StoredTuples(tmp_path, records(range(20)))
    rows_in_files.store("a")
    rows_in_files.live[:] = np.arange(20) % 3 == 0
    stored = rows_in_files.store("b")
    assert [file["name"] for file in stored.files] == [f"b{SUFFIX}"]
    rows_in_files.files.trim(stored.files)
    assert names(tmp_path) == [f"b{SUFFIX}"]
    assert [record.time for record in read(tmp_path, stored)] == list(range(0, 20, 3))


def test_deletions_are_kept_outside_of_files_and_come_first(tmp_path: Path) -> None:
    row: Row = (4, "row 4", 2.0)
    leading = [Record(0, 4, row), Record(0, 4, row, True), Record.truncation(1, 6)]
    rows_in_files = StoredTuples(tmp_path, records(range(4, 12)))
    assert rows_in_files.current_records(leading).insertions == 9
    stored = rows_in_files.store("a", leading)
    assert list(stored.rest.records()) == leading
    live_records = list(records(range(4, 12)).records())
    assert read(tmp_path, stored) == [*leading[:2], *live_records[:2], leading[2], *live_records[2:]]


@pytest.mark.slow
@seeds(10, 30)
def test_rows_are_added_and_removed_across_restarts(tmp_path: Path, seed: int) -> None:
    """A log is replaced again and again, with restarts in between; the number of files stays small."""
    rng, count = Random(seed), 0
    rows_in_files = StoredTuples(tmp_path, records(range(0)))
    for number in range(25):
        survival = rng.choice((0.3, 0.9, 1.0))
        rows_in_files.live &= np.array([rng.random() < survival for _ in rows_in_files.live], dtype=bool)
        rows_in_files.add(records(range(count, count := count + rng.randrange(9))))
        expected = list(rows_in_files.current_records().records.records())
        stored = rows_in_files.store(f"{number}")
        rows_in_files.files.trim(stored.files)
        assert len(stored.files) <= row_files.MOST
        assert names(tmp_path) == sorted(file["name"] for file in stored.files)
        assert read(tmp_path, stored) == expected
        if rng.random() < 0.3:
            files = RowFiles(tmp_path)
            rows_in_files = StoredTuples(tmp_path, files.read(stored.files, stored.rest).whole)
            rows_in_files.files = files
    assert count


@pytest.mark.check
@pytest.mark.parametrize("seed", range(20))
def test_records_are_read_in_parts(tmp_path: Path, seed: int) -> None:
    """From several files with overlapping times and some dead rows, and with others that are in no file."""
    rng = Random(seed)
    unfiled = [Record(1, rng.randrange(60), (), delete=True)]
    expected, files = list(unfiled), []
    for name in "abc":
        batch = records(range(rng.randrange(9), rng.randrange(10, 60), rng.randrange(1, 7)))
        file = RowFile.write(tmp_path / f"{name}{SUFFIX}", batch.parts(5))
        stored = file.read()
        is_live = np.array([rng.random() < 0.8 for _ in range(len(batch))], dtype=bool)
        expected += stored.take(is_live).records()
        is_live_in_file = np.zeros(file.rows, dtype=bool)
        is_live_in_file[[_number(stored, number) for number in np.flatnonzero(is_live).tolist()]] = True
        files.append(file.description(is_live_in_file))
    expected.sort(key=lambda record: record.time)
    stored_records = RowFiles(tmp_path).read(files, RecordBatch.of(unfiled))
    assert list(stored_records.whole.records()) == expected
    assert len(stored_records) == len(expected)
    assert stored_records.insertions == len(expected) - 1
    assert stored_records.latest == expected[-1].time
    size = rng.randrange(1, 12)
    parts = list(stored_records.parts(size))
    assert max(map(len, parts)) <= 2 * size
    assert [record for part in parts for record in part.records()] == expected


def _number(batch: RecordBatch, index: int) -> int:
    """The number of a row in its file."""
    block = batch.rows.blocks[batch.rows.block[index]]
    assert isinstance(block, MappedBlock)
    return block.first + int(batch.rows.place[index])


def test_damaged_files_are_named(tmp_path: Path) -> None:
    stored = StoredTuples(tmp_path, records(range(20))).store("a")
    path = tmp_path / f"a{SUFFIX}"
    data = path.read_bytes()
    for damaged_data in (data[:-8], data[:40] + b"x" + data[41:], data + b"more"):
        path.write_bytes(damaged_data)
        with pytest.raises(StateError, match=rf"a{SUFFIX}: damaged"):
            RowFiles(tmp_path).read(stored.files, stored.rest)
    path.write_bytes(b"")
    with pytest.raises(StateError, match=rf"a{SUFFIX}: damaged"):
        RowFiles(tmp_path).read(stored.files, stored.rest)
    path.unlink()
    with pytest.raises(StateError, match=rf"a{SUFFIX}: missing"):
        RowFiles(tmp_path).read(stored.files, stored.rest)


def test_files_are_private(tmp_path: Path) -> None:
    StoredTuples(tmp_path, records(range(20))).store("a")
    assert (tmp_path / f"a{SUFFIX}").stat().st_mode & 0o777 == 0o600
