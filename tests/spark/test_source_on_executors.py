"""Two executors that read a source have the results of one process, even if one is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import skws
from skws.spark.local_java import LIGHT_JAVA
from tests.jobs.watching import append
from tests.places import ROOT
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.spark

SCHEMA = """
name: traces
window: 1 minute
relations:
  request: {attributes: {trace: integer, path: text}}
  span: {attributes: {trace: integer, body: text}}
joins: [span.trace = request.trace]
"""
SEARCH = """
import sys
from pyspark.sql import SparkSession
import skws.spark
source, schema, folder, java = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.executor.extraJavaOptions", java)
    .getOrCreate()
)
data = skws.spark.Source(source, records=1000)
results = skws.spark.search(spark, data, "checkout timeout", schema=schema, shards=2)
query = (
    results.writeStream.format("parquet").option("path", folder + "/out")
    .option("checkpointLocation", folder + "/checkpoint").start()
)
query.awaitTermination()
"""
EXECUTOR = "CoarseGrainedExecutorBackend"


def records(rng: random.Random, number: int) -> list[dict[str, Any]]:
    rows = []
    for second in range(number):
        relation, column = rng.choice([("request", "path"), ("span", "body")])
        row = {"trace": rng.randrange(20), column: rng.choice(["checkout", "timeout", "else"])}
        rows.append({"relation": relation, "time": 1_700_000_000 + second, "row": row})
    return rows


def children(pid: int) -> list[int]:
    child_ids: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        child_ids.setdefault(parent, []).append(int(stat.parent.name))
    descendants, pending = [], [pid]
    while pending:
        pending += (children_of_process := child_ids.get(pending.pop(), []))
        descendants += children_of_process
    return descendants


def executors(of: int) -> list[int]:
    def is_one(process: int) -> bool:
        try:
            return EXECUTOR in Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            return False

    return list(filter(is_one, children(of)))


def committed_ids(out: Path) -> list[str]:
    """The ids of the results that Spark has committed to its sink."""
    files: list[str] = []
    for log in sorted((out / "_spark_metadata").glob("[0-9]*")):
        lines = log.read_text().splitlines()[1:]
        files += [json.loads(line)["path"].removeprefix("file://") for line in lines]
    rows = ds.dataset(sorted(set(files)), format="parquet").to_table().to_pylist() if files else []
    return sorted(f"{row['op']} {row['id']}" for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_two_executors_read_the_records_of_one_process(tmp_path: Path, killed: bool) -> None:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "in").mkdir()
    rows = records(random.Random(7), 6_000)
    halves = (rows[:3_000], rows[3_000:])
    append(tmp_path / "in" / "0.jsonl", *halves[0])
    append(tmp_path / "all.jsonl", *rows)
    expected = skws.search("checkout timeout", tmp_path / "all.jsonl", schema=SCHEMA)
    ids = sorted(f"+ {one.id}" for one in expected)
    script = tmp_path / "search.py"
    script.write_text(SEARCH)
    arguments = (str(tmp_path / "in"), str(tmp_path / "schema.yaml"), str(tmp_path), LIGHT_JAVA)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        run = subprocess.Popen([sys.executable, str(script), *arguments], cwd=tmp_path, env=env, stderr=file)
    output_path = tmp_path / "out"

    def wait(condition: Callable[[], bool]) -> None:
        def ready() -> bool:
            assert run.poll() is None, errors.read_text()[-3000:]
            return condition()

        until(ready, state=lambda: (len(committed_ids(output_path)), errors.read_text()[-2000:]))

    try:
        wait(lambda: len(committed_ids(output_path)) > 0)
        if killed:
            os.kill(executors(run.pid)[0], signal.SIGKILL)
        append(tmp_path / "in" / "1.jsonl", *halves[1])
        wait(lambda: len(committed_ids(output_path)) >= len(ids))
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(PATIENCE)
    assert len(ids) > 100
    assert committed_ids(output_path) == ids
