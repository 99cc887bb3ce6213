"""The reference of the command line names every command and every option of searches."""

from __future__ import annotations

import re

import pytest

from tests.commands import Skws
from tests.places import ROOT

REFERENCE = (ROOT / "docs" / "cli.md").read_text()


def test_every_command_and_search_option_is_documented(skws: Skws) -> None:
    shown = skws("search", "--help").out
    options = set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help"}
    assert len(options) > 10
    assert [option for option in sorted(options) if option not in REFERENCE] == []
    commands = re.findall(r"^  (\w+)  ", skws("--help").out.partition("Commands:")[2], re.M)
    assert [command for command in commands if f"skws {command}" not in REFERENCE] == []


@pytest.mark.parametrize("group", ["", "schema", "bounds", "query", "bench"])
def test_every_command_is_told_in_a_line_that_is_whole(
    skws: Skws, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = skws(*group.split(), "--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    lines = [line for line in listed.splitlines() if line]
    assert len(lines) > 1
    assert all(re.fullmatch(r"  [\w-]+ +\S.*\.", line) and not line.endswith("...") for line in lines), lines


@pytest.mark.parametrize(
    "command", ["search", "watch", "serve", "tui", "windows", "networks", "schema infer", "demo"]
)
def test_help_is_written_for_people(skws: Skws, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = skws(*command.split(), "--help").out
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"<list|<str>|<path>|default: \(|x>=|<=x", " ".join(shown.split()))
    assert shown.count("--help") == 1


def test_many_options_stand_under_headings(skws: Skws) -> None:
    shown = skws("watch", "--help").out
    headings = re.findall(r"^(\w[\w ]+):$", shown, re.M)
    assert headings == ["Arguments", "Data", "Query", "Results", "Engine", "Other options"]
    queries = shown.partition("\nQuery:\n")[2].partition("\nResults:")[0]
    assert "--window W" in queries
    assert "--sink" not in queries
    assert re.findall(r"^(\w[\w ]+):$", skws("networks", "--help").out, re.M) == ["Arguments", "Options"]
