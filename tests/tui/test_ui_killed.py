"""The terminal UI leaves no process behind: not when it is killed, nor when its terminal or page is gone."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from skws.cli.demo import movie_files
from tests.spark.streaming.test_killed_streaming import MARK, processes_of
from tests.tui.ui import SPEED
from tests.waiting import PATIENCE, until

Ends = tuple[int, int]


@contextmanager
def ui(
    stdin: int, stdout: int, folder: Path, engine: str, more: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The terminal UI over the demo's stream, in a session that no terminal controls."""
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


def until_shown(terminal: int, sign: str) -> None:
    shown = ""
    end = time.monotonic() + PATIENCE
    while sign not in shown:
        assert time.monotonic() < end, shown[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sign", ["starting the engine", "Vincent Vega"])
def test_nothing_outlives_an_app_that_is_killed(sign: str, tmp_path: Path) -> None:
    mark = uuid4().hex
    ours, theirs = pty.openpty()
    with ui(theirs, theirs, tmp_path, "spark", {MARK: mark}) as app:
        until_shown(ours, sign)
        until(lambda: len(processes_of(mark, "")) > 2)
        app.kill()
    until(lambda: not processes_of(mark, ""), state=lambda: processes_of(mark, ""))
    os.close(ours)
    os.close(theirs)


def terminal() -> tuple[Ends, Ends]:
    """Our ends of the app's input and output, and its own."""
    ours, theirs = pty.openpty()
    return (os.dup(ours), ours), (os.dup(theirs), theirs)


def pipes() -> tuple[Ends, Ends]:
    (stdin, to_stdin), (from_stdout, stdout) = os.pipe(), os.pipe()
    return (to_stdin, from_stdout), (stdin, stdout)


@pytest.mark.parametrize(
    ("ends", "environment"),
    [
        (terminal, {}),
        (pipes, {"SKWS_SERVED": "1", "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver"}),
    ],
    ids=["terminal", "page"],
)
def test_the_app_ends_when_its_terminal_or_the_server_of_its_page_is_killed(
    ends: Callable[[], tuple[Ends, Ends]], environment: dict[str, str], tmp_path: Path
) -> None:
    ours, theirs = ends()
    with ui(*theirs, tmp_path, "local", environment) as app:
        for end in theirs:
            os.close(end)
        until_shown(ours[1], "Vincent Vega")
        for end in ours:  # as the system does for a process that is killed
            os.close(end)
        # The latter where the tests themselves are run to ignore the signal.
        assert app.wait(PATIENCE) in (-signal.SIGHUP, 128 + signal.SIGHUP)
