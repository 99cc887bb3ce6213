"""A backlog that tasks read in parts: the same records, results and reports as read by one process."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from skws.data.batch import Record, RecordBatch
from skws.data.packing import rejoin, unpack
from skws.formats.dead_letters import record_line
from skws.jobs.local import LocalWatch
from skws.queries.kinds import moment, plans_of
from skws.queries.partitioning.parts import KeyPartitioning, Partitioning, plan_keys
from skws.queries.session import Session
from skws.results.result import Result
from skws.sources.addresses import parse_source
from skws.sources.feed import Offset
from skws.spark.streaming.input_rows import InputRow, InputRows, RowsPartition
from skws.spark.streaming.layout import Layout, keys_for
from skws.spark.streaming.messages import MicroBatch, micro_batches_of
from skws.spark.streaming.reader import FeedReader, PlanningReader, Reading, beginning
from skws.spec.enums import OnError
from skws.spec.job import Job
from skws.state_database import NAME, StateDatabase
from skws_schema.errors import BadRecordsError
from skws_windows.window import TimeWindow
from tests.jobs.test_partitions_out_of_step import three_files
from tests.jobs.watching import Collected, Notes, append, customer, order, request
from tests.queries.test_oracle_partitions import QUERIES, final_versions, random_records
from tests.spark.streaming.shard_runs import KeptShard
from tests.spark.streaming.spark_runs import running
from tests.spark.streaming.test_oracle_shards import DIVIDED
from tests.strategies import seeds, some

TASKS = 3


def layout_of(job: Job, shards: int) -> Layout:
    """Shards that divide the tuples by key, if the queries permit that."""
    keys = plan_keys(list(job.named().values()), job.stream, job.plan_window)
    if shards == 1 or not isinstance(keys, KeyPartitioning):
        return Layout(Partitioning.ROOTS, keys_for(shards))
    return Layout(Partitioning.KEYS, keys_for(shards), keys)


def planning_reader(
    folder: Path, job: Job, layout: Layout, first: int, tasks: int = TASKS, part: int | None = None
) -> PlanningReader:
    """A reader with batches of ``first`` records at first, and up to four times as many later."""
    folder.mkdir(exist_ok=True)
    StateDatabase(folder / NAME).close()
    start = beginning(parse_source(job.source).open(job.schema).start())
    reading = Reading(job, folder, "a start", layout, start, tasks=tasks)
    return PlanningReader(FeedReader(reading, first=first, most=4 * first, part=part or first))


def as_tasks(partitions: Sequence[Any]) -> list[RowsPartition]:
    received: list[RowsPartition] = pickle.loads(pickle.dumps(list(partitions)))
    return received


def micro_batches(partitions: Sequence[RowsPartition]) -> dict[int, list[MicroBatch]]:
    """The micro-batches of each group, joined as tasks of shards join them."""
    rows: defaultdict[int, list[InputRow]] = defaultdict(list)
    for partition in partitions:
        for row in partition.rows():
            rows[row[0]].append(row)
    return {
        group: [
            MicroBatch.from_bytes(blob)
            for blob in micro_batches_of(row[1:] for row in sorted(rows_of_group, key=itemgetter(1, 2)))
        ]
        for group, rows_of_group in rows.items()
    }


def records_of(parts: Sequence[MicroBatch], layout: Layout) -> list[Record]:
    """The records of a micro-batch, from those of all shards."""
    blobs = [part.records for part in parts]
    return list((unpack(blobs[0]) if layout.keys is None else rejoin(blobs)).records())


@pytest.mark.parametrize("shards", [1, 3])
def test_a_backlog_is_read_in_parts_which_are_the_same_again(tmp_path: Path, shards: int) -> None:
    source = tmp_path / "in.jsonl"
    append(source, *(order(n // 3, n % 7) for n in range(400)))
    job = request(source)
    layout = layout_of(job, shards)
    reader = planning_reader(tmp_path / "run", job, layout, first=20)
    restarted = planning_reader(tmp_path / "run", job, layout, first=20, tasks=TASKS + 2)
    start: Offset = reader.initialOffset()
    records: list[Record] = []
    part_counts: list[int] = []
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        batches = micro_batches(partitions := as_tasks(reader.partitions(start, end)))
        part_counts.append(sum(not isinstance(part, InputRows) for part in partitions))
        partitions_again = as_tasks(restarted.partitions(start, end))
        assert len(partitions_again) == len(partitions)
        again = micro_batches(partitions_again)
        assert again.keys() == batches.keys()
        for number, parts in enumerate(zip(*batches.values(), strict=True)):
            of_batch = records_of(parts, layout)
            records += of_batch
            assert records_of([group[number] for group in again.values()], layout) == of_batch
            assert {part.head.reached for part in parts} == (
                {max(record.time for record in of_batch)} if shards > 1 and of_batch else {None}
            )
        start = end
    assert part_counts[0] == 0  # how many records wait is known after the first batch
    assert part_counts.count(TASKS) > 2
    assert [record.row[0] for record in records] == [n % 7 for n in range(400)]
    assert [record.time for record in records] == [n // 3 * 1_000_000 for n in range(400)]


@some("shards, keyed, lateness", [(1, False, 0), (3, True, 0), (2, True, 5)], [(3, False, 0), (2, False, 5)])
@seeds(2, 20)
def test_oracle_files_read_in_parts_give_the_results_of_the_sorted_stream(
    tmp_path: Path, seed: int, shards: int, keyed: bool, lateness: int
) -> None:
    """Whatever their rates: a plan knows the last record of each file."""
    rng = random.Random(seed)
    records = random_records(rng, 300)
    folder = tmp_path / "in"
    folder.mkdir()
    window = TimeWindow(rng.choice((12, 40)))
    queries = {name: query for name, query in QUERIES.items() if name in "ab" or not keyed}
    job = Job(queries, DIVIDED, str(folder), window=window, max_size=3, lateness=lateness)
    layout = layout_of(job, shards)
    assert (layout.keys is not None) == keyed
    reader = planning_reader(tmp_path / "run", job, layout, first=4)
    kept = {group: KeptShard(job, part) for group, part in layout.shares.items()}
    for shard in kept.values():
        shard.queries = {name: (query, 0) for name, query in job.named().items()}
        shard.rebuild()
    remaining, planned = three_files(rng, records, lateness), 0
    rates = [rng.choice((5, 20, 60)) for _ in remaining]
    last_time = records[-1].time
    # After all windows; with a lateness, queries that need the order do not get the last ones.
    ends = [Record(0, last_time + 1_000 * (1 + n // 3) + n, ("pad", 1, 1)) for n in range(6)]
    results: list[Result] = []
    start: Offset = reader.initialOffset()

    def read_all() -> int:
        nonlocal start
        count = 0
        while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
            partitions = as_tasks(reader.partitions(start, end))
            count += any(not isinstance(part, InputRows) for part in partitions)
            found: dict[int, list[Result]] = {group: [] for group in kept}
            for group, batches in micro_batches(partitions).items():
                for batch in batches:
                    answer = kept[group].work(batch)
                    found[group] += answer.results
                    assert not answer.stats.get("late")
            results.extend(merge(*found.values(), key=lambda result: (moment(result), result.op != "-")))
            start = end
        return count

    def write(number: int, new_records: Sequence[Record]) -> None:
        with (folder / f"{number}.jsonl").open("ab") as file:
            file.writelines(record_line(record, DIVIDED) + b"\n" for record in new_records)

    while any(remaining):
        for number, part in enumerate(remaining):
            write(number, part[: rates[number]])
            remaining[number] = part[rates[number] :]
        planned += read_all()
    for number, record in enumerate(ends):
        write(number % 3, [record])
    read_all()
    assert planned > 2
    if lateness:  # then results change, which the driver tells
        assert len(results) > 20
        return
    session = Session(replace(job.stream, lateness=0))
    session.add_all(list(plans_of(job).values()))
    expected = session.take(RecordBatch.of(records)) + session.take(RecordBatch.of(ends))
    assert len(expected) > 20
    assert final_versions(results) == final_versions(expected)


def test_rows_made_beside_the_driver_are_divided_among_tasks_of_limited_size(tmp_path: Path) -> None:
    """Spark refuses tasks of more than 128 MB; one micro-batch with very long texts has 40."""
    texts = [random.Random(n).randbytes(10_000_000).hex() for n in range(4)]
    source = tmp_path / "in.jsonl"
    append(source, *({**customer(0, n), "row": {"cid": n, "name": text}} for n, text in enumerate(texts)))
    job = request(source)
    layout = layout_of(job, 1)
    reader = planning_reader(tmp_path / "run", job, layout, first=20)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert max(len(pickle.dumps(partition)) for partition in partitions) < 17 << 20
    ((batch,),) = micro_batches(as_tasks(partitions)).values()
    assert [record.row[1] for record in records_of([batch], layout)] == texts


def test_bad_records_of_parts_are_reported_once(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    for part in range(10):
        append(source, *(order(part, n) for n in range(30)))
        with source.open("ab") as file:
            file.write(b"{nonsense\n")
    job = request(source, on_error=OnError.DEAD_LETTER, dead_letters=tmp_path / "letters.jsonl")
    layout = layout_of(job, 3)
    reader = planning_reader(tmp_path / "run", job, layout, first=40)
    start, bad, letters, reasons = reader.initialOffset(), 0, 0, 0
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        for batches in micro_batches(as_tasks(reader.partitions(start, end))).values():
            for batch in batches:
                bad += batch.head.bad
                letters += len(batch.head.letters)
                reasons += len(batch.head.reasons)
        start = end
    assert (bad, letters, reasons) == (10, 10, 10)


def test_a_bad_record_of_a_part_ends_the_run(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, *(order(n, n) for n in range(100)))
    with source.open("ab") as file:
        file.write(b"{nonsense\n")
    job = request(source)
    reader = planning_reader(tmp_path / "run", job, layout_of(job, 1), first=20)
    start = reader.initialOffset()

    def read_all() -> None:
        nonlocal start
        while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
            micro_batches(as_tasks(reader.partitions(start, end)))
            start = end

    with pytest.raises(BadRecordsError, match=r"in.jsonl:101: "):
        read_all()


def test_no_task_gets_too_many_bytes(tmp_path: Path) -> None:
    """Spark refuses tasks of more than 128 MB."""
    source = tmp_path / "in.jsonl"
    rng = random.Random(1)
    append(source, *(order(n, n, rng.randbytes(500_000).hex()) for n in range(60)))
    job = request(source)
    reader = planning_reader(tmp_path / "run", job, layout_of(job, 1), first=1000, part=1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    partitions = as_tasks(reader.partitions(start, end))
    sizes = [sum(len(blob) for *_, blob in part.rows()) for part in partitions]
    assert sum(sizes) > 24 << 20
    assert len(sizes) > 1
    assert max(sizes) < 17 << 20


@pytest.mark.spark
@pytest.mark.check
def test_a_backlog_on_spark_has_the_results_and_reports_of_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    number, letters = 30_000, tmp_path / "letters.jsonl"
    for name in ("a", "b", "c"):
        with (folder / f"{name}.jsonl").open("ab"):
            pass
    append(folder / "a.jsonl", *(customer(n / 10, n) for n in range(number)))
    for file in ("b", "c"):
        append(
            folder / f"{file}.jsonl",
            *(
                order(n / 10 + 0.05, n, "lamp" if n % 100 == 0 else "pad")
                for n in range(file == "c", number, 2)
            ),
        )
    with (folder / "c.jsonl").open("ab") as c_file:
        c_file.write(b"{nonsense\n{nonsense\n")
    append(folder / "c.jsonl", order(number, 1))
    job = request(folder, on_error=OnError.DEAD_LETTER, dead_letters=letters)
    total = 2 * number + 1
    with running(job, 2) as run:
        run.until(lambda: run.watch.metrics().tuples == total)
        run.until(lambda: run.watch.metrics().bad == 2)
    local_sink = Collected()
    local_job = replace(job, dead_letters=tmp_path / "other.jsonl")
    local_watch = LocalWatch(local_job, [local_sink], Notes().log)
    local_watch.open()
    while local_watch.metrics().tuples < total:
        local_watch.step()
    local_watch.close()
    assert len(run.sink.results) == number // 100
    assert sorted((r.op, r.id) for r in run.sink.results) == sorted((r.op, r.id) for r in local_sink.results)
    assert sum("bad record: " in line for line in run.notes.lines) == 1
    assert letters.read_bytes().count(b"\n") == 2


def test_a_plan_from_the_middle_of_a_row_group_is_read_beside_the_driver(tmp_path: Path) -> None:
    """Tasks read whole row groups; the next ones are read by them again."""
    folder = tmp_path / "in" / "order"
    folder.mkdir(parents=True)
    times = pa.array([n * 1_000_000 for n in range(200)], pa.timestamp("us", "UTC"))
    table = pa.table({"cid": range(200), "item": ["lamp"] * 200, "time": times})
    pq.write_table(table, folder / "rows.parquet", row_group_size=30)
    job = request(tmp_path / "in")
    layout = layout_of(job, 3)
    reader = planning_reader(tmp_path / "run", job, layout, first=20)
    start, records, part_counts = reader.initialOffset(), list[Record](), list[int]()
    restarted = planning_reader(tmp_path / "run", job, layout, first=20)
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        partitions = as_tasks(reader.partitions(start, end))
        read, again = (
            [
                record
                for parts in zip(*micro_batches(each).values(), strict=True)
                for record in records_of(parts, layout)
            ]
            for each in (partitions, as_tasks(restarted.partitions(start, end)))
        )
        assert again == read
        records += read
        part_counts.append(sum(not isinstance(part, InputRows) for part in partitions))
        start = end
    assert [record.row[0] for record in records] == list(range(200))
    assert part_counts[:2] == [0, 0]
    assert max(part_counts) > 1
