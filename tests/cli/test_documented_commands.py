"""The commands in the reference run as written, on the local engine where they leave the choice."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.command_lines import Skws

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "cli.md").read_text()


def documented() -> list[list[str]]:
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```", REFERENCE, re.M | re.S)).replace("\\\n", " ")
    commands = [re.split(r" [|>] ", line)[0] for line in blocks.splitlines()]
    return [shlex.split(command)[1:] for command in commands]


@pytest.mark.parametrize("arguments", documented(), ids=" ".join)
def test_documented_commands_run(
    skws: Skws, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    local = ["--engine", "local"] if arguments[0] in {"search", "demo"} else []
    outcome = skws(arguments[0], *local, *arguments[1:])
    assert outcome.code == 0, outcome.err
    excluding = "-pulp" in arguments
    assert bool(outcome.out) != excluding


def test_every_command_and_search_option_is_documented(skws: Skws) -> None:
    shown = skws("search", "--help").out
    options = set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help"}
    assert len(options) > 10
    assert [option for option in sorted(options) if option not in REFERENCE] == []
    commands = re.findall(r"^  (\w+)  ", skws("--help").out.partition("Commands:")[2], re.M)
    assert [command for command in commands if f"skws {command}" not in REFERENCE] == []
