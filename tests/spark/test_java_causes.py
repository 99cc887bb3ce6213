"""Errors from Java that mean a lost Python process, recognized by Spark's stack traces."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError

from skws.spark.faults import lost_process, skws_error
from skws.spark.local_java import use_java
from skws.spark.replay import reporting_stages

KILLED_WHILE_IDLE = """\
An error occurred while calling o123.load.
: java.io.IOException: Stream closed
\tat java.base/java.lang.ProcessBuilder$NullOutputStream.write(ProcessBuilder.java:445)
\tat java.base/java.io.DataOutputStream.flush(DataOutputStream.java:128)
\tat org.apache.spark.api.python.PythonWorkerFactory.$anonfun$stopWorker$2(PythonWorkerFactory.scala:527)
\tat scala.Option.foreach(Option.scala:437)
\tat org.apache.spark.sql.execution.python.PythonPlannerRunner.runInPython(PythonPlannerRunner.scala:123)
"""
KILLED_AT_ITS_START = """\
org.apache.spark.SparkException: EOFException occurred while reading the port number from the stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:382)
"""
NO_CONNECTION = """\
org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:328)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:310)
\t... 53 more
"""
NO_FORK = """\
java.lang.IllegalStateException: Python daemon failed to launch worker with code -1
\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:210)
"""
TASK = """\
org.apache.spark.SparkException: Job aborted due to stage failure: a task failed 1 times, most recent \
failure: Lost it in stage 3.0 (TID 3) (127.0.0.1 executor driver): java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:398)
\tat org.apache.spark.sql.execution.python.PythonArrowOutput$$anon$1.read(PythonArrowOutput.scala:112)
\tat org.apache.spark.sql.execution.SortExec.doExecute(SortExec.scala:114)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3122)
"""
NO_SUCH_PROGRAM = """\
java.io.IOException: Cannot run program "python9": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1073)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:361)
Caused by: java.io.IOException: error=2, No such file or directory
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1110)
\t... 7 more
"""
NO_PYSPARK = """\
org.apache.spark.SparkException:
Error from python worker:
  /usr/bin/python3: Error while finding module specification for 'pyspark.daemon'
PYTHONPATH was:
  /a.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from the stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:382)
"""
RAISED_IN_PYTHON = """\
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "a.py", line 3, in work
ValueError: of a bug

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
BEFORE_PYTHON = """\
java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\tat org.apache.spark.storage.DiskBlockObjectWriter.write(DiskBlockObjectWriter.scala:312)
\tat org.apache.spark.api.python.BasePythonRunner$WriterThread.run(PythonRunner.scala:421)
"""
NO_MEMORY = """\
java.lang.OutOfMemoryError: Java heap space
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:512)
"""


@pytest.mark.parametrize("trace", [KILLED_WHILE_IDLE, KILLED_AT_ITS_START, NO_CONNECTION, NO_FORK, TASK])
def test_a_lost_process_is_recognized(trace: str) -> None:
    assert lost_process(trace)


@pytest.mark.parametrize(
    "trace", [NO_SUCH_PROGRAM, NO_PYSPARK, RAISED_IN_PYTHON, BEFORE_PYTHON, NO_MEMORY, "", "at"]
)
def test_other_failures_are_not_a_lost_process(trace: str) -> None:
    assert lost_process(trace) is None


def test_a_missing_program_is_named() -> None:
    message = 'Spark failed: Cannot run program "python9": error=2, No such file or directory'
    assert str(skws_error(NO_SUCH_PROGRAM)) == message


def test_the_message_is_that_of_the_last_exception_of_its_line() -> None:
    assert lost_process(KILLED_WHILE_IDLE) == "a Python process has gone (Stream closed)"
    assert lost_process(TASK) == "a Python process has gone (EOFException)"
    assert lost_process(NO_CONNECTION) == "a Python process has gone (Python worker failed to connect back)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that has its version in a file and cannot be run."""
    java = tmp_path / "a java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "a java" / "release").write_text('IMPLEMENTOR="some"\nJAVA_VERSION="21.0.3"\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a java"))
    return java.parents[1]


def test_java_behind_a_wrapper_is_recognized(home: Path, tmp_path: Path) -> None:
    java = use_java()
    assert java == home / "bin" / "java"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "cache" / "skws" / "java")
    # Now the wrapper is found, and run for its version.
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.3\"' >&2\n")
    java.chmod(0o755)
    assert use_java() == java


def test_a_context_stopped_by_spark_is_reported() -> None:
    """For example, if no master answers for a minute."""
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
        "This stopped SparkContext was created at:\n\norg.apache.spark.api.java.JavaSparkContext.<init>\n"
    )
    assert str(skws_error(text)).startswith("Spark has stopped: its master does not answer")


def test_the_progress_of_stages_ends_quietly_with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def call_java() -> NoReturn:
        raise Py4JNetworkError("Answer from Java side is empty")

    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=call_java))
    with reporting_stages(spark, lambda _: None):
        pass
    assert failures == []
