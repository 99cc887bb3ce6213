"""Options mean the same in every command, and former spellings are still read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from skws.cli.main import app
from skws.spec.enums import EngineChoice
from tests.commands import Skws
from tests.places import ROOT

MOVIES = ROOT / "examples" / "movies"
REPLAY = MOVIES / "replay.jsonl"
OWN = {
    "--format": "each command has formats of its own",
    "--output": "the same but for where it goes by default",
    "--limit": "the best or the first ones of a search, the first ones elsewhere",
    "--name": "of a server, or of a schema",
    "--window": "of a run, or written into a schema",
}
"""Options that mean something of their own in some command, and why."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if name == "bench":
            continue
        if hasattr(found, "list_commands"):
            yield from commands(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


def options() -> dict[str, dict[str, Any]]:
    """The options by their long names, and by the commands that have them."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, command in commands(typer.main.get_command(app)):
        for parameter in command.params:
            for name in parameter.opts:
                if name.startswith("--"):
                    found[name][path] = parameter
    return found


def test_an_option_is_the_same_in_every_command() -> None:
    shared = {name: by_command for name, by_command in options().items() if len(by_command) > 1}
    assert {"--engine", "--on-error", "--replay", "--window", "--format"} <= shared.keys()
    for name, by_command in shared.items():
        if name not in OWN:
            said = {(tuple(sorted(one.opts)), one.help, one.metavar) for one in by_command.values()}
            assert len(said) == 1, (name, sorted(by_command))


def test_short_names_stand_for_one_option() -> None:
    stand = defaultdict(set)
    for name, by_command in options().items():
        for one in by_command.values():
            for short in one.opts:
                if not short.startswith("--"):
                    stand[short].add(name)
    assert {short: names for short, names in stand.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("option", "commands_with_it"),
    [
        ("--engine", {"demo", "search", "watch", "serve", "tui", "bounds run"}),
        ("--replay", {"search", "watch", "serve", "tui", "explain", "windows", "bounds run"}),
        ("--source", {"search", "watch", "serve", "tui", "bounds run"}),
        ("--on-error", {"search", "watch", "serve", "tui", "explain", "windows", "bounds run"}),
    ],
)
def test_commands_that_need_an_option_have_it(option: str, commands_with_it: set[str]) -> None:
    assert options()[option].keys() == commands_with_it


def test_auto_is_the_engine_of_every_command() -> None:
    assert {one.default for one in options()["--engine"].values()} == {EngineChoice.AUTO}


def test_defaults_are_the_same_but_for_a_few() -> None:
    differing = {
        name
        for name, by_command in options().items()
        if name not in OWN and len({str(one.default) for one in by_command.values()}) > 1
    }
    # A query that is added has the job's size.
    assert differing == {"--max-size"}


def test_a_table_is_never_written_to_a_file_of_data(skws: Skws, tmp_path: Path) -> None:
    search = ("search", REPLAY, "tarantino", "-s", MOVIES / "schema.yaml")
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        refused = skws(*search, "-o", out, "--format", "table")
        assert (refused.code, out.exists()) == (2, False)
        assert f"expected --format {suffix} for .{suffix}, not table" in refused.err
        assert skws(*search, "-o", out).code == 0
        assert not out.read_bytes().startswith(b"op  time")


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
