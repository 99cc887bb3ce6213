from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.kafka import MockBroker
from tests.postgres import database, postgres_server

__all__ = ["database", "many_files", "postgres_server"]

FILES = 1024  # more than select can handle


@pytest.fixture(autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inferred schemas and caches of tests are not saved for the user who runs them."""
    folder = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockBroker]:
    with closing(MockBroker()) as broker:
        yield broker


@pytest.fixture
def many_files() -> Iterator[None]:
    """Open so many files that the descriptor of the next one is too large for select."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft_limit if soft_limit == resource.RLIM_INFINITY else max(soft_limit, 2 * FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
    descriptors = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while descriptors[-1] < FILES:
            descriptors.append(os.dup(descriptors[0]))
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))
