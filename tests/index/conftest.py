from __future__ import annotations

from tests.cli.conftest import skws
from tests.postgres import database, postgres_server

__all__ = ["database", "postgres_server", "skws"]
