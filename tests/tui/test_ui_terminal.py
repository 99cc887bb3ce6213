"""The demo in a real terminal, driven by tmux."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

TMUX = shutil.which("tmux")
needs_tmux = pytest.mark.skipif(TMUX is None and "CI" not in os.environ, reason="tmux is not installed")
SECONDS = 60


class Terminal:
    """A window of a separate tmux server."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self._server = ("tmux", "-f", os.devnull, "-S", str(folder / "tmux"))
        self._size = size
        self._folder = folder

    def run(self, *arguments: str) -> None:
        command = shlex.join([sys.executable, "-m", "skws", *arguments])
        size = ("-x", str(self._size[0]), "-y", str(self._size[1]))
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self._folder),
            "XDG_CONFIG_HOME": str(self._folder),
            "TERM": "xterm-256color",
        }
        script = f"TERM=screen-256color {command}; echo ended with $?; exec sleep 600"
        # Paths of tmux sockets must be short.
        subprocess.run([*self._server, "new-session", "-d", *size, script], check=True, env=environment)

    def send(self, *keys: str) -> None:
        subprocess.run([*self._server, "send-keys", *keys], check=True)

    def screen(self) -> str:
        process = subprocess.run(
            [*self._server, "capture-pane", "-p"], check=True, capture_output=True, text=True
        )
        return process.stdout

    def shows(self, *texts: str) -> str:
        """Wait for texts; returns the screen that has all of them."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{texts} did not appear:\n{self.screen()}")

    def close(self) -> None:
        subprocess.run([*self._server, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal_of_test = Terminal(tmp_path_factory.mktemp("t"), (80, 24))
    yield terminal_of_test
    terminal_of_test.close()


@needs_tmux
def test_a_query_typed_into_the_demo_shows_its_results(terminal: Terminal) -> None:
    terminal.run("demo")
    terminal.shows("coppola pacino", "Al Pacino")
    terminal.send("coppola keaton")
    terminal.shows("coppola 3", "keaton 2")
    terminal.send("Enter")
    terminal.shows("coppola keaton", "Diane Keaton")
    terminal.send("Escape")
    terminal.shows("open", "quit")
    terminal.send("F5")
    terminal.shows("films › metrics", "rows arriving")
    terminal.send("q")
    terminal.shows("ended with 0")
    assert "films › metrics" not in terminal.screen()


@needs_tmux
def test_a_missing_source_is_reported_on_the_screen(terminal: Terminal, tmp_path: Path) -> None:
    schema = ROOT / "examples" / "movies" / "schema.yaml"
    terminal.run("tui", "-s", str(schema), "--replay", "absent.jsonl", "--fresh")
    terminal.shows("absent.jsonl", "failed")
    terminal.send("C-q")
    terminal.shows("ended with 0")
