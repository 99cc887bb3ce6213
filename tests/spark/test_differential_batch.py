"""The Spark batch job gives what the in-process engine gives, record for record and in the same order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skws.spark.batch
import skws.spark.replayed
from skws.data.record import Record
from skws.formats import BadRecordLog, Replay
from skws.keywords import parse_query
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts
from skws.queries.keywords.engine import Engine
from skws.results.model import Result
from skws.spark.batch import BatchRun
from skws.spark.slices import Slicing, plan_slices
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.formats.replays import write_replay

pytestmark = pytest.mark.spark

ATTRIBUTES = (
    Attribute("t", AttributeType.TEXT),
    Attribute("x", AttributeType.INTEGER),
    Attribute("y", AttributeType.INTEGER),
)
PLAIN = Relation("plain", ATTRIBUTES, search=("t",))
KEYED = Relation("keyed", ATTRIBUTES, key=("x",), search=("t",))
LINK = Relation("link", ATTRIBUTES)
TABLE = Relation("fixed", ATTRIBUTES, search=("t",), table=True)
JOINS = (
    Join("pk", "plain", "keyed", (("x", "x"),)),
    Join("pl", "plain", "link", (("y", "y"),)),
    Join("lk", "link", "keyed", (("x", "y"),)),
    Join("self", "plain", "plain", (("x", "y"),)),
)
STREAMS = Schema("streams", (PLAIN, KEYED, LINK), JOINS)
TABLES = Schema(
    "tables", (PLAIN, KEYED, LINK, TABLE), (*JOINS, Join("ft", "fixed", "plain", (("x", "x"), ("y", "y"))))
)


def random_stream(schema: Schema, seed: int, count: int, values: int) -> list[Record]:
    """Ties, equal rows, NULLs, deletions of known and unknown rows, keyed replacements."""
    rng = random.Random(seed)
    records: list[Record] = []
    time = 1_000_000
    for _ in range(count):
        time += rng.choice([0, 0, 1, 1, 2, 3])
        relation = rng.randrange(len(schema.relations))
        table = schema.relations[relation].table
        if records and not table and rng.random() < 0.2:
            again = rng.choice(records[-30:])
            if not schema.relations[again.relation].table:
                records.append(again._replace(time=time, delete=rng.random() < 0.7))
                continue
        records.append(Record(relation, 0 if table else time, random_row(rng, values)))
    return records


def random_row(rng: random.Random, values: int) -> Row:
    words = [word for word in ("alpha", "beta", "no") if rng.random() < 0.3]
    numbers = [rng.choice([None, *range(values)]) if rng.random() < 0.9 else None for _ in range(2)]
    return (" ".join([*words, "pad"]), *numbers)


def both(
    spark: SparkSession, plan: Plan, path: Path
) -> tuple[list[Result], Counts, list[Result], Counts, Slicing]:
    replay = Replay.open(path, plan.schema, split_bytes=8_000)
    log = BadRecordLog()
    engine = Engine(plan)
    local = [*engine.load_tables(replay.tables(log)), *engine.process(replay.stream(log))]
    with BatchRun(spark, plan, replay) as run:
        assert list(run.bad_records()) == []
        distributed = list(run.results())
        return local, engine.counts, distributed, run.counts, run.slicing


@pytest.fixture
def shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and shards even for little."""
    monkeypatch.setattr(skws.spark.replayed, "SMALL", 0)


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize(
    "window",
    [
        TimeWindow(12),
        CountWindow(9),
        Unbounded(),
        *(pytest.param(long, marks=pytest.mark.slow) for long in (TimeWindow(60), CountWindow(40))),
    ],
)
@pytest.mark.parametrize("schema", [STREAMS, TABLES], ids=["streams", "tables"])
def test_equal_record_for_record(spark: SparkSession, tmp_path: Path, schema: Schema, window: Window) -> None:
    stream = random_stream(schema, seed=len(schema.relations), count=400, values=7)
    path = write_replay(tmp_path / "r.jsonl", schema, stream)
    plan = Plan(schema, parse_query("alpha beta -no", schema), window, 4)
    local, counts, distributed, spark_counts, slicing = both(spark, plan, path)
    assert distributed == local
    assert spark_counts == counts
    assert counts.results > 20
    assert counts.retractions > 0
    if not isinstance(window, Unbounded):
        assert slicing.slices > 3


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize("window", [TimeWindow(25), CountWindow(40)])
def test_keywords_in_order(spark: SparkSession, tmp_path: Path, window: Window) -> None:
    path = write_replay(tmp_path / "r.jsonl", TABLES, random_stream(TABLES, 5, 400, 5))
    plan = Plan(TABLES, parse_query("beta ; alpha", TABLES), window, 4)
    local, counts, distributed, spark_counts, _ = both(spark, plan, path)
    assert distributed == local
    assert spark_counts == counts
    assert counts.results > 20


