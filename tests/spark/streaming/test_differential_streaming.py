"""The streaming job has the same results as the in-process loop."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from skws.data.batch import Record
from skws.spark.streaming.layout import keys_for, spark_hash
from skws.spec.job import Job
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.formats.replays import write_replay
from tests.jobs.watching import Collected, opened, steps
from tests.spark.streaming.spark_runs import running
from tests.spark.streaming.test_oracle_shards import SCHEMA, random_records, random_row

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


NAME = SCHEMA.relations[0].name


def write_stream(folder: Path, seed: int) -> str:
    rng = random.Random(seed)
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    write_replay(folder / "r.jsonl", SCHEMA, [*tables, *random_records(rng, 300)])
    return f"replay:{folder / 'r.jsonl'}?speed=1000000"


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "window"), [(1, CountWindow(30)), (2, TimeWindow(30))])
def test_a_replay_has_the_results_of_one_process(tmp_path: Path, shards: int, window: Window) -> None:
    query = f"alhpa~ (b*ta OR !{NAME}.x=1) {NAME}.y!=2"
    queries = {"a": "alpha beta -no", "b": "alpha", "c": query}
    job = Job(queries, SCHEMA, write_stream(tmp_path, 3), window=window, max_size=4)
    local_sink = Collected()
    watch = opened(job, local_sink)
    steps(watch)
    watch.close()
    with running(job, shards) as run:
        run.end()
    assert run.watch.ended
    assert len(local_sink.results) > 100
    assert sorted(r.to_json() for r in run.sink.results) == sorted(r.to_json() for r in local_sink.results)
    metrics, local_metrics = run.watch.metrics(), watch.metrics()
    assert (metrics.tuples, metrics.deletions, metrics.results, metrics.retractions) == (
        local_metrics.tuples,
        local_metrics.deletions,
        local_metrics.results,
        local_metrics.retractions,
    )
    assert metrics.relations[0].tuples == local_metrics.relations[0].tuples
    assert metrics.event_time == local_metrics.event_time


def test_each_shard_key_belongs_to_a_separate_partition(spark: SparkSession) -> None:
    keys = [0, 1, 7, 255, 12345, 1 << 30]
    frame = spark.createDataFrame([(key,) for key in keys], "key int")
    assert [row[0] for row in frame.select(sf.hash("key")).collect()] == [spark_hash(key) for key in keys]
    for shards in (1, 2, 3, 8, 64):
        assert [spark_hash(key) % shards for key in keys_for(shards)] == list(range(shards))
