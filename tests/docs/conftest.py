from __future__ import annotations

from tests.postgres import database, postgres_server

__all__ = ["database", "postgres_server"]
