"""Options mean the same in every command, and their help is complete and readable."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from skws.spec.enums import EngineChoice
from tests.commands import Skws, cli_commands
from tests.places import ROOT

MOVIES = ROOT / "examples" / "movies"
REPLAY = MOVIES / "replay.jsonl"
COMMAND_SPECIFIC = {
    "--format": "each command has its own formats",
    "--output": "the same except for its default",
    "--limit": "the best or the first ones of a search, the first ones elsewhere",
    "--name": "of a server, or of a schema",
    "--window": "of a run, or written into a schema",
}
"""Options whose meaning differs between commands, and why."""


def options() -> dict[str, dict[str, Any]]:
    """The parameters by long option and by command."""
    parameters: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, command in cli_commands():
        for parameter in command.params if not path.startswith("bench ") else ():
            for name in parameter.opts:
                if name.startswith("--"):
                    parameters[name][path] = parameter
    return parameters


def test_an_option_has_one_definition_in_all_commands() -> None:
    shared = {name: by_command for name, by_command in options().items() if len(by_command) > 1}
    assert {"--engine", "--on-error", "--replay", "--window", "--format"} <= shared.keys()
    for name, by_command in shared.items():
        if name not in COMMAND_SPECIFIC:
            definitions = {
                (tuple(sorted(parameter.opts)), parameter.help, parameter.metavar)
                for parameter in by_command.values()
            }
            assert len(definitions) == 1, (name, sorted(by_command))


def test_a_short_name_means_one_option() -> None:
    long_names = defaultdict(set)
    for name, by_command in options().items():
        for parameter in by_command.values():
            for short in parameter.opts:
                if not short.startswith("--"):
                    long_names[short].add(name)
    assert {short: names for short, names in long_names.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--engine", {"demo", "search", "watch", "serve", "tui", "bounds run"}),
        ("--replay", {"search", "watch", "serve", "tui", "explain", "windows", "bounds run"}),
        ("--source", {"search", "watch", "serve", "tui", "bounds run"}),
        ("--on-error", {"search", "watch", "serve", "tui", "explain", "windows", "bounds run"}),
    ],
)
def test_common_options_exist_in_the_commands_that_need_them(option: str, expected: set[str]) -> None:
    assert options()[option].keys() == expected


def test_the_default_engine_is_auto_everywhere() -> None:
    assert {parameter.default for parameter in options()["--engine"].values()} == {EngineChoice.AUTO}


def test_defaults_of_common_options_are_the_same() -> None:
    differing = {
        name
        for name, by_command in options().items()
        if name not in COMMAND_SPECIFIC
        and len({str(parameter.default) for parameter in by_command.values()}) > 1
    }
    # A query added to a job defaults to the size of the job.
    assert differing == {"--max-size"}


def test_a_table_is_not_written_to_a_data_file(skws: Skws, tmp_path: Path) -> None:
    search = ("search", REPLAY, "tarantino", "-s", MOVIES / "schema.yaml")
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        rejection = skws(*search, "-o", out, "--format", "table")
        assert (rejection.code, out.exists()) == (2, False)
        assert f"expected --format {suffix} for .{suffix}, not table" in rejection.err
        assert skws(*search, "-o", out).code == 0
        assert not out.read_bytes().startswith(b"op  time")


@pytest.mark.parametrize("group", ["", "schema", "bounds", "query", "bench"])
def test_command_summaries_fit_on_one_line(skws: Skws, monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command_list = skws(*group.split(), "--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    lines = [line for line in command_list.splitlines() if line]
    assert len(lines) > 1
    assert all(re.fullmatch(r"  [\w-]+ +\S.*\.", line) and not line.endswith("...") for line in lines), lines


@pytest.mark.parametrize(
    "command", ["search", "watch", "serve", "tui", "windows", "networks", "schema infer", "demo"]
)
def test_help_is_readable_at_80_columns(skws: Skws, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = skws(*command.split(), "--help").out
    assert max(map(len, output.splitlines())) <= 80
    assert not re.search(r"<list|<str>|<path>|default: \(|x>=|<=x", " ".join(output.split()))
    assert output.count("--help") == 1


def test_many_options_are_grouped_under_headings(skws: Skws) -> None:
    output = skws("watch", "--help").out
    headings = re.findall(r"^(\w[\w ]+):$", output, re.M)
    assert headings == ["Arguments", "Data", "Query", "Results", "Engine", "Other options"]
    queries = output.partition("\nQuery:\n")[2].partition("\nResults:")[0]
    assert "--window W" in queries
    assert "--sink" not in queries
    assert re.findall(r"^(\w[\w ]+):$", skws("networks", "--help").out, re.M) == ["Arguments", "Options"]
