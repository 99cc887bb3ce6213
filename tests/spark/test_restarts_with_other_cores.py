"""Starts with one, two and four cores together have the results of one process over the whole stream."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import skws
from tests.jobs.watching import append, lines
from tests.places import ROOT
from tests.spark.test_source_on_executors import SCHEMA, records
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = "checkout timeout"
CORES = (1, 2, 4)
SEARCH = """
import sys
from pyspark.sql import SparkSession
import skws.spark
cores, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
source = skws.spark.Source(folder + "/in", records=400)
results = skws.spark.search(spark, source, "checkout timeout", schema=folder + "/schema.yaml")
query = (
    results.writeStream.format("parquet").option("path", folder + "/out")
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
"""


class Starts:
    """A stream that arrives in as many parts as there are starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "schema.yaml").write_text(SCHEMA)
        self._rows = records(random.Random(11), 300 * len(CORES))

    def add_part(self) -> list[str]:
        """Add the next part; returns the ids of all results so far."""
        part, self._rows = self._rows[:300], self._rows[300:]
        append(self.folder / "in" / "0.jsonl", *part)
        results = skws.search(QUERY, self.folder / "in" / "0.jsonl", schema=SCHEMA)
        return sorted(one.id for one in results)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[Any]:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **environment}
        with (self.folder / "errors").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, *command], cwd=self.folder, env=env, stdout=errors, stderr=errors
            )

    def errors(self) -> str:
        return (self.folder / "errors").read_text()


def test_the_library_with_one_two_and_four_cores(tmp_path: Path) -> None:
    starts = Starts(tmp_path)
    (tmp_path / "search.py").write_text(SEARCH)
    expected: list[str] = []
    for cores in CORES:
        expected = starts.add_part()
        process = starts.start("search.py", str(cores), str(tmp_path))
        assert process.wait(PATIENCE) == 0, starts.errors()
    files = [str(one) for one in (tmp_path / "out").glob("*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table().to_pylist()
    assert {row["op"] for row in rows} == {"+"}
    assert sorted(row["id"] for row in rows) == expected
    assert len(expected) > 20


def test_a_live_job_with_one_two_and_four_cores(tmp_path: Path) -> None:
    """With as many shards as cores, so the state moves."""
    starts = Starts(tmp_path)
    output_path = tmp_path / "out.jsonl"
    expected: list[str] = []
    for cores in CORES:
        expected = starts.add_part()
        process = starts.start(
            *("-m", "skws", "watch", *QUERY.split(), "--engine", "spark", "--master", f"local[{cores},4]"),
            *("--schema", "schema.yaml", "--source", "in", "--checkpoint", "checkpoint"),
            *("--sink", f"jsonl:{output_path}"),
            PYSPARK_SUBMIT_ARGS=f"--conf spark.skws.shards={cores} pyspark-shell",
        )
        try:
            until(lambda: count_results(output_path) >= len(expected), state=starts.errors)  # noqa: B023 - called in this iteration only
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
    assert sorted(row["id"] for row in lines(output_path)) == expected
    assert len(expected) > 20


def count_results(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0
