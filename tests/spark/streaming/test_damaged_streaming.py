"""A damaged checkpoint of a run on Spark is refused by name before a sink is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from skws_schema.errors import StateError
from tests.jobs.watching import append, customer, order, request
from tests.spark.streaming.spark_runs import running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    source, checkpoint, kept = tmp_path / "in.jsonl", tmp_path / "checkpoint", tmp_path / "kept"
    append(source, customer(1, 1), order(2, 1))
    asked = request(source, checkpoint=checkpoint)
    with running(asked) as run:
        run.results(1)
    shutil.copytree(checkpoint, kept)
    append(source, order(3, 1))
    for name in ("manifest.json", "given.json", "committed.json", "tables.log", "commands", "spark"):
        shutil.rmtree(checkpoint)
        shutil.copytree(kept, checkpoint)
        if (checkpoint / name).is_dir():
            shutil.rmtree(checkpoint / name)
        else:
            (checkpoint / name).unlink()
        with pytest.raises(StateError, match=rf"checkpoint/{name}.*: missing"), running(asked) as run:
            run.results(1)
        assert run.sink.results == []
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    with running(asked) as run:
        run.results(1)
    assert len(run.sink.results) == 1
