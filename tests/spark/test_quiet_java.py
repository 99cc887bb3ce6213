"""Messages of Java about its own failures."""

from __future__ import annotations

import pytest

from tests.commands import python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAILING = """
from skws.spark.spark_session import start_session

jvm = start_session("local[1]").sparkContext._jvm
broken = jvm.java.io.IOException("Broken pipe")
thread = jvm.java.lang.Thread("listener")
jvm.java.lang.Thread.getDefaultUncaughtExceptionHandler().uncaughtException(thread, broken)
"""


def test_a_failing_thread_is_reported_in_one_line() -> None:
    process = python("-c", FAILING)
    assert process.code == 0, process.err
    (error_line,) = (line for line in process.err.splitlines() if "IOException" in line)
    assert "listener" in error_line
    assert error_line.endswith("java.io.IOException: Broken pipe")
    assert "\tat " not in process.err
