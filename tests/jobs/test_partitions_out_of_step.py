"""Growing files, each in order, have the results of the sorted stream, however fast each one is read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from skws.data.batch import Record, RecordBatch
from skws.formats.dead_letters import record_line
from skws.jobs.control import JobCommand, RunControl
from skws.jobs.local import LocalWatch
from skws.queries.kinds import plans_of
from skws.queries.session import Session
from skws.sources.partitions import StreamTime
from skws.spec.job import IDLE, Job
from skws.spec.query_spec import PATTERN, Query
from skws_windows.window import MICROSECOND, TimeWindow
from tests.clocks import HandClock
from tests.jobs.watching import Collected, Notes, abandon, append, customer, lines, order, request, steps
from tests.queries.test_oracle_partitions import QUERIES, final_versions, random_records
from tests.spark.streaming.test_oracle_shards import DIVIDED
from tests.strategies import seeds, some


class Run:
    """A job over a folder of files, with its own clock; it can be restarted from its checkpoint."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.folder = Path(job.source)
        self.folder.mkdir()
        self.clock = HandClock()
        self.sink = Collected()
        self.late = 0
        self.start()

    def start(self) -> None:
        control = RunControl(self.job, self.clock)
        self.watch = LocalWatch(self.job, [self.sink], Notes().log, control=control)
        self.watch.open()

    def restart(self, *, killed: bool) -> None:
        self.late += self.watch.metrics().late
        if killed:
            abandon(self.watch)
        else:
            self.watch.close()
        self.start()

    def write(self, number: int, records: Sequence[Record]) -> None:
        with (self.folder / f"{number}.jsonl").open("ab") as file:
            file.writelines(record_line(record, self.job.schema) + b"\n" for record in records)

    def add(self, queries: Sequence[Query]) -> None:
        self.watch.control.submit_all([JobCommand.add(query) for query in queries])

    def wait(self, seconds: float) -> None:
        self.clock.sleep(round(seconds * MICROSECOND))
        steps(self.watch)

    def alive(self, name: str) -> set[str]:
        return {result.id for result in self.watch.worker.alive(name)}

    def told(self) -> list[tuple[str, str]]:
        return self.sink.told()


def three_files(rng: random.Random, records: Sequence[Record], lateness: int) -> list[list[Record]]:
    """The records of three files, each in order except for the lateness."""
    parts: list[list[Record]] = [[], [], []]
    for record in records:
        rng.choice(parts).append(record)
    for part in parts:
        part.sort(key=lambda record: record.time - rng.randint(0, lateness))
    return parts


