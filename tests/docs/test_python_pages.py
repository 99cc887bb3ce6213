"""The Python code of the docs and the notebooks runs as written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import skws
from tests.conftest import partitioned
from tests.kafka import MockBroker
from tests.places import ROOT

pytestmark = pytest.mark.check

PAGE = ROOT / "docs" / "python.md"
ARRIVALS = {
    "purchases": {"id": 1, "customer_id": 7, "item": "kettle", "time": "2026-05-04T10:00:00Z"},
    "complaints": {"purchase_id": 1, "body": "It leaks.", "time": "2026-05-04T10:05:00Z"},
}
NOTEBOOK = ROOT / "examples" / "shop" / "shop.ipynb"
ALERTS = ROOT / "examples" / "shop" / "alerts.ipynb"


@pytest.mark.spark
def test_the_python_page_runs_on_spark(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder, row in ARRIVALS.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.json").write_text(json.dumps(row), encoding="utf-8")
    parts = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {"spark": spark}
    try:
        for block in blocks:
            code = re.sub(r'"(\w+/)"', rf'"{tmp_path}/\1"', block)  # the JVM does not change its folder
            exec(compile(code, str(PAGE), "exec"), names)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", parts)
    output = capsys.readouterr().out
    assert "customer{byron} - purchase{} - complaint{leaks}" in output
    assert "+ alert" in output
    assert names["matches"].count() == len(names["results"]) == 1
    (alert,) = spark.read.parquet(str(tmp_path / "alerts")).collect()
    assert (alert.op, alert.network) == ("+", "customer{byron} - purchase{} - complaint{leaks}")
    names["store"](spark.read.parquet(str(tmp_path / "alerts")), 0)  # as Spark does after a failure
    assert DeltaTable(tmp_path / "delta_alerts").to_pyarrow_table()["id"].to_pylist() == [alert.id]


@pytest.mark.spark
def test_the_notebook_runs_on_spark(spark: SparkSession) -> None:
    assert spark is not None
    names: dict[str, Any] = {}
    for cell in code_cells(NOTEBOOK):
        exec(compile(cell, str(NOTEBOOK), "exec"), names)
    assert names["found"].count() == len(names["results"].to_pandas()) == 1


def code_cells(notebook: Path) -> list[str]:
    """The code of a notebook, which is stored without outputs."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


Alert = tuple[str, str, str]
"""The name, op and id of an alert."""


def run_alerts(
    spark: SparkSession, code: list[str], after_cell: Callable[[dict[str, Any]], None] = lambda _: None
) -> list[list[Alert]]:
    """Runs the cells; returns the rows of the table after each start of the query.

    ``after_cell`` is called after each cell with the variables of the notebook.
    """
    names: dict[str, Any] = {}
    tables: list[list[Alert]] = []
    try:
        with partitioned(spark, 2):
            for cell in code:
                exec(compile(cell, str(ALERTS), "exec"), names)
                after_cell(names)
                if "processAllAvailable()" in cell:
                    rows = spark.read.parquet(f"{names['folder']}/alerts").select("name", "op", "id")
                    tables.append(sorted(map(tuple, rows.collect())))
                    assert tables[-1] == in_process(names)
    finally:
        for query in spark.streams.active:
            query.stop()
        if "folder" in names:
            shutil.rmtree(names["folder"])
    return tables


def in_process(names: dict[str, Any]) -> list[Alert]:
    """The alerts that a search in one process finds in the same records, sorted by time."""
    lines = [
        line for file in (names["folder"] / "records").iterdir() for line in file.read_text().splitlines()
    ]
    lines.sort(key=lambda line: json.loads(line)["time"])
    replay = names["folder"] / "replay.jsonl"
    replay.write_text("".join(f"{line}\n" for line in lines))
    results = skws.search(names["queries"], replay, schema=names["schema"])
    return sorted((result.name, result.op, result.id) for result in results)


@pytest.mark.slow
@pytest.mark.spark
def test_the_alerts_notebook_on_spark_neither_loses_nor_repeats_alerts(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    morning, day = run_alerts(spark, code_cells(ALERTS))
    assert {op for _, op, _ in morning} == {"+"}
    assert {name for name, _, _ in morning} == {"leaks", "damage"}
    assert [(name, op) for name, op, _ in day if op != "+"] == [("leaks", "-")]
    assert len(day) > len(morning) > 5
    assert f"{len(day)} rows; the same" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
def test_the_alerts_notebook_on_spark_reads_a_kafka_topic(spark: SparkSession) -> None:
    """Only the address of the source changes."""
    code = "\0".join(code_cells(ALERTS))
    files = 'skws.spark.Source(folder / "records")'
    assert code.count(files) == 1
    sent_counts = [0, 0]
    with closing(MockBroker()) as broker:
        broker.create("shop", 2)

        def send(names: dict[str, Any]) -> None:
            for number, sent_count in enumerate(sent_counts):
                file = Path(names["folder"]) / "records" / f"{number}.jsonl"
                lines = file.read_text().splitlines() if file.exists() else []
                broker.send("shop", map(json.loads, lines[sent_count:]), partition=number)
                sent_counts[number] = len(lines)

        topic = f"skws.spark.Source({broker.uri('shop')!r})"
        morning, day = run_alerts(spark, code.replace(files, topic).split("\0"), send)
    assert len(day) > len(morning) > 5
