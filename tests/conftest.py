from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from skws.spark.session import start_session

# Started in the background, as continuous integration may be, a shell has this signal ignored, and so
# would have the processes that tests start and end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where the environment forbids to keep what was compiled, each of the many processes would compile it all.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A test that leaves the signal ignored would let others wait for processes that never end."""
    yield
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """What runs in process has garbage, and the files it holds, collected rarely, or keeps it for good."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: starting it takes seconds."""
    session = start_session("local[2]")
    yield session
    session.stop()
