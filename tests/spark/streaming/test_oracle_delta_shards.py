"""Shards that answer queries by delta joins give what one process gives by meshes, record for record."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.jobs.control import Command
from skws.jobs.journal import Entry
from skws.jobs.worker import Worker
from skws.queries.keywords import operator
from skws.queries.keywords.shared_queries import SharedQueries
from skws.queries.partitioning import Partitioning
from skws.queries.stream_state import LoggedBatch
from skws.spark.streaming.layout import Wanted
from skws.spec.enums import EvaluatorName
from skws.spec.job import Job
from skws.spec.query import Query
from skws_mesh.delta import path_joins
from skws_schema.model import Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.spark.streaming.shard_runs import lines
from tests.spark.streaming.test_oracle_moving import SCHEMA as DIVIDED
from tests.spark.streaming.test_oracle_moving import Moving
from tests.spark.streaming.test_oracle_shards import SCHEMA, cut, random_records, random_row, shuffled
from tests.strategies import seeds

WORDS = ("alpha", "beta", "no", "pad", "(alpha OR no)", "al*", "alhpa~")
LIMITS = ("", " -no", " -beta", " plain.x<3", " -keyed.y:0..1", " -link:", " -(no OR plain.y=2)")
MESHED = ("alpha ; beta", "alpha !plain.x=1")
"""Queries that stay with a mesh of their own, next to the others."""
FEW = 5  # queries that are many enough for delta joins, where a test says so


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many queries each batch of tuples met the delta joins."""
    met: list[int] = []
    insert = SharedQueries.insert

    def counting(self: SharedQueries, *given: object) -> object:
        met.append(len(self))
        return insert(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(SharedQueries, "insert", counting)
    return met


def random_query(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return rng.choice(MESHED)
    words = rng.sample(WORDS, rng.choice([1, 2, 2, 2, 3, 4]))
    # A query may not exclude the very word that it asks for.
    return " ".join(words) + rng.choice([each for each in LIMITS if each[2:] not in words])


def changes(rng: random.Random, job: Job, standing: dict[str, Query], most: int) -> list[Command]:
    """Random queries come and go; there are about ``most``, sometimes none."""
    gone = [name for name in standing if rng.random() < len(standing) / most / 4]
    if rng.random() < 0.05:
        gone = list(standing)
    commands = [Command("remove", name) for name in gone]
    for name in gone:
        del standing[name]
    for _ in range(rng.randrange(4) if len(standing) < most else 0):
        name = f"q{rng.randrange(10_000)}"
        if name not in standing:
            commands.append(Command("add", name, random_query(rng)))
            standing[name] = job.standing(name, commands[-1].asked)
    return commands


def compare(
    job: Job,
    records: list[Record],
    seed: int,
    wanted: Callable[[random.Random], Wanted],
    shards_at_work: Callable[[], AbstractContextManager[object]] = nullcontext,
    theirs: Job | None = None,
) -> tuple[int, int, set[Partitioning]]:
    """Hold shards against one process; gives results, retractions, and the layouts that there were.

    ``theirs``: the job as the shards have it. ``wanted``: the next layout. ``shards_at_work`` holds while
    they work.
    """
    rng = random.Random(seed)
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    log: list[LoggedBatch] = []
    one, several = Worker(job, lambda _: log), Moving(theirs or job, job.lateness or 0)
    one.load_tables(tables)
    standing: dict[str, Query] = {}
    results, retractions, spreads = 0, 0, set()
    batches = cut(rng, records)
    for number, batch in enumerate(batches):
        commands = changes(rng, job, standing, 3 * FEW)
        layout = several.layout
        if number and (number == 1 or rng.random() < 0.2):
            want = wanted(rng)
            layout = want.layout(list(standing.values()), job.stream, job.plan_window, layout, number)
        ended = number == len(batches) - 1
        before = one.live.position, one.live.now
        entry = Entry(number + 1, {}, 0, tuple(commands), RecordBatch.of(batch), ended=ended)
        outcome = one.work(entry)
        log.append(LoggedBatch(*before, RecordBatch.of(batch)))
        with shards_at_work():
            if layout != several.layout:
                several.move(layout)
            for shard in several.shards.values():
                if rng.random() < 0.2:
                    shard.rebuild()
            found, late = several.work(batch, commands, [] if number else tables, ended=ended)
        assert late == len(outcome.late), number
        assert lines(found) == lines(outcome.results), number
        spreads.add(several.layout.spread)
        results += sum(each.op == "+" for each in outcome.results)
        retractions += sum(each.op == "-" for each in outcome.results)
    return results, retractions, spreads


def asked(window: Window, schema: Schema = SCHEMA, lateness: int = 0) -> Job:
    return Job({}, schema, "nowhere", window=window, max_size=4, lateness=lateness, force_unbounded=True)


def by_delta_joins(job: Job) -> Job:
    return replace(job, evaluator=EvaluatorName.DELTA)


@pytest.mark.parametrize("window", [TimeWindow(30), CountWindow(20), Unbounded()])
@pytest.mark.parametrize("values", [2, 5], ids=["hubs", "spread"])
@seeds(1, 3)
def test_queries_divided_over_shards(
    window: Window, values: int, seed: int, joined: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where join values are few, a tuple has many neighbours."""
    if values == 2:
        monkeypatch.setattr(path_joins, "HUB", 8)  # pairs of walks, of which there are far more
    job = asked(window)
    few = values == 2 or isinstance(window, Unbounded)
    records = random_records(random.Random(seed), 120 if few else 300, values)
    results, retractions, spreads = compare(
        job, records, seed, lambda _: Wanted(3, Partitioning.QUERIES), theirs=by_delta_joins(job)
    )
    assert results > 100
    assert retractions > 0
    assert Partitioning.QUERIES in spreads
    assert max(joined) > 1


@seeds(1, 3)
def test_tuples_divided_by_key(seed: int, joined: list[int]) -> None:
    job = asked(TimeWindow(30), DIVIDED)
    results, retractions, spreads = compare(
        job,
        random_records(random.Random(seed), 300),
        seed,
        lambda _: Wanted(3, Partitioning.KEYS),
        theirs=by_delta_joins(job),
    )
    assert results > 100
    assert retractions > 0
    assert Partitioning.KEYS in spreads
    assert max(joined) > FEW


@seeds(2, 4)
def test_layouts_that_change_and_records_out_of_order(seed: int, joined: list[int]) -> None:
    """Shards that divide roots have meshes; their queries move to delta joins and back."""
    rng = random.Random(seed)
    job = asked(TimeWindow(30), DIVIDED, 5)
    layouts = [Wanted(1), *(Wanted(shards, spread) for shards in (2, 3) for spread in Partitioning)]
    results, retractions, spreads = compare(
        job,
        shuffled(rng, random_records(rng, 400), 9),
        seed,
        lambda rng: rng.choice(layouts),
        theirs=by_delta_joins(job),
    )
    assert results > 100
    assert retractions > 0
    assert spreads == set(Partitioning)
    assert max(joined) > FEW


@pytest.mark.parametrize("window", [TimeWindow(30), CountWindow(20)])
@seeds(1, 3)
def test_queries_become_many_and_few_again(
    window: Window, seed: int, joined: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard chooses by its own number of queries; rebuilt, it may choose otherwise than before."""

    @contextmanager
    def few_are_many() -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(operator, "MANY", FEW)
            yield

    layouts = [Wanted(1), Wanted(2, Partitioning.QUERIES), Wanted(3, Partitioning.QUERIES)]
    results, retractions, _ = compare(
        asked(window),
        random_records(random.Random(seed), 300),
        seed,
        lambda rng: rng.choice(layouts),
        shards_at_work=few_are_many,
    )
    assert results > 100
    assert retractions > 0
    assert max(joined) >= FEW
