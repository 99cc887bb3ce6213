"""Fixtures of the server's tests, which need the extra ``serve``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.postgres import database, postgres_server
from tests.serve.serving import Serving, serving, shop

__all__ = ["database", "postgres_server"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Serving]:
    """A server over a growing file, without a checkpoint."""
    schema, stream = shop(folder)
    with serving(str(stream), "--schema", str(schema), "--window", "1 hour") as server:
        yield server


@pytest.fixture
def client(served: Serving) -> Iterator[httpx.Client]:
    with served.client() as http_client:
        yield http_client
