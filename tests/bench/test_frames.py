"""Streaming DataFrames are measured beside a search in process that finds as much."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.frames import in_process, on_spark, searched, write


@pytest.mark.spark
@pytest.mark.parametrize("form", ["relations", "records"])
def test_both_find_the_same(tmp_path: Path, spark_two: SparkSession, form: str) -> None:
    assert write(tmp_path, 0.05, 2) == 3_600
    seconds, found = in_process(tmp_path)
    batches, on_two = searched(spark_two, tmp_path, form, 2)
    assert found == on_two > 0 < seconds
    assert len(batches) == 2


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, 0.05, 2)
    batches, found = on_spark(tmp_path, "records", 2, 2)
    assert (len(batches), found) == (2, in_process(tmp_path)[1])
