"""The Python of the docs, and of the notebook, runs as it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.places import ROOT

PAGE = ROOT / "docs" / "python.md"
ARRIVED = {
    "purchases": {"id": 1, "customer_id": 7, "item": "kettle", "time": "2026-05-04T10:00:00Z"},
    "complaints": {"purchase_id": 1, "body": "It leaks.", "time": "2026-05-04T10:05:00Z"},
}
NOTEBOOK = ROOT / "examples" / "shop" / "shop.ipynb"


@pytest.mark.spark
def test_the_page_runs_on_spark(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder, row in ARRIVED.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.json").write_text(json.dumps(row), encoding="utf-8")
    parts = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {"spark": spark}
    try:
        for block in blocks:
            placed = re.sub(r'"(\w+/)"', rf'"{tmp_path}/\1"', block)  # Java stays in its folder
            exec(compile(placed, str(PAGE), "exec"), names)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", parts)
    printed = capsys.readouterr().out
    assert "customer{byron} - purchase{} - complaint{leaks}" in printed
    assert "+ alert" in printed
    assert names["found"].count() == len(names["results"]) == 1
    (alert,) = spark.read.parquet(str(tmp_path / "alerts")).collect()
    assert (alert.op, alert.network) == ("+", "customer{byron} - purchase{} - complaint{leaks}")
    names["store"](spark.read.parquet(str(tmp_path / "alerts")), 0)  # as Spark does behind a failure
    assert DeltaTable(tmp_path / "delta_alerts").to_pyarrow_table()["id"].to_pylist() == [alert.id]


@pytest.mark.spark
def test_the_notebook_runs_on_spark(spark: SparkSession) -> None:
    assert spark is not None
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, Any] = {}
    for cell in code:
        exec(compile(cell, str(NOTEBOOK), "exec"), names)
    assert names["found"].count() == len(names["results"].to_pandas()) == 1
