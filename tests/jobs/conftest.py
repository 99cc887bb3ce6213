from __future__ import annotations

import os

import pytest

from tests.postgres import database, postgres_server

__all__ = ["database", "postgres_server"]


@pytest.fixture(autouse=True)
def _no_loss_of_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests break off are processes, so nothing needs to wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
