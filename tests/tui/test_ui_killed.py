"""``kill -9`` of the terminal UI on Spark leaves none of its processes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.spark.streaming.test_killed_streaming import MARK, processes_of
from tests.waiting import PATIENCE, until


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sign", ["starting the engine", "Vincent Vega"])
def test_nothing_outlives_an_app_that_is_killed(sign: str, tmp_path: Path) -> None:
    mark = uuid4().hex
    ours, theirs = pty.openpty()
    folders = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "TERM": "xterm-256color"}
    # It is to make no archive beside the suite's other tests.
    env = {**os.environ, **folders, MARK: mark, "SKWS_NO_JAVA_ARCHIVE": "1"}
    app = subprocess.Popen(
        [sys.executable, "-m", "skws", "demo", "--engine", "spark"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    )
    try:
        _until_shown(ours, sign)
        until(lambda: len(processes_of(mark, "")) > 2)
    finally:
        app.send_signal(signal.SIGKILL)
        app.wait()
    until(lambda: not processes_of(mark, ""), state=lambda: processes_of(mark, ""))
    os.close(ours)
    os.close(theirs)


def _until_shown(terminal: int, sign: str) -> None:
    shown = ""
    end = time.monotonic() + PATIENCE
    while sign not in shown:
        assert time.monotonic() < end, shown[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