@pytest.mark.usefixtures("shared_out")
def test_without_a_relation(spark: SparkSession, tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", TABLES, random_stream(TABLES, 5, 400, 5))
    plan = Plan(TABLES, parse_query("alpha beta -keyed:", TABLES), TimeWindow(40), 4)
    local, counts, distributed, spark_counts, _ = both(spark, plan, path)
    assert distributed == local
    assert spark_counts == counts
    assert counts.results > 20
    assert not any(member.relation == "keyed" for result in local for member in result.tuples)


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize("slices", [1, 5, 30])
def test_slicing_does_not_change_results(
    spark: SparkSession, tmp_path: Path, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 7, 200, 5))
    plan = Plan(STREAMS, parse_query("alpha beta", STREAMS), TimeWindow(30), 3)

    def cut(window: Window, ticks: list[int], cores: int) -> Slicing:
        step = max(1, len(ticks) // slices)
        return Slicing(tuple(sorted(set(ticks[step::step]))), 3)

    monkeypatch.setattr(skws.spark.batch, "plan_slices", cut)
    local, _, distributed, _, _ = both(spark, plan, path)
    assert distributed == local


def test_little_is_run_in_one_piece(spark: SparkSession, tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", TABLES, random_stream(TABLES, 3, 200, 5))
    plan = Plan(TABLES, parse_query("alpha beta", TABLES), TimeWindow(30), 3)
    local, _, distributed, _, slicing = both(spark, plan, path)
    assert distributed == local
    assert (slicing.slices, slicing.shards) == (1, 1)


@pytest.mark.parametrize("content", ["", "one"])
def test_empty_and_single(spark: SparkSession, tmp_path: Path, content: str) -> None:
    stream = [Record(0, 5, ("alpha beta", 1, 1))] if content else []
    path = write_replay(tmp_path / "r.jsonl", STREAMS, stream)
    plan = Plan(STREAMS, parse_query("alpha beta", STREAMS), TimeWindow(30))
    local, _, distributed, _, _ = both(spark, plan, path)
    assert distributed == local
    assert len(local) == len(stream)


def test_limit_gives_the_first_results(spark: SparkSession, tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 7, 200, 3))
    plan = Plan(STREAMS, parse_query("alpha beta", STREAMS), TimeWindow(30), 3)
    replay = Replay.open(path, STREAMS)
    with BatchRun(spark, plan, replay) as run:
        everything = list(run.results())
    with BatchRun(spark, plan, replay) as run:
        assert list(run.results(limit=5)) == everything[:5]


def test_bad_records_come_in_order_with_their_place(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    good = b'{"relation": "plain", "time": 1, "row": {"t": "alpha", "x": 1, "y": 2}}\n'
    path.write_bytes(good * 50 + b"{nonsense\n" + good * 50 + b"\xff\xfe\n" + good)
    replay = Replay.open(path, STREAMS, split_bytes=500)
    plan = Plan(STREAMS, parse_query("alpha", STREAMS), TimeWindow(30))
    with BatchRun(spark, plan, replay) as run:
        assert [(b.line, b.raw.strip()) for b in run.bad_records()] == [
            (51, b"{nonsense"),
            (102, b"\xff\xfe"),
        ]
        assert len(list(run.results())) == 101


@pytest.mark.parametrize(
    ("window", "slices", "shards"),
    [(TimeWindow(10), 8, 1), (TimeWindow(400), 2, 1), (TimeWindow(5000), 1, 2), (Unbounded(), 1, 2)],
)
def test_plan_of_slices(window: Window, slices: int, shards: int) -> None:
    slicing = plan_slices(window, list(range(1001)), cores=2)
    assert (slicing.slices, slicing.shards) == (slices, shards)


def test_nothing_is_kept_twice_nor_counted_in_more_parts_than_cores(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By Spark's own setting a count has 200 parts, which takes seconds."""
    write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 300, 4))
    plan = Plan(STREAMS, parse_query("alpha beta", STREAMS), TimeWindow(12), 4)
    spark.conf.unset("spark.sql.shuffle.partitions")
    context = spark.sparkContext
    kept = context._jsc.getPersistentRDDs().size()
    context.setJobGroup("count", "")
    with BatchRun(spark, plan, Replay.open(tmp_path / "r.jsonl", STREAMS)) as run:
        assert list(run.bad_records()) == []
        assert run.counts.tuples
        context.setJobGroup("results", "")
        results = run.results()
        assert next(results)
        # The records as decoded, and the results until they are read.
        assert context._jsc.getPersistentRDDs().size() - kept == 2
        results.close()  # type: ignore[attr-defined]
    told = context.statusTracker()
    jobs = [told.getJobInfo(job) for job in told.getJobIdsForGroup("count")]
    stages = [told.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert stages
    assert max(stage.numTasks for stage in stages if stage) <= context.defaultParallelism
