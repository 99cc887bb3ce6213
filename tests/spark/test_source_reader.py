"""The reader of a source, called like Spark does: where records are read, sizes, and the end."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from skws.data.batch import NOTHING
from skws.library_inputs import schema_of
from skws.sources.feed import Batch
from skws.sources.growing_files import FilesFeed
from skws.spark.source_reader import SILENCE, Lines, Reading, SourcePartition, SourceReader, reader_of
from skws_schema.errors import BadRecordsError
from skws_windows.window import MICROSECOND
from tests.jobs.watching import YAML, append, customer, order


def reader(source: Path, **options: object) -> SourceReader:
    reader_options = {"source": source, "schema": YAML, **options}
    return reader_of({name: str(value) for name, value in reader_options.items()})


def batches(source_reader: SourceReader) -> Iterator[list[list[str]]]:
    """Micro-batches until one is empty: for each, the lines that each task reads in another process."""
    offset = source_reader.initialOffset()
    task = pickle.loads(pickle.dumps(source_reader))
    while (end := _sent(source_reader.latestOffset(offset, ReadAllAvailable()))) != offset:
        parts = pickle.loads(pickle.dumps(list(source_reader.partitions(offset, end))))
        assert all(isinstance(part, SourcePartition) for part in parts)
        assert [part.place for part in parts] == list(range(len(parts)))
        yield [[v for rows in task.read(part) for v in rows.column("value").to_pylist()] for part in parts]
        source_reader.commit(end)
        offset = end


def _sent(offset: dict[str, Any]) -> dict[str, Any]:
    received: dict[str, Any] = orjson.loads(orjson.dumps(offset))
    return received


def times(lines: list[str]) -> list[str]:
    return [orjson.loads(line)["time"][14:19] for line in lines]


def test_a_backlog_is_read_in_tasks_and_the_rest_by_the_driver(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, *(order(float(n), n) for n in range(210)))
    lines_by_batch = list(batches(reader(source, records=100)))
    assert [len(tasks) > 1 for tasks in lines_by_batch] == [True, True, False]
    lines = [line for tasks in lines_by_batch for task in tasks for line in task]
    assert times(lines) == [f"{n // 60:02}:{n % 60:02}" for n in range(210)]


def test_a_batch_repeated_by_spark_is_read_again_after_a_restart(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, *(order(float(n), n) for n in range(110)))
    for records in (100, 1000):  # planned, polled
        first, second = reader(source, records=records), reader(source, records=records)
        start = first.initialOffset()
        end = _sent(first.latestOffset(start, ReadAllAvailable()))
        values = [
            [
                line
                for part in each.partitions(start, end)
                for rows in each.read(part)
                for line in rows["value"]
            ]
            for each in (first, second)
        ]
        assert values[0] == values[1]
        assert len(values[0]) >= 95


def test_a_bounded_run_ends_after_the_available_records(tmp_path: Path) -> None:
    """With ``trigger(availableNow=True)``, whatever arrives in the meantime."""
    source = tmp_path / "in.jsonl"
    append(source, *(order(float(n), n) for n in range(250)))
    source_reader = reader(source, records=100)
    source_reader.prepareForTriggerAvailableNow()
    sizes = []
    for tasks in batches(source_reader):
        append(source, order(1000.0, 1))
        sizes.append(sum(map(len, tasks)))
    assert 250 <= sum(sizes) < 260
    assert sizes[0] == pytest.approx(100, abs=5)


def test_a_bounded_run_does_not_end_while_its_server_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1))
    poll, failures = FilesFeed.poll, iter([True, True])

    def polled(feed: FilesFeed, start: dict[str, Any], limit: int) -> Batch:
        return (
            Batch(poll(feed, start, 0).read, start, ("away",))
            if next(failures, None)
            else poll(feed, start, limit)
        )

    monkeypatch.setattr(FilesFeed, "poll", polled)
    source_reader = reader(source)
    source_reader.prepareForTriggerAvailableNow()
    offset = source_reader.initialOffset()
    ends = [source_reader.latestOffset(offset, ReadAllAvailable()) for _ in range(3)]
    assert [end == offset for end in ends] == [True, True, False]
    assert source_reader.latestOffset(ends[2], ReadAllAvailable()) == ends[2]


def test_a_bounded_run_does_not_end_while_messages_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes an unchanged offset for the end, and asks only once."""
    source = tmp_path / "in.jsonl"
    append(source, *(customer(n, n) for n in range(3)))
    poll, counts = FilesFeed.poll, iter([0, 0, 1, 0, 2])

    def polled(feed: FilesFeed, start: dict[str, Any], limit: int) -> Batch:
        number = next(counts, limit)
        if not number:
            return Batch(NOTHING, start, answered=False)
        return replace(poll(feed, start, number), answered=number == limit)

    monkeypatch.setattr(FilesFeed, "poll", polled)
    source_reader = reader(source)
    source_reader.prepareForTriggerAvailableNow()
    assert [len(lines) for tasks in batches(source_reader) for lines in tasks] == [1, 2]


def test_shards_hear_of_silence_after_all_records_are_processed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long Spark works or waits for its trigger; also after a start without new records."""
    append(tmp_path / "in.jsonl", customer(1, 1))
    clock = [0.0]
    monkeypatch.setattr("skws.spark.source_reader.time.monotonic", lambda: clock[0])

    def latest_offset(reading: SourceReader, offset: dict[str, Any], seconds: float) -> dict[str, Any]:
        clock[0] = seconds
        return _sent(reading.latestOffset(offset, ReadAllAvailable()))

    schema = schema_of(YAML)
    readers = [
        SourceReader(Reading(str(tmp_path / "in.jsonl"), schema, idle=10 * MICROSECOND), Lines(schema))
        for _ in range(3)
    ]
    offset = latest_offset(readers[0], readers[0].initialOffset(), 0.0)
    first = latest_offset(readers[0], offset, 100.0)
    assert first == offset | {SILENCE: 1}
    assert latest_offset(readers[0], first, 109.0) == first
    second = latest_offset(readers[0], first, 112.0)
    assert second == offset | {SILENCE: 2}
    assert latest_offset(readers[0], second, 200.0) == second
    assert latest_offset(readers[1], second, 300.0) == latest_offset(readers[1], second, 309.0) == second
    third = latest_offset(readers[1], second, 312.0)
    assert third == offset | {SILENCE: 3}
    with monkeypatch.context() as patches:
        patches.setattr(FilesFeed, "poll", lambda _, start, __: Batch(NOTHING, start, answered=False))
        patches.setattr("skws.spark.source_reader.POLLS", 1)  # it rests after each
        assert latest_offset(readers[2], third, 400.0) == latest_offset(readers[2], third, 500.0) == third
    assert latest_offset(readers[2], third, 501.0) == latest_offset(readers[2], third, 510.0) == third
    assert latest_offset(readers[2], third, 513.0) == offset | {SILENCE: 4}


def test_bad_records_fail_their_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    append(
        source,
        *(order(float(n), n) for n in range(99)),
        {"relation": "order", "time": 99, "row": {"cid": "x"}},
    )
    with pytest.raises(BadRecordsError, match=r"in\.jsonl:100: .*on_error=skip"):
        list(batches(reader(source, records=100)))
    (tasks,) = batches(reader(source, records=100, on_error="skip"))
    assert sum(map(len, tasks)) == 99
    assert "in.jsonl:100" in capsys.readouterr().err
