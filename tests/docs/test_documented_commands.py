"""The commands in the documentation run as written."""

from __future__ import annotations

import csv
import re
from itertools import islice
from pathlib import Path
from shutil import copytree

import pytest

from skws.cli.main import run
from tests.docs.blocks import PAGES, Block, blocks, files, matches, words
from tests.places import DATA, ROOT

PUBLIC = {"stackexchange": "stackexchange-ai", "sakila": "sakila", "mondial": "mondial"}
CASES = [
    pytest.param(page, block, id=f"{page.relative_to(ROOT)}: {block.commands[0]}")
    for page in PAGES
    for block in blocks(page)
]


@pytest.mark.parametrize(("page", "block"), CASES)
def test_documented_commands_run(
    page: Path,
    block: Block,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if block.why_not:
        pytest.skip(block.why_not)
    copytree(ROOT / "examples", tmp_path / "examples")  # inferred schemas are kept beside the data
    _lay_out(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    # Pages show what a terminal does.
    monkeypatch.setattr("skws.sinks.destination.Destination.width", 120)
    output = "".join(_output(command, tmp_path, capsys) for command in block.commands)
    if block.output is not None:
        assert matches(block.output, output), output


def _lay_out(page: Path, folder: Path) -> None:
    """The files that the page shows, and the public data that it speaks of."""
    for name, text in files(page).items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, public in PUBLIC.items():
        (folder / f"{name}-csv").symlink_to(DATA / public / "csv")
    for trace in DATA.glob("google-cluster/*query3a*.csv"):
        _cluster(trace, folder / "cluster-csv")


def _cluster(trace: Path, folder: Path) -> None:
    """The events of a trace as a replay: their header lacks the last name, which is the event's number."""
    folder.mkdir()
    names = ["job", "task", "machine", "status", "priority", "time"]
    with trace.open(newline="") as file, (folder / "task.csv").open("w", newline="") as made:
        writer = csv.writer(made)
        writer.writerow(names)
        for _, job, task, machine, status, priority, *_, number in islice(csv.reader(file), 1, None):
            writer.writerow([job, task, machine.removesuffix(".0"), status, priority, number])


def _output(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = words(command)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        assert set(arguments) <= set(targets)
        return ""
    assert program == "skws", command
    for word in arguments:
        if word.endswith("-csv") and not (folder / word).exists():
            pytest.skip(f"the public data set for {word} is not at {DATA}")
    code = run(arguments)
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert bool(shown.out) != ("-pulp" in arguments), shown.err
    return shown.out


def test_there_are_commands_of_every_page_that_has_any() -> None:
    assert {"README.md", "cli.md"} <= {page.name for page in PAGES if list(blocks(page))}
    assert len(CASES) > 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    # Brackets and parentheses in code are no links.
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []
