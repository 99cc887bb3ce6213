"""The publication: which tables' changes the server sends. Made if it is not there, else checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg2.extensions import connection, cursor
from psycopg2.sql import SQL, Identifier, Literal

from schema.errors import SourceError
from skws.sources.postgres.catalog import Table

_OURS: Final = "made by skws"


def ensure_publication(connected: connection, name: str, tables: Sequence[Table]) -> None:
    """A publication of at least ``tables``. Raises SourceError if another one of that name lacks some."""
    with connected, connected.cursor() as statement:
        statement.execute(
            "SELECT pubinsert AND pubupdate AND pubdelete FROM pg_publication WHERE pubname = %s", (name,)
        )
        found = statement.fetchone()
        if found is None:
            _create(statement, name, tables)
        else:
            _check(statement, name, tables, whole=bool(found[0]))


def extend_publication(connected: connection, name: str, tables: Sequence[Table]) -> None:
    """Adds ``tables`` to a publication that skws made. Raises SourceError if another's lacks some."""
    with connected, connected.cursor() as statement:
        statement.execute(
            "SELECT 1 FROM pg_publication WHERE pubname = %s AND obj_description(oid, 'pg_publication') = %s",
            (name, _OURS),
        )
        if statement.fetchone() is None:
            _check(statement, name, tables, whole=True)
            return
        for table in _lacking(statement, name, tables):
            add = SQL("ALTER PUBLICATION {} ADD TABLE {}")
            statement.execute(add.format(Identifier(name), Identifier(table.namespace, table.name)))


def _create(statement: cursor, name: str, tables: Sequence[Table]) -> None:
    listed = SQL(", ").join(Identifier(t.namespace, t.name) for t in tables)
    create = SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
    statement.execute(create.format(Identifier(name), listed))
    statement.execute(SQL("COMMENT ON PUBLICATION {} IS {}").format(Identifier(name), Literal(_OURS)))


def _check(statement: cursor, name: str, tables: Sequence[Table], *, whole: bool) -> None:
    if not whole:
        raise SourceError(
            f"publication {name!r} leaves out inserts, updates or deletes"
            f" (ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate'))"
        )
    lacking = ", ".join(t.full_name for t in _lacking(statement, name, tables))
    if lacking:
        raise SourceError(
            f"publication {name!r} lacks {lacking} (ALTER PUBLICATION {name} ADD TABLE {lacking},"
            " and begin anew, or name another with ?publication=)"
        )


def _lacking(statement: cursor, name: str, tables: Sequence[Table]) -> list[Table]:
    statement.execute("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,))
    published = set(statement.fetchall())
    return [t for t in tables if (t.namespace, t.name) not in published]


def drop_publication(connected: connection, name: str) -> bool:
    """Drops a publication if skws has made it; whether it has."""
    with connected, connected.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_publication WHERE pubname = %s AND obj_description(oid, 'pg_publication') = %s",
            (name, _OURS),
        )
        if cursor.fetchone() is None:
            return False
        cursor.execute(SQL("DROP PUBLICATION {}").format(Identifier(name)))
    return True
