"""The script that makes CSV files of a Stack Exchange dump, run on a dump of a few rows."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.places import ROOT

EXAMPLE = ROOT / "examples" / "stackexchange"
COLUMNS: dict[str, list[str]] = {
    name: list(relation["attributes"])
    for name, relation in yaml.safe_load((EXAMPLE / "schema.yaml").read_text(encoding="utf-8"))[
        "relations"
    ].items()
}
CREATED = 'CreationDate="2016-08-02T15:39:14.947"'


def _run(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "csv_from_xml.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def converted(tmp_path: Path) -> dict[str, list[dict[str, str]]]:
    dump = tmp_path / "dump"
    dump.mkdir()
    rows = {
        "Posts": f'<row Id="1" {CREATED} Title="A &quot;b&quot;, c" Body="x&#xA;é" '
        'Tags="&lt;a-b&gt;&lt;c&gt;" />'
        f'<row Id="2" {CREATED} ParentId="1" ContentLicense="CC BY-SA 3.0" />'
        f'<row Id="3" {CREATED} Tags="|d|e|" />',
        "Users": '<row Id="-1" DisplayName="Community" />',
    }
    for name in COLUMNS.keys() - {"PostTags"}:
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<x>{rows.get(name, "")}</x>'
        (dump / f"{name}.xml").write_text(text, encoding="utf-8")
    done = _run(dump, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    return {path.stem: _read(path) for path in (tmp_path / "out").iterdir()}


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS[path.stem]
        return list(reader)


def test_every_relation_gets_a_file_with_its_columns(converted: dict[str, list[dict[str, str]]]) -> None:
    assert converted.keys() == COLUMNS.keys()
    assert {name for name, rows in converted.items() if rows} == {"Posts", "PostTags", "Users"}


def test_values_are_unescaped_and_what_is_missing_is_empty(
    converted: dict[str, list[dict[str, str]]],
) -> None:
    question, answer, _ = converted["Posts"]
    assert (question["Title"], question["Body"], question["ParentId"]) == ('A "b", c', "x\né", "")
    assert (answer["ParentId"], answer["Title"]) == ("1", "")
    assert converted["Users"][0]["DisplayName"] == "Community"


def test_tags_of_both_spellings_become_rows(converted: dict[str, list[dict[str, str]]]) -> None:
    pairs = [(row["PostId"], row["TagName"]) for row in converted["PostTags"]]
    assert pairs == [("1", "a-b"), ("1", "c"), ("3", "d"), ("3", "e")]
    assert {row["CreationDate"] for row in converted["PostTags"]} == {"2016-08-02T15:39:14.947"}


def test_without_folders_the_usage_is_told() -> None:
    done = _run()
    assert done.returncode == 1
    assert done.stderr == "usage: csv_from_xml.py DUMP_FOLDER CSV_FOLDER\n"
