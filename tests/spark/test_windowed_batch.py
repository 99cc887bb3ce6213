"""Searches over window expressions on Spark give what the in-process engine gives, record for record."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skws.spark.batch
import skws.spark.windowed
from skws.keywords import parse_query
from skws.plan import Plan
from skws.replay import BadRecordLog, Replay
from skws.spark.windowed import WindowedRun, _cuts
from skws.windowing.engine import WindowedEngine
from tests.replays import write_replay
from tests.spark.test_differential_batch import STREAMS, TABLES, random_stream
from windows.window import ExpressionWindow

pytestmark = pytest.mark.spark


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
    monkeypatch.setattr(skws.spark.batch, "SMALL", 0)
    monkeypatch.setattr(skws.spark.windowed, "_LOOK", 7)
    path = write_replay(tmp_path / "r.jsonl", described, random_stream(described, 3, 500, 7))
    replay = Replay.open(path, described, split_bytes=8_000)
    plan = Plan(described, parse_query("alpha beta -no", described), ExpressionWindow(text), 4)
    engine, log = WindowedEngine.of(plan), BadRecordLog()
    local = [*engine.load_tables(replay.tables(log)), *engine.process_batches(replay.batches(log))]
    cuts = 0

    def counted(*given: object) -> object:
        nonlocal cuts
        found = _cuts(*given)  # type: ignore[arg-type]
        cuts = len(found)
        return found

    monkeypatch.setattr(skws.spark.windowed, "_cuts", counted)
    with WindowedRun(spark, plan, replay) as run:
        distributed = list(run.results())
    assert distributed == local
    assert run.counts == engine.counts
    assert engine.counts.results > 5
    assert engine.counts.deletions
    assert (cuts > 1) == sliced
