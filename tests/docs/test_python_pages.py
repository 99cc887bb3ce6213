"""The Python of the docs, and of the notebook, runs as it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import files
from tests.places import ROOT

PAGE = ROOT / "docs" / "python.md"
NOTEBOOK = ROOT / "examples" / "shop" / "shop.ipynb"


@pytest.mark.spark
def test_the_page_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "customer{byron} - purchase{} - complaint{leaks}" in printed
    assert "+ alert" in printed
    assert names["found"].count() == len(names["results"]) == 1


def test_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "README.md"
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    exec(compile(block, str(page), "exec"), {})
    assert capsys.readouterr().out == "customer{byron} - purchase{} - complaint{leaks}\n"


@pytest.mark.spark
def test_the_notebook_runs(spark: SparkSession) -> None:
    assert spark is not None
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, Any] = {}
    for cell in code:
        exec(compile(cell, str(NOTEBOOK), "exec"), names)
    assert names["found"].count() == len(names["results"].to_pandas()) == 1
