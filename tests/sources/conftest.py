from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from tests.postgres import database, postgres_server

__all__ = ["database", "many_files", "postgres_server"]

FILES = 1024  # more than select can handle


@pytest.fixture
def many_files() -> Iterator[None]:
    """Open so many files that the descriptor of the next one is too large for select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft if soft == resource.RLIM_INFINITY else max(soft, 2 * FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] < FILES:
            opened.append(os.dup(opened[0]))
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
