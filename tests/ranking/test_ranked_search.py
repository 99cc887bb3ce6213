"""Ranked searches: the Spark job scores and ranks as the engine in one process does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skws.spark.replayed
from skws.formats import BadRecordLog, Replay
from skws.keywords import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.results.model import Result
from skws.spark.batch import BatchRun
from skws.spec.ranking import RankingChoice
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.formats.replays import write_replay
from tests.spark.test_differential_batch import TABLES, random_stream


@pytest.mark.spark
@pytest.mark.parametrize("window", [pytest.param(TimeWindow(40), marks=pytest.mark.slow), CountWindow(25)])
def test_spark_scores_as_one_process_does(
    spark: SparkSession, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skws.spark.replayed, "SMALL", 0)
    plan = Plan(TABLES, parse_query("alpha beta", TABLES), window, 3, ranking=RankingChoice(explain=True))
    path = write_replay(tmp_path / "replay.jsonl", TABLES, random_stream(TABLES, 3, 600, 5))
    replay = Replay.open(path, TABLES, split_bytes=8_000)
    log = BadRecordLog()
    engine = ColumnarEngine.of(plan)
    local = [*engine.load_tables(replay.tables(log)), *engine.process_batches(replay.batches(log))]
    with BatchRun(spark, plan, replay) as run:
        distributed = list(run.results())
        assert run.slicing.slices > 1
        assert run.ended_at == engine.now
    assert any(result.score for result in local)
    assert [r.packed() for r in distributed] == [r.packed() for r in local]


def test_a_packed_result_is_unpacked_whole() -> None:
    plan = Plan(TABLES, parse_query("alpha", TABLES), TimeWindow(40), 2, ranking=RankingChoice(explain=True))
    found = list(ColumnarEngine.of(plan).process(random_stream(TABLES, 1, 60, 3)[5:]))
    assert found
    assert [Result.from_json(result.packed()) for result in found] == found
