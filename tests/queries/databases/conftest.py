from __future__ import annotations

from pathlib import Path

import pytest

from skws.durable import CACHE
from tests.postgres import database, postgres_server

__all__ = ["database", "postgres_server"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Indexes are cached for a single test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE, str(folder))
    return folder
