from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from skws.spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: starting it takes seconds."""
    session = start_session("local[2]")
    yield session
    session.stop()
