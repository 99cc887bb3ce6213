"""Runs whose number of shards or partitioning changes, at a start or for a query that needs it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skws.data.batch import Record
from skws.jobs.control import ControlFolder, JobCommand
from skws.queries.partitioning.parts import Partitioning
from skws.results.result import LiveResult
from skws.spark.streaming.layout import LayoutRequest
from skws.spec.job import Job
from skws.spec.query_spec import PATTERN, Query
from skws_schema.errors import UsageError
from skws_windows.window import TimeWindow
from tests.formats.replays import write_replay
from tests.jobs.watching import Collected, opened, steps
from tests.spark.streaming.spark_runs import Running, running
from tests.spark.streaming.test_oracle_shards import DIVIDED as SCHEMA
from tests.spark.streaming.test_oracle_shards import PAIRS, random_records, random_row

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

QUERIES = {"a": "alpha beta -no", "b": "alpha"}


def job_in(folder: Path, **changes: Any) -> Job:
    source, checkpoint = str(folder / "in.jsonl"), folder / "checkpoint"
    job = Job(QUERIES, SCHEMA, source, window=TimeWindow(60), max_size=4, checkpoint=checkpoint)
    return replace(job, **changes)


def write_stream(folder: Path, parts: int, seed: int) -> list[list[Record]]:
    """The records of a stream in parts; the first part is in the file already."""
    rng = random.Random(seed)
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    records = random_records(rng, 100 * parts)
    write_replay(folder / "in.jsonl", SCHEMA, [*tables, *records[:100]])
    return [records[start : start + 100] for start in range(0, len(records), 100)]


def append_records(folder: Path, records: list[Record]) -> None:
    write_replay(folder / "more.jsonl", SCHEMA, records)
    with (folder / "in.jsonl").open("ab") as file:
        file.write((folder / "more.jsonl").read_bytes())


def expected(folder: Path) -> list[bytes]:
    sink = Collected()
    watch = opened(
        job_in(folder, source=f"replay:{folder / 'in.jsonl'}?speed=1000000", checkpoint=None), sink
    )
    steps(watch)
    watch.close()
    return sorted(result.to_json() for result in sink.results)


def wait_for_results(run: Running, part: list[Record]) -> None:
    """Append records, and wait until the sinks have their results."""
    run.until(lambda: run.watch.event_time == part[-1].time)


@pytest.mark.slow
def test_the_number_of_shards_changes_at_each_start(tmp_path: Path) -> None:
    starts = [
        LayoutRequest(1),
        LayoutRequest(3),
        LayoutRequest(2),
        LayoutRequest(2, Partitioning.ROOTS),
        LayoutRequest(2),
        LayoutRequest(2, Partitioning.QUERIES),
        LayoutRequest(4, Partitioning.KEYS),
        LayoutRequest(1),
    ]
    results: list[LiveResult] = []
    layouts: list[str] = []
    for number, (layout, records) in enumerate(
        zip(starts, write_stream(tmp_path, len(starts), 5), strict=True)
    ):
        if number:
            append_records(tmp_path, records)
        with running(job_in(tmp_path), layout) as run:
            wait_for_results(run, records)
        results += run.sink.results
        layouts += [line for line in run.notes.lines if "the state moves" in line]
    expected_notes = ["3 shards, divided by keys", "2 shards, divided by keys", "2 shards, divided by roots"]
    expected_notes += [
        "2 shards, divided by queries",
        "4 shards, divided by keys",
        "1 shard, divided by roots",
    ]
    assert [line.partition("moves to ")[2] for line in layouts] == expected_notes
    assert sorted(result.to_json() for result in results) == expected(tmp_path)
    assert len(results) > 300
    assert sorted(path.name for path in (tmp_path / "checkpoint").glob("spark*")) == ["spark-5", "spark-6"]


@pytest.mark.slow
def test_a_query_that_no_key_divides_is_added_to_shards_by_key(tmp_path: Path) -> None:
    first, second, third = write_stream(tmp_path, 3, 6)
    folder = ControlFolder(tmp_path / "control")
    with running(job_in(tmp_path, control=folder.folder, checkpoint=None), LayoutRequest(2)) as run:
        wait_for_results(run, first)
        assert not [line for line in run.notes.lines if "the state moves" in line]
        folder.send(JobCommand.add(Query(PAIRS, kind=PATTERN, name="pairs")))
        run.until(lambda: len(folder.answers()) >= 1)
        assert [answer.error for answer in folder.answers()] == [""]
        append_records(tmp_path, second)
        wait_for_results(run, second)
        assert [line.partition("moves to ")[2] for line in run.notes.lines if "the state moves" in line] == [
            "2 shards, divided by roots"
        ]
        folder.send(JobCommand("remove", "pairs"))
        run.until(lambda: len(folder.answers()) >= 2)
        append_records(tmp_path, third)
        wait_for_results(run, third)
    results = [result for result in run.sink.results if result.query != PAIRS]
    assert sorted(result.to_json() for result in results) == expected(tmp_path)
    assert len(results) > 100
    assert len(run.sink.results) > len(results) + 10


def test_a_requested_division_by_key_rejects_such_a_query(tmp_path: Path) -> None:
    first, _ = write_stream(tmp_path, 2, 7)
    folder = ControlFolder(tmp_path / "control")
    layout = LayoutRequest(2, Partitioning.KEYS)
    with running(job_in(tmp_path, control=folder.folder), layout) as run:
        wait_for_results(run, first)
        folder.send(JobCommand.add(Query(PAIRS, kind=PATTERN, name="pairs")))
        run.until(lambda: len(folder.answers()) >= 1)
        (answer,) = folder.answers()
        assert answer.error == (
            "spark.skws.partitioning keys: no key divides the tuples: a query of this kind depends on the"
            " order of all tuples"
        )


def test_too_many_shards_are_rejected_at_the_start(tmp_path: Path) -> None:
    write_stream(tmp_path, 1, 8)
    with (
        pytest.raises(UsageError, match="expected 1 to 256"),
        running(job_in(tmp_path), LayoutRequest(257)) as run,
    ):
        run.end()
