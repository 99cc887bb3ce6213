from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, seed, settings
from pyspark.sql import SparkSession
from xdist.scheduler import LoadScopeScheduling

from skws.cli.main import run
from skws.spark.preloaded import PreloadedPython
from skws.spark.spark_session import start_session
from tests.commands import Outcome, Skws
from tests.strategies import THOROUGH

# Tests must not fail because the machine is busy.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time, so that only a change makes a test fail; `make test-all` draws new ones.
settings.register_profile("skws", patient, max_examples=100 if THOROUGH else 20, derandomize=not THOROUGH)
settings.load_profile("skws")

# A shell in the background, as in continuous integration, ignores this signal, and so do the processes
# it starts. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without compiled files on disk, each of the many processes compiles everything again, and pytest rewrites
# the assertions of all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# With Python's defaults, a quarter of the time is spent on collecting garbage among modules and tests.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish() -> None:
    """Freezes loaded objects: a full collection would scan all modules and tests for half a second."""
    gc.collect()
    gc.freeze()


WITHOUT_SESSION: Final = ("test_oracle_shards.py", "test_shard_server.py", "test_executor_packages.py")
"""Files of ``tests/spark`` that need no session, so any process can run them."""


def unit(nodeid: str) -> str:
    """The work of one process: a file, or all tests that use Spark, so that a single session is started."""
    file = nodeid.partition("::")[0]
    return "spark" if "spark" in nodeid and not file.endswith(WITHOUT_SESSION) else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts tests on Spark first: the process that runs them gets its share of the files afterwards.

    Unless the tests are thorough, the name of a property test determines its examples. By default, they also
    depend on its text, so that rewording a docstring would change them.
    """
    items.sort(key=lambda item: unit(item.nodeid) != "spark")
    for item in items if not THOROUGH else ():
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            seed(item.nodeid.partition("[")[0])(item.obj)


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> UnitScheduling:
    return UnitScheduling(config, log)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Fails a test that leaves the signal ignored: later tests would wait forever for their processes."""
    yield
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Restores the thresholds of garbage collection, which commands run in this process change."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips syncs: tests kill processes, not the machine, so nothing needs to wait for the disk."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.fixture
def skws(capsys: pytest.CaptureFixture[str]) -> Skws:
    """Runs a command line in this process."""

    def invoke(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        output = capsys.readouterr()
        return Outcome(code, output.out, output.err)

    return invoke


@contextmanager
def use_python(python: PreloadedPython) -> Iterator[None]:
    """A context in which Spark's processes run this Python."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            environment.setenv(name, str(python.program))
        yield


@pytest.fixture(scope="session")
def spark_python() -> Iterator[PreloadedPython]:
    """A Python with the modules of the eight processes of a streaming query, which are forked from it."""
    python = PreloadedPython()
    yield python
    python.close()


@pytest.fixture(scope="session")
def spark_session(spark_python: PreloadedPython) -> Iterator[SparkSession]:
    """One session for all tests, as starting it takes seconds."""
    with use_python(spark_python):
        session = start_session("local[2]")
    # There are few rows: compiling code for them, as Spark does, takes a quarter of the time of searches.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()


@pytest.fixture
def spark(
    request: pytest.FixtureRequest, spark_session: SparkSession, spark_python: PreloadedPython
) -> Iterator[SparkSession]:
    """The session, and the Python for processes that are started next to it."""
    assert unit(request.node.nodeid) == "spark", (
        "the path or name of a test on Spark must contain 'spark': one process runs them all"
    )
    with use_python(spark_python):
        yield spark_session


@contextmanager
def partitioned(spark: SparkSession, number: int) -> Iterator[SparkSession]:
    """The session, with that number of state partitions."""
    previous = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    spark.conf.set("spark.sql.shuffle.partitions", str(number))
    try:
        yield spark
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", previous)


@pytest.fixture
def spark_one(spark: SparkSession) -> Iterator[SparkSession]:
    with partitioned(spark, 1):
        yield spark


@pytest.fixture
def spark_two(spark: SparkSession) -> Iterator[SparkSession]:
    with partitioned(spark, 2):
        yield spark
