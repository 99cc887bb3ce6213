"""The converter of Stack Exchange dumps from XML to CSV."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.places import ROOT

pytestmark = pytest.mark.check

XML_EXAMPLE = ROOT / "examples" / "stackexchange"
COLUMNS: dict[str, list[str]] = {
    name: list(relation["attributes"])
    for name, relation in yaml.safe_load((XML_EXAMPLE / "schema.yaml").read_text(encoding="utf-8"))[
        "relations"
    ].items()
}
CREATED = 'CreationDate="2016-08-02T15:39:14.947"'


def _run(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(XML_EXAMPLE / "csv_from_xml.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def converted_rows(tmp_path: Path) -> dict[str, list[dict[str, str]]]:
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
    process = _run(dump, tmp_path / "out")
    assert process.returncode == 0, process.stderr
    return {path.stem: _read(path) for path in (tmp_path / "out").iterdir()}


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS[path.stem]
        return list(reader)


def test_the_converter_writes_a_csv_file_for_every_relation(
    converted_rows: dict[str, list[dict[str, str]]],
) -> None:
    assert converted_rows.keys() == COLUMNS.keys()
    assert {name for name, rows in converted_rows.items() if rows} == {"Posts", "PostTags", "Users"}


def test_the_converter_unescapes_values_and_leaves_missing_ones_empty(
    converted_rows: dict[str, list[dict[str, str]]],
) -> None:
    question, answer, _ = converted_rows["Posts"]
    assert (question["Title"], question["Body"], question["ParentId"]) == ('A "b", c', "x\né", "")
    assert (answer["ParentId"], answer["Title"]) == ("1", "")
    assert converted_rows["Users"][0]["DisplayName"] == "Community"


def test_the_converter_reads_tags_in_both_notations(converted_rows: dict[str, list[dict[str, str]]]) -> None:
    pairs = [(row["PostId"], row["TagName"]) for row in converted_rows["PostTags"]]
    assert pairs == [("1", "a-b"), ("1", "c"), ("3", "d"), ("3", "e")]
    assert {row["CreationDate"] for row in converted_rows["PostTags"]} == {"2016-08-02T15:39:14.947"}


def test_the_converter_without_arguments_prints_its_usage() -> None:
    process = _run()
    assert process.returncode == 1
    assert process.stderr == "usage: csv_from_xml.py DUMP_FOLDER CSV_FOLDER\n"
