"""Searches over window expressions on Spark give what the in-process engine gives, record for record."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

import skws.spark.replayed
import skws.spark.window_cuts
import skws.spark.windowed
import skws.spark.windowed_patterns
from skws.formats import BadRecordLog, Replay
from skws.keywords import parse_query
from skws.keywords.plan import Plan
from skws.queries.windowed.engine import WindowedEngine
from skws.search import Search
from skws.spark.window_cuts import Cut, find_cuts
from skws.spark.windowed import WindowedRun
from skws.spark.windowed_patterns import WindowedPatternBatch
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import Query
from skws.spec.ranking import RankingChoice
from skws_schema.model import Schema
from skws_windows.window import ExpressionWindow
from tests.formats.replays import write_replay
from tests.spark.test_differential_batch import STREAMS, TABLES, random_stream

pytestmark = pytest.mark.spark


def watched_cuts(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[Cut]:
    """The cuts that a job will be found to have made."""
    cuts: list[Cut] = []

    def watched(ticked: DataFrame, schema: Schema, window: ExpressionWindow, least: int) -> list[Cut]:
        cuts[:] = find_cuts(ticked, schema, window, least)
        return cuts

    monkeypatch.setattr(module, "find_cuts", watched)
    return cuts


@pytest.mark.parametrize(
    ("schema", "text", "sliced"),
    [
        (STREAMS, "open when x > 4 and plain close when time - time[-1] > 2 us", True),
        (TABLES, "open when x > 4 close when x < 2", True),
        (STREAMS, "longest match [plain] .* [keyed] within 60 us per x", False),
    ],
    ids=["first", "tables", "per key"],
)
def test_equal_record_for_record(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    schema: object,
    text: str,
    sliced: bool,
) -> None:
    assert schema in (STREAMS, TABLES)
    described = STREAMS if schema is STREAMS else TABLES
    monkeypatch.setattr(skws.spark.replayed, "SMALL", 0)
    monkeypatch.setattr(skws.spark.window_cuts, "_LOOK", 7)
    path = write_replay(tmp_path / "r.jsonl", described, random_stream(described, 3, 500, 7))
    replay = Replay.open(path, described, split_bytes=8_000)
    query, ranking = parse_query("alpha beta -no", described), RankingChoice(half_life=60, explain=True)
    plan = Plan(described, query, ExpressionWindow(text), 4, ranking=ranking)
    engine, log = WindowedEngine.of(plan), BadRecordLog()
    local = [*engine.load_tables(replay.tables(log)), *engine.process_batches(replay.batches(log))]
    cuts = watched_cuts(monkeypatch, skws.spark.windowed)
    with WindowedRun(spark, plan, replay) as run:
        distributed = list(run.results())
    assert distributed == local
    assert run.counts == engine.counts
    assert engine.counts.results > 5
    assert engine.counts.deletions
    assert (len(cuts) > 1) == sliced


def test_tables_alone(spark: SparkSession, tmp_path: Path) -> None:
    rows = [record for record in random_stream(TABLES, 3, 60, 7) if TABLES.relations[record.relation].table]
    replay = Replay.open(write_replay(tmp_path / "r.jsonl", TABLES, rows), TABLES)
    plan = Plan(TABLES, parse_query("alpha", TABLES), ExpressionWindow("open when x > 4 close when x < 2"), 4)
    engine, log = WindowedEngine.of(plan), BadRecordLog()
    local = list(engine.load_tables(replay.tables(log)))
    with WindowedRun(spark, plan, replay) as run:
        assert list(run.results()) == local
    assert run.counts == engine.counts
    assert local


@pytest.mark.parametrize(
    ("pattern", "text", "sliced"),
    [
        ("plain p ; keyed k", "open when x > 4 and plain close when x = 0", True),
        ("plain p AND keyed k", "every match [x = 1] .* [keyed] at most 20 records per y", False),
    ],
    ids=["first", "per key"],
)
def test_patterns_equal_record_for_record(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pattern: str,
    text: str,
    sliced: bool,
) -> None:
    monkeypatch.setattr(skws.spark.replayed, "SMALL", 0)
    monkeypatch.setattr(skws.spark.window_cuts, "_LOOK", 7)
    window = ExpressionWindow(text)
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 400, 7))
    search = Search(
        Job.search(Query.of_pattern(pattern), STREAMS, path, window=window, engine=EngineName.LOCAL)
    )
    local = list(search.results())
    cuts = watched_cuts(monkeypatch, skws.spark.windowed_patterns)
    replay = Replay.open(path, STREAMS, split_bytes=8_000)
    with WindowedPatternBatch(spark, pattern, STREAMS, window, replay) as run:
        distributed = list(run.results())
        assert run.count() == len(local)
        assert (run.counts.tuples, run.counts.deletions) == (search.counts.tuples, search.counts.deletions)
    assert distributed == local
    assert len(local) > 20
    assert any(len({member.relation for member in result.tuples}) > 1 for result in local)
    assert (len(cuts) > 1) == sliced
