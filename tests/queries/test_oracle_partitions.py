"""Partitions in order, read at any pace, have the results of the sorted stream; nothing is late."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
import pytest

from skws.data.batch import Record, RecordBatch
from skws.data.packing import pack
from skws.jobs.control import JobCommand
from skws.queries.kinds import plans_of
from skws.queries.partitioning.parts import Part, Partitioning
from skws.queries.session import Session
from skws.results.result import Result
from skws.sources.partitions import AwaitedPartitions, PartitionEnds, final_of, partition_number
from skws.spark.streaming.messages import BatchHeader, LogEnd, MicroBatch
from skws.spec.job import Job
from skws.spec.query_spec import PATTERN, SIZE, TOP, Query
from skws_purging.lifespans import ALWAYS
from skws_windows.window import MICROSECOND, TimeWindow
from tests.oracles.oracle import lines
from tests.spark.streaming.shard_runs import KeptShard
from tests.spark.streaming.test_oracle_shards import DIVIDED, random_row
from tests.strategies import length, seeds, some

START = 1_000_000


def random_records(rng: random.Random, count: int) -> list[Record]:
    """No two have the same time, as their order would depend on how they are read."""
    records: list[Record] = []
    for number in range(count):
        time = START + 2 * number + rng.randrange(2)
        if rng.random() < 0.02:
            records.append(Record.truncation(rng.randrange(3), time))
        elif records and rng.random() < 0.2:
            earlier = rng.choice(records[-30:])
            records.append(earlier._replace(time=time, delete=earlier.truncates or rng.random() < 0.7))
        else:
            records.append(Record(rng.randrange(3), time, random_row(rng, 5)))
    return records


Task = list[tuple[int | None, list[Record]]]
"""The records of a task by partition; None: the partition is unknown."""


def task_batches(rng: random.Random, records: Sequence[Record], lateness: int) -> Iterable[list[Task]]:
    """The records that tasks read from three partitions, batch by batch, each at its own rate, to the end."""
    partitions: list[list[Record]] = [[], [], []]
    for record in records:
        rng.choice(partitions).append(record)
    for part in partitions:
        part.sort(key=lambda record: record.time - rng.randint(0, lateness))
    rates = [rng.choice((1, 3, 8, 20)) for _ in partitions]
    while any(partitions):
        parts: Task = [(number, part[: rates[number]]) for number, part in enumerate(partitions)]
        partitions = [part[rate:] for part, rate in zip(partitions, rates, strict=True)]
        yield [parts] if rng.random() < 0.4 else [[(None, part)] for _, part in parts]


@dataclass
class Reader:
    """A shard that reads partitions, with its results so far."""

    shard: KeptShard
    lateness: int
    late: int = 0
    final: int = ALWAYS
    results: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shard.queries = {name: (query, 0) for name, query in self.shard.request.named().items()}
        self.shard.shard.begin(LogEnd(0, ALWAYS, None, ALWAYS), [], self.shard.queries.values())
        self.shard.shard.seek(0, ALWAYS, ALWAYS)

    def take(self, tasks: Iterable[Task], commands: Sequence[JobCommand] = ()) -> list[Result]:
        ends, records = [], []
        for task in tasks:
            partition_ends = PartitionEnds(self.lateness)
            for number, part in task:
                for start in range(0, len(part), 7):
                    times = [record.time for record in part[start : start + 7]]
                    partition_ends.take(np.array(times, dtype=np.int64), number)
                records += part
            ends.append(partition_ends.all())
        self.final = final_of(np.concatenate(ends), self.final, self.lateness, self.final)
        head = BatchHeader(0.0, tuple(commands), final=self.final)
        output = self.shard.work(MicroBatch(head, records=pack(RecordBatch.of(records))))
        self.late += output.stats["late"]
        self.results += output.results
        return output.results

    def rebuild(self) -> None:
        """Rebuild the shard from its log."""
        self.shard.rebuild()
        self.shard.shard.seek(self.shard.shard.position, self.shard.shard.now, self.final)


class ComparedResult(Protocol):
    """The compared parts of a result."""

    @property
    def op(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def start(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...


def final_versions(
    results: Iterable[ComparedResult],
) -> dict[tuple[str, str], tuple[bool, float | None, float | None]]:
    """By query and id: true if the last report is a retraction, with the begin and end of the result.

    Omits results that never lived, as a late deletion has shown.
    """
    versions = {(r.query, r.id): (r.op == "-", r.start, r.end) for r in results}
    return {
        key: (is_retracted, start, end)
        for key, (is_retracted, start, end) in versions.items()
        if end is None or start is None or end > start
    }


QUERIES: dict[str, str | Query] = {
    "a": "alpha beta",
    "b": Query("alpha beta no", options={}),
    "pattern": Query("plain p ; keyed k where p.x = k.x", kind=PATTERN),
    "best": Query("alpha no", kind=TOP, options={SIZE: "3"}),
}


def test_a_late_record_between_two_tuples_of_its_key() -> None:
    """A truncation ended the later tuple, and the earlier one has expired; both may still be corrected."""
    job = Job({"q": "alpha beta"}, DIVIDED, window=TimeWindow(40), max_size=3, lateness=5, dead_letters=None)
    session = Session(job.stream)
    session.add_all(list(plans_of(job).values()))
    records = [
        (16, Record(1, 17, ("pad", 3, 3))),
        (26, Record(1, 189, ("alpha beta", 3, None))),
        (38, Record(1, 210, (), True)),
        (39, Record(1, 40, ("alpha beta", 3, 4))),
        (57, Record(1, 204, ("beta", 3, None))),
    ]
    results = []
    for final, record in records:
        results += session.settle(final) + session.take(RecordBatch.of([record]))
    ends = [(result.op, result.end) for result in results]
    assert ends == [("+", 229 / MICROSECOND), ("-", 210 / MICROSECOND), ("-", 204 / MICROSECOND)]


@pytest.mark.slow
@some("lateness", [0, 5], [1])
@seeds(1, 12)
def test_partitions_of_any_rates_have_the_results_of_the_sorted_stream(lateness: int, seed: int) -> None:
    rng = random.Random(seed)
    records = random_records(rng, length(80, 120))
    window = TimeWindow(rng.choice((12, 40)))
    job = Job(dict(QUERIES), DIVIDED, window=window, max_size=3, lateness=lateness, dead_letters=None)
    reader = Reader(KeptShard(job, Part(0, 1, Partitioning.ROOTS)), lateness)
    for tasks in task_batches(rng, records, lateness):
        reader.take(tasks)
        if rng.random() < 0.3:
            reader.rebuild()
    assert not reader.late
    end = RecordBatch.of([])
    reader.results += reader.shard.shard.work(
        MicroBatch(BatchHeader(0.0, ended=True, final=reader.final), records=pack(end))
    ).results
    single = Session(replace(job.stream, lateness=0))
    single.add_all(list(plans_of(job).values()))
    expected = single.take(RecordBatch.of(records)) + single.take(end, ended=True)
    assert len(expected) > 20
    assert final_versions(reader.results) == final_versions(expected)


@seeds(4, 40)
def test_partitions_that_diverge_later_have_the_results_of_the_sorted_stream(seed: int) -> None:
    """Before that, records arrive in order, and no final time is known."""
    rng = random.Random(seed)
    records, split = random_records(rng, length(100, 120)), rng.randint(1, 80)
    job = Job(dict(QUERIES), DIVIDED, window=TimeWindow(rng.choice((12, 40))), max_size=3)
    session, single = Session(job.stream), Session(job.stream)
    for live in (session, single):
        live.add_all(list(plans_of(job).values()))
    results = session.take(RecordBatch.of(records[:split]))
    final = session.now
    results += session.settle(final)
    for tasks in task_batches(rng, records[split:], 0):
        parts = [part for task in tasks for _, part in task if part]
        final = max(final, min(part[-1].time for part in parts))
        results += session.take(RecordBatch.of([record for part in parts for record in part]))
        results += session.settle(final)
    assert not session.counts().late
    end = RecordBatch.of([])
    results += session.take(end, ended=True)
    expected = single.take(RecordBatch.of(records)) + single.take(end, ended=True)
    assert len(expected) > 20
    assert final_versions(results) == final_versions(expected)


@seeds(4, 40)
def test_a_rebuilt_shard_continues_unchanged(seed: int) -> None:
    """Queries are added and removed; the log may be replaced by the live tuples."""
    rng = random.Random(seed)
    records = random_records(rng, 200)
    window = TimeWindow(rng.choice((12, 40)))
    job = Job(dict(QUERIES), DIVIDED, window=window, max_size=3, dead_letters=None)
    part, few_bytes = Part(0, 1, Partitioning.ROOTS), rng.choice((500, 100_000))
    undisturbed, rebuilt = (Reader(KeptShard(job, part, few_bytes=few_bytes), 0) for _ in range(2))
    names: list[str] = []
    for number, tasks in enumerate(map(list, task_batches(rng, records, 0))):
        commands: list[JobCommand] = []
        if names and rng.random() < 0.1:
            commands.append(JobCommand("remove", names.pop(rng.randrange(len(names)))))
        if rng.random() < 0.2:
            names.append(f"q{number}")
            commands.append(JobCommand.add(Query(rng.choice(("alpha", "beta no", "no")), name=names[-1])))
        if rng.random() < 0.4:
            rebuilt.rebuild()
        results, expected = rebuilt.take(tasks, commands), undisturbed.take(tasks, commands)
        assert lines(results) == lines(expected), number


def test_equal_rows_stay_separate_after_a_later_restart() -> None:
    """A deletion ends the oldest of them, and the log no longer contains all of them."""
    job = Job({"a": "alpha"}, DIVIDED, window=TimeWindow(6), max_size=3, dead_letters=None)
    reader = Reader(KeptShard(job, Part(0, 1, Partitioning.ROOTS)), 0)
    row = Record(DIVIDED.index["plain"], START, ("alpha", 1, 1))
    queue = [row, row._replace(time=START + 1)]
    for time in range(START + 2, START + 40):
        queue += [row._replace(time=time), row._replace(time=time, delete=True)]
    shard = reader.shard
    for start in range(0, len(queue), 4):
        records = pack(RecordBatch.of(queue[start : start + 4]))
        shard.work(MicroBatch(BatchHeader(0.0, final=START), records=records))
    shard.work(MicroBatch(BatchHeader(0.0, final=START + 40)))
    live_results = [(one.start, one.id) for one in shard.shard.live_state()[0]]
    shard.rebuild()
    shard.shard.seek(shard.shard.position, shard.shard.now, START + 40)
    assert [(one.start, one.id) for one in shard.shard.live_state()[0]] == live_results
    assert len(live_results) == 2


def test_partition_ends_determine_the_final_time() -> None:
    ends = PartitionEnds(2)
    for times in ([5, 3, 9], [8, 1, 2], [7]):
        ends.take(np.array(times, dtype=np.int64))
    assert ends.all().tolist() == [7, 9]
    assert final_of(ends.all(), ALWAYS, 2, 9) == 7
    assert final_of(ends.all(), 8, 2, 9) == 8
    assert final_of(ends.all(), 8, 0, 9) == 9  # the other one is entirely late
    assert final_of(ends.all(), 20, 2, 20) == 20
    ends = PartitionEnds(2)
    for times, partition in (([5, 3, 9], 1), ([8, 1, 2], 2), ([7], 1)):
        ends.take(np.array(times, dtype=np.int64), partition)
    assert ends.all().tolist() == [8, 9]
    assert ends.rows().tolist() == [[1, 9], [2, 8]]
    assert PartitionEnds(0).all().tolist() == PartitionEnds(0).rows().tolist() == []


def test_idle_partitions_are_awaited_for_a_while() -> None:
    state: list[list[int]] = []
    first, second, unnumbered = partition_number(1, 0), partition_number(2, 0), partition_number(1, None)
    for clock, reports, expected in (
        (100, [(first, 5), (second, 50), (0, 9), (unnumbered, 7), (unnumbered, 8)], [5, 8, 9, 50]),
        (104, [(second, 60)], [5, 60]),  # without a number, it may never continue
        (110, [(second, 70), (second, 65)], [5, 70]),  # two tasks have read it
        (111, [(second, 80)], [80]),  # the first has been idle for too long
        (112, [(first, 7)], [7, 80]),
        (140, [], []),
    ):
        awaited = AwaitedPartitions(state, 10)
        ends = awaited.ends(np.array(reports, dtype=np.int64).reshape(-1, 2), clock)
        assert sorted(ends.tolist()) == expected
        state = awaited.rows
    assert state == []


@pytest.mark.parametrize("final", [None, START])
def test_records_before_the_slowest_partition_are_late(final: int | None) -> None:
    """If there are no partitions, records before the latest record are late."""
    session = Session(Job({"a": "alpha"}, DIVIDED, window=TimeWindow(10)).stream)
    if final is not None:
        session.settle(ALWAYS)
    session.take(RecordBatch.of([Record(0, START, ("alpha", 1, 1)), Record(0, START + 9, ("alpha", 1, 2))]))
    if final is not None:
        session.settle(final)
    session.take(RecordBatch.of([Record(0, START + n, ("alpha", n, 1)) for n in (-1, 0, 5)]))
    assert session.counts().late == (3 if final is None else 1)


_SHOP: Final = replace(
    DIVIDED,
    relations=tuple(r for r in DIVIDED.relations if r.name in ("plain", "keyed")),
    joins=DIVIDED.joins[:1],
)


def reports_of(*batches: Sequence[Record]) -> list[list[tuple[str, float | None, float | None]]]:
    """The reports of each batch with a lateness: operation, begin and end in microseconds."""
    job = Job({"a": "alpha beta"}, _SHOP, window=TimeWindow(40), lateness=50)
    session = Session(job.stream)
    session.add_all(list(plans_of(job).values()))
    return [
        [
            (result.op, _after_start(result.start), _after_start(result.end))
            for result in session.take(RecordBatch.of(batch))
        ]
        for batch in batches
    ]


def _after_start(seconds: float | None) -> float | None:
    return seconds and round(seconds * 1_000_000) - START


def test_a_version_that_never_lived_is_not_retracted_again() -> None:
    """An earlier end of a version that never lived does not apply to the version that lived from then on."""
    plain, keyed = (_SHOP.index[name] for name in ("plain", "keyed"))
    assert reports_of(
        [Record(keyed, START + 50, ("beta", 2, 2)), Record(plain, START + 58, ("alpha", 2, 1))],
        [Record(keyed, START + 57, ("beta", 2, 0))],
        [Record(keyed, START + 53, ("beta", 2, 2))],
        [Record(plain, START + 70, ("alpha", 2, 1), True)],
    ) == [[("+", 58, 90)], [("~", 58, 97)], [], [("-", 58, 70)]]


def test_an_earlier_end_is_reported_for_the_version_that_lived() -> None:
    plain, keyed = (_SHOP.index[name] for name in ("plain", "keyed"))
    assert reports_of(
        [Record(plain, START + 40, ("alpha", 2, 1)), Record(keyed, START + 45, ("beta", 2, 1))],
        [Record(keyed, START + 53, ("beta", 2, 1)), Record(keyed, START + 56, ("no", 2, 1))],
        [Record(plain, START + 50, ("alpha", 2, 1), True)],
    ) == [[("+", 45, 80)], [("-", 45, 56)], [("-", 45, 50)]]
