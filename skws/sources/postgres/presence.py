"""Detects tables and partitions that are dropped while they are followed, which the log does not report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from psycopg2.extensions import cursor

from skws.sources.postgres.catalog import CatalogTable

_TABLES: Final = "SELECT c.oid FROM pg_class c WHERE c.oid = ANY(%s::oid[])"
_LEAVES: Final = """
    SELECT leaf.relid::oid::bigint, root.oid::bigint, leaf.relid::regclass::text
    FROM pg_class root, pg_partition_tree(root.oid) leaf
    WHERE root.oid = ANY(%s::oid[]) AND leaf.isleaf"""
_NAME: Final = """
    SELECT n.nspname::text, c.relname::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s"""


def name_of(statement: cursor, oid: int) -> tuple[str, str] | None:
    """The present namespace and name of a table; None if it was dropped. Raises psycopg2.Error."""
    statement.execute(_NAME, (oid,))
    row: tuple[str, str] | None = statement.fetchone()
    return row


class FollowedTables:
    """Reports once each table and partition that was dropped."""

    def __init__(self, tables: Iterable[CatalogTable]) -> None:
        self._tables = {table.oid: table for table in tables}
        self._leaves: dict[int, tuple[int, str]] = {}
        """The root and name of each partition, by number."""

    def dropped_notices(self, statement: cursor) -> list[str]:
        """Notices of tables and partitions dropped since the last call. Raises psycopg2.Error."""
        statement.execute(_TABLES, (list(self._tables),))
        oids = {oid for (oid,) in statement.fetchall()}
        dropped = [self._tables.pop(oid) for oid in self._tables.keys() - oids]
        notices = [
            f"{table.full_name} was dropped, or dropped and created again: its rows stay in the search,"
            " and its changes are no longer read; start a new run"
            for table in dropped
        ]
        roots = {oid: table for oid, table in self._tables.items() if table.kind == "p"}
        if not roots:
            return notices
        statement.execute(_LEAVES, (list(roots),))
        leaves = {leaf: (root, name) for leaf, root, name in statement.fetchall()}
        removed = [(root, name) for leaf, (root, name) in self._leaves.items() if leaf not in leaves]
        self._leaves = leaves
        return notices + [
            f"{name} is no longer a partition of {roots[root].full_name}, and may have been dropped: its rows"
            " stay in the search until their window ends, since the log does not report this"
            for root, name in sorted(removed)
            if root in roots
        ]
