"""A run on a local cluster of two executors, which get the packages from the driver."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from skws.data.batch import Record
from skws.spark.local_java import LIGHT_JAVA
from skws_schema.yaml.document import to_yaml
from tests.formats.replays import write_replay
from tests.jobs.watching import lines
from tests.places import ROOT
from tests.spark.streaming.test_oracle_shards import SCHEMA, random_records, random_row

pytestmark = pytest.mark.spark


def watch_results(folder: Path, engine: str, *more: str) -> list[str]:
    out = folder / f"{engine}.jsonl"
    command = [
        *(sys.executable, "-m", "skws", "watch", "alpha", "beta", "--window", "30 us"),
        *("--engine", engine, "--max-size", "4", "--schema", str(folder / "schema.yaml")),
        *("--source", f"replay:{folder / 'r.jsonl'}?speed=1000000", "--sink", f"jsonl:{out}", *more),
    ]
    options = f"'spark.executor.extraJavaOptions={LIGHT_JAVA}'"
    settings = f"--conf spark.skws.shards=2 --conf {options} pyspark-shell"
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": settings}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=400)
    assert run.returncode == 0, run.stderr
    return sorted(str(line) for line in lines(out))


@pytest.mark.slow
def test_two_executors_have_the_results_of_one_process(tmp_path: Path) -> None:
    rng = random.Random(5)
    (tmp_path / "schema.yaml").write_text(to_yaml(SCHEMA))
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    write_replay(tmp_path / "r.jsonl", SCHEMA, [*tables, *random_records(rng, 300)])
    local = watch_results(tmp_path, "local")
    assert len(local) > 50
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    assert watch_results(tmp_path, "spark", "--master", "local-cluster[2,1,1024]", *checkpoint) == local


@pytest.mark.slow
def test_executors_find_files_with_relative_paths(tmp_path: Path) -> None:
    rng = random.Random(6)
    (tmp_path / "schema.yaml").write_text(to_yaml(SCHEMA))
    write_replay(tmp_path / "r.jsonl", SCHEMA, list(random_records(rng, 300)))
    command = [
        *(sys.executable, "-m", "skws", "search", "alpha", "beta", "--window", "30 us", "--quiet"),
        *("--schema", "schema.yaml", "--replay", "r.jsonl", "--format", "jsonl", "--output"),
    ]
    for name, engine_options in {"local": (), "spark": ("--master", "local-cluster[2,1,1024]")}.items():
        options = (f"{name}.jsonl", "--engine", name, *engine_options)
        run = subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400
        )
        assert run.returncode == 0, run.stderr
    assert len(lines(tmp_path / "local.jsonl")) > 50
    assert lines(tmp_path / "spark.jsonl") == lines(tmp_path / "local.jsonl")