@some("lateness", [0, 5], [1])
@some("has_checkpoint", [True, False], [])
@seeds(1, 12)
def test_files_read_at_different_rates_give_the_results_of_the_sorted_stream(
    tmp_path: Path, seed: int, has_checkpoint: bool, lateness: int
) -> None:
    """Even after kills and restarts; queries added later find the results that are live at that time."""
    rng = random.Random(seed)
    records = random_records(rng, 120)
    job = Job(
        dict(QUERIES),
        DIVIDED,
        str(tmp_path / "in"),
        window=TimeWindow(rng.choice((12, 40))),
        max_size=3,
        lateness=lateness,
        checkpoint=tmp_path / "checkpoint" if has_checkpoint else None,
        control=tmp_path / "control",
    )
    remaining = three_files(rng, records, lateness)
    rates = [rng.choice((1, 3, 8, 20)) for _ in remaining]
    run, round_number = Run(job), 0
    names = {query.name: f"later {query.name}" for query in job.named().values()}
    while any(remaining):
        for number, part in enumerate(remaining):
            if not round_number or rng.random() < 0.8:  # a file delays the stream only once it has records
                run.write(number, part[: rates[number]])
                remaining[number] = part[rates[number] :]
        if round_number == 5:
            run.add([replace(query, name=names[query.name]) for query in job.named().values()])
        round_number += 1
        run.wait(rng.random())
        if has_checkpoint and rng.random() < 0.2:
            run.restart(killed=rng.random() < 0.5)
    # After all windows. Queries that need the order get the first records, with a lateness not the last ones.
    end = [Record(0, records[-1].time + 1_000 * (1 + n // 3) + n, ("pad", 1, 1)) for n in range(6)]
    run.wait(1.5 * IDLE / MICROSECOND)
    for name, later_name in names.items():
        assert run.alive(name) == run.alive(later_name)
    for number, record in enumerate(end):
        run.write(number % 3, [record])
    run.wait(0)
    run.wait(1.5 * IDLE / MICROSECOND)
    run.late += run.watch.metrics().late
    run.watch.close()
    assert not run.late
    sorted_session = Session(replace(job.stream, lateness=0))
    sorted_session.add_all(list(plans_of(job).values()))
    expected = sorted_session.take(RecordBatch.of(records)) + sorted_session.take(RecordBatch.of(end))
    assert len(expected) > 20
    assert final_versions([r.parsed for r in run.sink.results if r.name in names]) == final_versions(expected)


def opened_run(tmp_path: Path, **changes: Any) -> Run:
    return Run(request(tmp_path / "in", **changes))


def test_records_of_a_file_far_behind_are_not_late(tmp_path: Path) -> None:
    """One file has the times 0 to 500, then 500 to 600; the other has 0 to 50, then 50 to 550."""
    run = opened_run(tmp_path)
    for begin, end, other_begin, other_end in ((0, 500, 0, 50), (500, 600, 50, 550)):
        append(run.folder / "a.jsonl", *(customer(time, time) for time in range(begin, end)))
        append(run.folder / "b.jsonl", *(order(time + 0.5, time) for time in range(other_begin, other_end)))
        run.wait(0)
    assert run.watch.metrics().late == 0
    assert len(run.told()) == 550
    run.watch.close()


def test_an_idle_file_delays_results_only_for_the_idle_time(tmp_path: Path) -> None:
    pattern = Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)
    run = opened_run(tmp_path, queries={"pattern": pattern, "both": "ada lamp"}, idle=5 * MICROSECOND)
    append(run.folder / "a.jsonl", customer(0, 1))
    append(run.folder / "b.jsonl", order(0, 9))
    run.wait(0)
    append(run.folder / "a.jsonl", order(4, 1))
    run.wait(4)
    assert run.told() == [("+", "ada lamp")]  # keywords are found at once, matches in order
    run.wait(0.9)
    assert len(run.told()) == 1
    run.wait(0.2)  # the other file has had no records for five seconds
    assert run.told()[1:] == [("+", pattern.text)]
    append(run.folder / "b.jsonl", order(3, 1), order(4, 1, "lamp too"), order(9, 1))
    run.wait(0)
    assert run.watch.metrics().late == 1  # records behind that point are late
    append(run.folder / "a.jsonl", order(6, 1, "lamp, late"))
    run.wait(0)
    assert run.watch.metrics().late == 1  # both files delay the stream again
    run.watch.close()


def test_when_all_files_are_idle_the_latest_record_sets_the_time(tmp_path: Path) -> None:
    pattern = Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)
    run = opened_run(tmp_path, queries={"pattern": pattern})
    append(run.folder / "a.jsonl", customer(0, 1), order(8, 1))
    append(run.folder / "b.jsonl", order(5, 9))
    run.wait(0)
    assert run.told() == []
    run.wait(IDLE / MICROSECOND)
    assert run.told() == []
    run.wait(0.1)
    assert run.told() == [("+", pattern.text)]
    run.watch.close()


def test_several_idle_files_delay_results_only_until_the_last_is_idle(tmp_path: Path) -> None:
    pattern = Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)
    run = opened_run(tmp_path, queries={"pattern": pattern}, idle=5 * MICROSECOND)
    append(run.folder / "a.jsonl", customer(0, 1), order(8, 1))
    append(run.folder / "b.jsonl", order(5, 9))
    append(run.folder / "c.jsonl", order(5, 9))
    run.wait(0)
    run.wait(3)
    append(run.folder / "c.jsonl", order(5, 9))
    for _ in range(5):
        run.wait(1)
    assert run.told() == []
    run.wait(1.1)
    assert run.told() == [("+", pattern.text)]
    run.watch.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_restores_the_time_of_each_file(tmp_path: Path, killed: bool) -> None:
    dead_letters = tmp_path / "letters.jsonl"
    run = opened_run(tmp_path, checkpoint=tmp_path / "checkpoint", dead_letters=dead_letters)
    append(run.folder / "a.jsonl", customer(0, 1), customer(50, 2))
    append(run.folder / "b.jsonl", order(0, 9), order(10, 9))
    run.wait(0)
    run.restart(killed=killed)
    append(run.folder / "a.jsonl", customer(60, 3))
    run.wait(0)
    run.restart(killed=killed)
    append(run.folder / "b.jsonl", order(9, 1), order(10, 1), order(50, 2))
    run.wait(0)
    assert {result.tuples[0].row["cid"] for result in run.sink.results} == {2}  # the window is ten seconds
    assert run.watch.metrics().late == 1
    run.restart(killed=killed)
    run.watch.close()
    assert [orjson.loads(line["raw"])["time"][17:19] for line in lines(dead_letters)] == ["09"]


def test_stream_time_follows_the_slowest_partition() -> None:
    time = StreamTime()
    read: Mapping[int, int]
    next_times: Mapping[int, int]
    for read, next_times, ended_partitions, final_time in (
        ({1: 500}, {}, (), None),  # the only partition is the latest
        ({1: 510, 2: 510}, {}, (), None),
        ({1: 600}, {}, (), 510),
        ({1: 700}, {2: 650}, (), 650),  # the next record is known
        ({3: 600}, {}, (), 650),  # all of its records were late
        ({3: 660, 1: 710}, {}, (), 650),
        ({}, {}, (2,), 660),
        ({}, {}, (3, 1), 710),
        ({2: 705}, {}, (), 710),
        ({2: 720}, {}, (), 720),
    ):
        time = time.after(read, next_times, ended_partitions, lateness=0)
        assert time.final == final_time
        assert (
            orjson.loads(orjson.dumps(time.offset())) == time.offset()
        )  # Spark compares this with what it was sent
        assert StreamTime.of({"stream_time": time.offset()}) == time
