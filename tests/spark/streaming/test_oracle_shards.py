"""Shards give together what one engine gives, also after losing their meshes."""

from __future__ import annotations

import random

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.jobs.control import Command
from skws.jobs.journal import Entry
from skws.jobs.worker import Worker
from skws.queries.kinds import checked
from skws.queries.partitioning import Partitioning
from skws.queries.stream_state import LoggedBatch
from skws.results.model import LiveResult
from skws.spec.job import Job
from skws.spec.query import PATTERN, Query
from skws_schema.model import Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.queries.counted import counted
from tests.spark.streaming.shard_runs import all_shards, lines, micro_batch_of
from tests.strategies import COLUMNS, seeds


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch)


SCHEMA = Schema(
    "streams",
    (
        Relation("plain", COLUMNS, search=("t",)),
        Relation("keyed", COLUMNS, key=("x",), search=("t",)),
        Relation("link", COLUMNS),
        Relation("fixed", COLUMNS, search=("t",), table=True),
    ),
    (
        Join("pk", "plain", "keyed", (("x", "x"),)),
        Join("pl", "plain", "link", (("y", "y"),)),
        Join("lk", "link", "keyed", (("x", "y"),)),
        Join("self", "plain", "plain", (("x", "y"),)),
        Join("ft", "fixed", "plain", (("x", "x"),)),
    ),
)
PAIRS = "plain p AND link l where p.y = l.y within 8 us"  # the log goes back so far
WINDOWS = [TimeWindow(12), TimeWindow(60), CountWindow(9), CountWindow(40), Unbounded()]


def random_records(rng: random.Random, count: int, values: int = 5) -> list[Record]:
    """Ties, equal rows, NULLs, deletions of known and unknown rows, keyed replacements."""
    records: list[Record] = []
    time = 1_000_000
    for _ in range(count):
        time += rng.choice([0, 0, 1, 1, 2, 3])
        if records and rng.random() < 0.2:
            again = rng.choice(records[-30:])
            records.append(again._replace(time=time, delete=rng.random() < 0.7))
            continue
        records.append(Record(rng.randrange(3), time, random_row(rng, values)))
    return records


def random_row(rng: random.Random, values: int) -> tuple[str, int | None, int | None]:
    words = [word for word in ("alpha", "beta", "no") if rng.random() < 0.4]
    numbers = [rng.choice([None, *range(values)]) for _ in range(2)]
    return " ".join([*words, "pad"]), numbers[0], numbers[1]


def shuffled(rng: random.Random, records: list[Record], most: int) -> list[Record]:
    """Out of order by no more than ``most`` microseconds."""
    return sorted(records, key=lambda record: record.time + rng.uniform(0, most))


def cut(rng: random.Random, records: list[Record]) -> list[list[Record]]:
    batches: list[list[Record]] = []
    rest = records
    while rest:
        size = rng.randrange(1, 25)
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def compare(
    request: Job, records: list[Record], seed: int, shards: int, spread: Partitioning = Partitioning.ROOTS
) -> tuple[int, int]:
    """Hold shards against one worker, batch by batch; gives how many results and retractions there were."""
    rng = random.Random(seed)
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    log: list[LoggedBatch] = []
    one, several = Worker(request, lambda _: log), all_shards(request, shards, spread)
    one.load_tables(tables)
    first = [Command.adding(one) for one in checked(request).values()]
    found: list[LiveResult] = []
    for number, batch in enumerate(cut(rng, records)):
        commands = first if not number else []
        if number == 5:
            commands = [Command("add", "late", "beta -no")]
        if number == 7:
            commands = [Command("add", "pairs", PAIRS, kind=PATTERN)]
        if number == 9:
            commands = [Command("remove", "late"), Command("add", "later", "alpha", 2)]
        before = one.live.position, one.live.now
        outcome = one.work(Entry(number + 1, {}, 0, tuple(commands), RecordBatch.of(batch)))
        log.append(LoggedBatch(*before, RecordBatch.of(batch)))
        micro_batch = micro_batch_of(batch, commands, () if number else tables)
        results: list[LiveResult] = []
        for kept in several:
            if rng.random() < 0.3:
                kept.rebuild()
            worked = kept.work(micro_batch)
            results += worked.results
            if kept.share.first:
                assert worked.stats["late"] == len(outcome.late)
        assert lines(results) == lines(outcome.results), number
        found += results
    return sum(r.op == "+" for r in found), sum(r.op == "-" for r in found)


def request(window: Window, lateness: int = 0) -> Job:
    return Job(
        {
            "a": "alpha beta -no",
            "b": "alpha",
            "root": Query("plain p ; keyed k where p.x = k.x", kind=PATTERN),
            "none": Query("keyed k ; link l where k.y = l.x within 9 us", kind=PATTERN),
            "fifth": Query("5", kind="counted"),
        },
        SCHEMA,
        "nowhere",
        window=window,
        max_size=4,
        lateness=lateness,
        force_unbounded=True,
    )


@pytest.mark.parametrize("shards", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("window", WINDOWS)
@seeds(1, 3)
def test_shards_give_what_one_engine_gives(window: Window, shards: int, seed: int) -> None:
    records = random_records(random.Random(seed), 300)
    results, retractions = compare(request(window), records, seed, shards)
    assert results > 20
    assert retractions > 0


@seeds(1, 3)
def test_shards_that_divide_queries(seed: int) -> None:
    records = random_records(random.Random(seed), 300)
    results, _ = compare(request(TimeWindow(30)), records, seed, 3, Partitioning.QUERIES)
    assert results > 20


@seeds(1, 4)
def test_records_out_of_order(seed: int) -> None:
    rng = random.Random(seed)
    records = shuffled(rng, random_records(rng, 300), 8)
    results, _ = compare(request(TimeWindow(30), lateness=5), records, seed, 2)
    assert results > 20


@pytest.mark.parametrize("window", [TimeWindow(12), CountWindow(9)])
@seeds(1, 4)
def test_equal_rows_that_queue(window: Window, seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng, 2) for _ in range(3)] + [("alpha pad", 1, 1), ("beta pad", 1, 1)]
    records, time = [], 1_000_000
    for _ in range(300):
        time += rng.choice([0, 1, 1, 2, 3])
        records.append(Record(rng.randrange(3), time, rng.choice(rows), rng.random() < 0.4))
    results, retractions = compare(request(window), records, seed, 2)
    assert results > 20
    assert retractions > 0


def test_the_log_forgets_what_is_over() -> None:
    kept = all_shards(request(TimeWindow(10)), 1)[0]
    kept.work(micro_batch_of((), [Command("add", "a", "alpha")]))
    for time in range(0, 200, 2):
        kept.work(micro_batch_of([Record(0, time, ("alpha", 1, 1))]))
    assert [chunk.latest for chunk, _ in kept.chunks.values()] == list(range(178, 200, 2))


def test_without_a_window_the_log_keeps_everything_and_tells_its_size() -> None:
    kept = all_shards(request(Unbounded()), 1)[0]
    for time in range(50):
        worked = kept.work(micro_batch_of([Record(0, time, ("alpha", 1, 1))]))
    assert len(kept.chunks) == 50
    size = sum(len(records) for _, records in kept.chunks.values())
    assert worked.stats["log_bytes"] == size > 0
    kept.rebuild()
    worked = kept.work(micro_batch_of([]))
    assert worked.stats["log_bytes"] == size
