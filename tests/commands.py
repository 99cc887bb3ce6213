"""Runs commands in this process or in a new one, and lists them; a search of the movie stream."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, Final, NamedTuple

import orjson
import typer

from skws.cli.main import app
from tests.forked import forked_skws
from tests.places import ROOT

FOLDER: Final = ROOT / "examples" / "movies"
SCHEMA: Final = FOLDER / "schema.yaml"
REPLAY: Final = FOLDER / "replay.jsonl"
LOCAL: Final = ("--schema", SCHEMA, "--replay", REPLAY, "--engine", "local")
SEARCH: Final = ("search", "tarantino", "travolta", *LOCAL)
IDS: Final = ("98a8ef6d2f8332f40ce13aba", "e6ce4a88752e637a1ed61d8d")


class Outcome(NamedTuple):
    """The outcome of a command: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        """The JSON lines of its output."""
        return [orjson.loads(line) for line in self.out.splitlines()]


Skws = Callable[..., Outcome]


def python(*arguments: object, stdout: int | IO[bytes] = subprocess.PIPE, **environment: str) -> Outcome:
    """Runs Python in a separate process, with these arguments and additional environment variables."""
    return run_process([sys.executable, *map(str, arguments)], stdout, environment)


def run_process(command: list[str], stdout: int | IO[bytes], environment: Mapping[str, str]) -> Outcome:
    process = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Outcome(process.returncode, process.stdout or "", process.stderr)


def process(*arguments: object, stdout: int | IO[bytes] = subprocess.PIPE, **environment: str) -> Outcome:
    """Runs a command line in a separate process."""
    return run_process([*forked_skws(), *map(str, arguments)], stdout, environment)


def cli_commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of a group, by default all of them, with names such as ``schema show``."""
    group = group or typer.main.get_command(app)
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from cli_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def on_a_terminal(*arguments: object, **environment: str) -> str:
    """The output of a command on a terminal, standard output and standard error together."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [*forked_skws(), *map(str, arguments)],
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment},
    ) as process:
        os.close(terminal)
        output = bytearray()
        with suppress(OSError):  # Linux reports the end of a terminal by this error
            while block := os.read(controller, 1 << 16):
                output += block
    os.close(controller)
    assert process.returncode == 0
    return output.decode()
