"""The recipes that need nothing but skws, and the notebook recipe with Spark."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.commands import Skws
from tests.docs.blocks import blocks, files, matches, words
from tests.places import ROOT

RECIPES = ROOT / "docs" / "recipes"


def test_the_folder_of_csv_files_is_searched(
    skws: Skws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = RECIPES / "csv-folder.md"
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    block = next(block for block in blocks(page) if block.output)
    *others, search = block.commands
    subprocess.run(["sh", "-ec", "\n".join(others)], check=True)
    done = skws(*words(search)[1:])
    assert done.code == 0, done.err
    assert block.output is not None
    assert matches(block.output, done.out), done.out
    assert "from: Order ID" in (tmp_path / "shop.schema.yaml").read_text()


@pytest.mark.spark
def test_the_notebook_recipe_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    page = (RECIPES / "spark-notebook.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(block, "spark-notebook.md", "exec"), {})
    assert "purchase{byron} - complaint{leaks}" in capsys.readouterr().out
