"""Messages of Java about its own failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAILING = """
from skws.spark.session import start_session

jvm = start_session("local[1]").sparkContext._jvm
broken = jvm.java.io.IOException("Broken pipe")
thread = jvm.java.lang.Thread("listener")
jvm.java.lang.Thread.getDefaultUncaughtExceptionHandler().uncaughtException(thread, broken)
"""


def test_a_thread_that_fails_is_told_in_a_line(tmp_path: Path) -> None:
    root = ROOT
    ended = subprocess.run(
        [sys.executable, "-c", FAILING],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    told = [line for line in ended.stderr.splitlines() if "IOException" in line]
    assert len(told) == 1
    assert "listener" in told[0]
    assert told[0].endswith("java.io.IOException: Broken pipe")
    assert "\tat " not in ended.stderr
