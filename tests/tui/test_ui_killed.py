"""The terminal UI leaves no process behind if it is killed, or if its terminal closes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from skws.cli.demo import movie_files
from tests.spark.streaming.test_killed_streaming import MARK, processes_of
from tests.tui.ui import SPEED
from tests.waiting import PATIENCE, until


@contextmanager
def ui(
    stdin: int, stdout: int, folder: Path, engine: str, more: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The terminal UI over the demo's stream, in a session without a controlling terminal."""
    schema, replay = movie_files()
    command = [sys.executable, "-m", "skws", "tui", "tarantino", "travolta", "--fresh", "--engine", engine]
    command += ["--schema", str(schema), "--source", f"replay:{replay}?speed={SPEED}"]
    folders = {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TERM": "xterm-256color"}
    with subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stdout,
        env={**os.environ, **folders, **more},
        start_new_session=True,
    ) as app:
        try:
            yield app
        finally:
            app.kill()


def until_shown(terminal: int, text: str) -> None:
    output = ""
    end = time.monotonic() + PATIENCE
    while text not in output:
        assert time.monotonic() < end, output[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 1 << 16).decode(errors="replace")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("text", ["starting the engine", "Vincent Vega"])
def test_no_process_outlives_a_killed_app(text: str, tmp_path: Path) -> None:
    mark = uuid4().hex
    controller, terminal = pty.openpty()
    with ui(terminal, terminal, tmp_path, "spark", {MARK: mark}) as app:
        until_shown(controller, text)
        until(lambda: len(processes_of(mark, "")) > 2)
        app.kill()
    until(lambda: not processes_of(mark, ""), state=lambda: processes_of(mark, ""))
    os.close(controller)
    os.close(terminal)


def test_the_app_ends_with_its_terminal(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    with ui(terminal, terminal, tmp_path, "local", {}) as app:
        os.close(terminal)
        until_shown(controller, "Vincent Vega")
        os.close(controller)  # as the system does if a terminal is killed
        # The second code occurs if the tests themselves ignore the signal.
        assert app.wait(PATIENCE) in (-signal.SIGHUP, 128 + signal.SIGHUP)
