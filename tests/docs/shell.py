"""Runs the commands of a page in a folder, as a user at a terminal does."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
import pyspark

from tests.docs.blocks import Block
from tests.forked import folder_of_skws
from tests.waiting import until

_PROGRAMS: Final = f"{Path(sys.executable).parent}:{Path(pyspark.__file__).parent / 'bin'}"
INTERRUPTED: Final = 130


class Shell:
    """Live commands run in the background. ``forked``: each ``skws`` starts with its modules loaded."""

    def __init__(self, folder: Path, *, forked: bool = True, **environment: str) -> None:
        self.folder = folder
        programs = f"{folder_of_skws()}:{_PROGRAMS}" if forked else _PROGRAMS
        overrides = {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_DATA_HOME": str(folder / "xdg")}
        self._environment = {**os.environ, **overrides, **environment}
        self._live: list[subprocess.Popen[bytes]] = []

    def run(self, block: Block, *, notes: bool = False) -> str:
        """The output of a block; ``notes``: including standard error."""
        script = "set -e\n" + "\n".join(block.commands)
        process = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if notes else subprocess.PIPE,
            text=True,
            check=False,
        )
        assert process.returncode == 0, (process.stdout, process.stderr)
        return process.stdout

    def start(self, block: Block) -> Path:
        """Runs the other commands of a block, then starts the last; returns the file with its output."""
        output_file = self.folder / f"shown-{len(self._live)}"
        *setup, command = block.commands
        script = "\n".join(["set -e", *setup, f"exec {command}"])
        with output_file.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", script], cwd=self.folder, env=self._environment, stdout=file
            )
        self._live.append(process)
        return output_file

    def interrupt(self, which: int = -1, code: int = INTERRUPTED) -> None:
        """Sends Ctrl-C to a live command, by default the last one started."""
        self.end(signal.SIGINT, code, which)

    def end(self, number: signal.Signals, code: int, which: int = -1) -> None:
        """Sends a signal to a live command and checks its exit code."""
        self._live[which].send_signal(number)
        assert self._live[which].wait(60) == code

    def on_terminal(self, block: Block, expected: str, keys: str) -> None:
        """Runs one command on a terminal: once it shows ``expected``, types ``keys``, which end it."""
        (command,) = block.commands
        controller, terminal = pty.openpty()
        size = {"LINES": "40", "COLUMNS": "140", "TERM": "xterm-256color"}
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env={**self._environment, **size},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        self._live.append(process)
        os.close(terminal)
        screen = bytearray()

        def read() -> None:
            if select.select([controller], [], [], 0.1)[0]:
                with suppress(OSError):  # the other end is closed
                    screen.extend(os.read(controller, 1 << 16))

        until(lambda: expected.encode() in screen, read, screen.decode)
        os.write(controller, keys.encode())
        until(lambda: process.poll() is not None, read, screen.decode)
        os.close(controller)
        assert process.returncode == 0

    def close(self) -> None:
        for process in self._live:
            process.kill()
            process.wait()


def text(path: Path) -> str:
    """The content of a file, empty if there is none."""
    return path.read_text() if path.exists() else ""


def healthy(port: str | int) -> bool:
    """True if the server at a port answers."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://localhost:{port}/healthz", trust_env=False).status_code == 200
    return False


def with_places(block: Block, places: Mapping[str, str]) -> Block:
    """The block with the servers and folders of the test instead of those on the page."""
    commands = "\n".join(block.commands)
    for documented, actual in places.items():
        commands = commands.replace(documented, actual)
    return replace(block, commands=tuple(commands.split("\n")))
