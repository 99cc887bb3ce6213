"""The commands in the documentation run as written."""

from __future__ import annotations

import csv
import re
from functools import cache
from itertools import islice
from pathlib import Path
from shutil import copy, copytree

import pytest

from docs.page_files import write_files
from skws.cli.main import run
from tests.docs.blocks import FENCE, PAGES, Block, blocks, matches, words
from tests.mondial import MONDIAL, write_mondial
from tests.places import DATA, ROOT

PUBLIC = {"stackexchange": "stackexchange-ai", "sakila": "sakila", "mondial": "mondial"}
CASES = [
    pytest.param(page, block, id=f"{page.relative_to(ROOT)}: {block.commands[0]}")
    for page in PAGES
    for block in blocks(page)
    if not (block.why_not or block.test)
]
NOT_RUN = {
    "RELEASING.md": r"git |gh |python3? -m (build|twine)|make ",
    "docs/tutorial.md": r"docker run|uv tool install|export SHOP=",
    "docs/install.md": r"uv tool install|pipx install|python3 -m venv",
    "docs/recipes/postgresql-to-slack.md": r"export SLACK_WEBHOOK=",
    "docs/recipes/kafka-on-spark.md": r"spark-submit --master yarn ",
    "docs/recipes/mail.md": r"export MAIL_HOST=",
    "docs/service.md": r"useradd |docker |systemctl |examples/service/backup",
    "docs/cluster.md": r"python3 -m venv packed",
    "docs/architecture/simulation.md": r"make sim ",
    "examples/sakila/README.md": r"mkdir sakila-csv",
    "examples/stackexchange/README.md": r"python examples/stackexchange/csv_from_xml.py ",
    "examples/vulnerabilities/README.md": r"python -m examples\.vulnerabilities\n?$",
    "docs/performance.md": r"python -m bench\.|skws bench |skws search kilo lima ",
    "docs/testing.md": r"python -m tests\.(sim|fuzz) ",
}
"""The first words of blocks that no test runs: containers, installations, secrets, third-party data and runs
that take minutes.

The page gives the reason at each block.
"""
RUN = {"sh", "console"}
COMMAND = re.compile(r"(\$ )?(skws|pip|make|curl|psql|spark-submit|python3?|pytest|docker|uv|export) ", re.M)


@pytest.mark.parametrize(("page", "block"), CASES)
def test_documented_commands_run_as_written(
    page: Path,
    block: Block,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--engine spark" in "".join(block.commands):
        request.getfixturevalue("spark")  # the session of all tests, whose JVM outlives this test
    copytree(ROOT / "examples", tmp_path / "examples")  # inferred schemas are written next to the data
    _lay_out(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    # Pages show output at the width of a terminal.
    monkeypatch.setattr("skws.sinks.base.Destination.width", 120)
    *setup, last = block.commands
    output = "".join(_output(command, 0, tmp_path, capsys) for command in setup)
    output += _output(last, block.code, tmp_path, capsys)
    if block.output is not None:
        assert matches(block.output, output), output


def _lay_out(page: Path, folder: Path) -> None:
    """Writes the files that the page shows, and links the public data that it uses."""
    write_files(page, folder)
    for name, public in PUBLIC.items():
        (folder / f"{name}-csv").symlink_to(DATA / public / "csv")
    text = page.read_text(encoding="utf-8")
    if MONDIAL.is_dir() and "mondial.sqlite" in text:
        copy(_mondial(folder.parent), folder / "mondial.sqlite")
    if "cluster-csv" in text:
        for trace in DATA.glob("google-cluster/*query3a*.csv"):
            _cluster(trace, folder / "cluster-csv")


@cache
def _mondial(folder: Path) -> Path:
    """The database, which is written once because this takes longer than most commands."""
    path = folder / "mondial.sqlite"
    write_mondial(path)
    return path


def _cluster(trace: Path, folder: Path) -> None:
    """Writes the events of a trace as a replay. Its header lacks the last column, the number of the event."""
    folder.mkdir()
    names = ["job", "task", "machine", "status", "priority", "time"]
    with trace.open(newline="") as file, (folder / "task.csv").open("w", newline="") as replay:
        writer = csv.writer(replay)
        writer.writerow(names)
        for _, job, task, machine, status, priority, *_, number in islice(csv.reader(file), 1, None):
            writer.writerow([job, task, machine.removesuffix(".0"), status, priority, number])


def _output(command: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = words(command)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        assert set(arguments) <= set(targets)
        return ""
    assert program == "skws", command
    for word in arguments:
        if word.endswith(("-csv", "mondial.sqlite")) and not (folder / word).exists():
            pytest.skip(f"the public data set for {word} is not at {DATA}")
    exit_code = run(arguments)
    output = capsys.readouterr()
    assert exit_code == code, output.err
    if code == 0:
        assert bool(output.out) != ("-pulp" in arguments), output.err
    return output.out if code == 0 else output.out + output.err


def test_commands_are_found_on_the_main_pages() -> None:
    assert {"README.md", "cli.md"} <= {page.name for page in PAGES if list(blocks(page))}
    assert len(CASES) > 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_documented_command_is_run_or_listed_as_not_run(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    for block in blocks(page):
        assert not block.why_not or re.match(NOT_RUN[name], block.commands[0]), block
        if block.test:
            source = (ROOT / block.test).read_text(encoding="utf-8")
            assert page.name in source
            assert re.search(r"\b(steps|blocks)\(", source)
    other_fences = [
        fence for fence in FENCE.finditer(page.read_text(encoding="utf-8")) if fence["kind"] not in RUN
    ]
    assert [fence["text"] for fence in other_fences if COMMAND.match(fence["text"])] == []


def test_commands_in_other_fences_are_detected() -> None:
    text = "```\nskws search day.jsonl byron\n```\n\n```yaml\nskws: 1\n```\n"
    assert [bool(COMMAND.match(fence["text"])) for fence in FENCE.finditer(text)] == [True, False]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_have_existing_targets(page: Path) -> None:
    # Brackets and parentheses in code are not links.
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []
