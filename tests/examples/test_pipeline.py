"""The example of a Declarative Pipeline: a second run continues where the first one ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from skws.spark.local_java import use_java
from tests.places import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_second_pipeline_run_adds_only_new_alerts(tmp_path: Path) -> None:
    project = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", project)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    assert "file:///tmp/skws-shop-pipeline" in text
    spec.write_text(
        text.replace("file:///tmp/skws-shop-pipeline", (tmp_path / "kept").as_uri()), encoding="utf-8"
    )
    write_record(project, "customer", {"id": 7, "name": "Ada Byron"})
    for number in (1, 2):
        purchase_time, complaint_time = f"2026-05-04T1{number}:00:00Z", f"2026-05-04T1{number}:05:00Z"
        write_record(
            project, "purchase", {"id": number, "customer_id": 7, "item": "kettle", "time": purchase_time}
        )
        write_record(
            project, "complaint", {"purchase_id": number, "body": "It leaks.", "time": complaint_time}
        )
        run_pipeline(project)
        alerts = pyarrow.parquet.read_table(project / "spark-warehouse" / "alerts").to_pylist()
        assert [alert["op"] for alert in alerts] == ["+"] * number
        assert {dict(alert["tuples"][1]["row"])["id"] for alert in alerts} == {
            str(n + 1) for n in range(number)
        }


def write_record(project: Path, relation: str, row: dict[str, Any]) -> None:
    folder = project / "in" / relation
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{len(list(folder.iterdir())) + 1}.json").write_text(json.dumps(row), encoding="utf-8")


def run_pipeline(project: Path) -> None:
    use_java()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    program = Path(sys.executable).with_name("spark-pipelines")
    process = subprocess.run(
        [str(program), "run", "--conf", "spark.sql.catalogImplementation=hive"],
        cwd=project,
        env=environment
        | {"PYSPARK_PYTHON": sys.executable, "PATH": f"{program.parent}:{environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
