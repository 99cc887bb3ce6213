"""Locks on tables while they are copied, and the holders of conflicting locks.

A snapshot does not cover a table whose file is replaced: after a TRUNCATE or an
ALTER TABLE that rewrites it, the table is empty, whatever the snapshot has. A
lock prevents that from then on; the tables' files show whether it happened
between the snapshot and the lock. No lock is waited for: a waiting lock blocks
all later users of the table, and making a slot waits for transactions that may
wait for our locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from psycopg2.errors import LockNotAvailable
from psycopg2.extensions import connection, cursor
from psycopg2.sql import SQL

from skws.sources.postgres.catalog import Table
from skws_schema.errors import NotYetError

# Materialized views and foreign tables take no LOCK; a refresh leaves rows that every snapshot sees.
_LOCKABLE: Final = frozenset("rpv")
# Finds tables or partitions that are not locked, or whose file is not that of the snapshot: statements read
# the catalog as of the snapshot, functions as it is now.
_CHANGED: Final = """
    WITH RECURSIVE meant (oid) AS (
        SELECT unnest(%s::oid[])
        UNION SELECT i.inhrelid FROM pg_inherits i JOIN meant m ON i.inhparent = m.oid),
    held (oid) AS (
        SELECT DISTINCT relation FROM pg_locks
        WHERE locktype = 'relation' AND pid = pg_backend_pid() AND relation::bigint >= 16384)
    SELECT coalesce(c.relname::text, oid::regclass::text)
    FROM meant FULL JOIN held USING (oid) LEFT JOIN pg_class c USING (oid)
    WHERE held.oid IS NULL OR c.relfilenode IS DISTINCT FROM coalesce(pg_relation_filenode(oid), 0)
    ORDER BY 1"""
_CHANGE_WAIT: Final = "SET LOCAL lock_timeout = '2s'"
_HOLDERS: Final = """
    WITH RECURSIVE meant (oid) AS (
        SELECT unnest(%s::oid[])
        UNION SELECT i.inhrelid FROM pg_inherits i JOIN meant m ON i.inhparent = m.oid)
    SELECT l.relation::regclass::text, a.pid, a.usename, a.application_name, a.state, a.query
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation IN (SELECT oid FROM meant)
      AND l.mode = ANY(%s) AND l.pid IS DISTINCT FROM pg_backend_pid()
    ORDER BY l.granted DESC, l.pid
    LIMIT 1"""
# Modes that block reading, and adding the table to a publication.
_UNREADABLE: Final = ("AccessExclusiveLock",)
_UNCHANGEABLE: Final = (
    *_UNREADABLE,
    "ExclusiveLock",
    "ShareRowExclusiveLock",
    "ShareLock",
    "ShareUpdateExclusiveLock",
)


def lock_tables(connected: connection, tables: Iterable[Table], shown: str) -> None:
    """Lock tables against all but reading and writing of rows, until the transaction ends.

    Raises NotYetError that names the table and the holder of its lock, psycopg2.Error.
    """
    lockable = [table for table in tables if table.kind in _LOCKABLE]
    if not lockable:
        return
    names = SQL(", ").join(table.quoted for table in lockable)
    with connected.cursor() as statement:
        try:
            statement.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE NOWAIT").format(names))
        except LockNotAvailable as error:
            connected.rollback()
            reason = _holder(statement, lockable, _UNREADABLE) or str(error).splitlines()[0]
            raise NotYetError(f"{shown}: cannot take the snapshot: {reason}") from None


def check_files(connected: connection, tables: Iterable[Table], shown: str) -> None:
    """Check that locked tables are as in the transaction's snapshot. Raises NotYetError, psycopg2.Error."""
    oids = [table.oid for table in tables if table.kind in _LOCKABLE]
    with connected.cursor() as statement:
        statement.execute(_CHANGED, (oids,))
        changed = ", ".join(name for (name,) in statement.fetchall())
    if changed:
        raise NotYetError(
            f"{shown}: {changed}: emptied, rewritten or created again since the snapshot was taken;"
            " it is taken again"
        )


@contextmanager
def publishing(connected: connection, tables: Sequence[Table], shown: str) -> Iterator[cursor]:
    """A transaction that adds tables to a publication, without waiting long for locks.

    Raises NotYetError that names the table and the holder of its lock.
    """
    try:
        with connected, connected.cursor() as statement:
            statement.execute(_CHANGE_WAIT)
            yield statement
    except LockNotAvailable as error:
        with connected, connected.cursor() as statement:
            reason = _holder(statement, tables, _UNCHANGEABLE) or str(error).splitlines()[0]
        raise NotYetError(f"{shown}: cannot create the publication: {reason}") from None


def _holder(statement: cursor, tables: Sequence[Table], modes: Sequence[str]) -> str:
    """A table that is locked in one of ``modes``, or about to be, and by whom; empty if there is none."""
    statement.execute(_HOLDERS, ([table.oid for table in tables], list(modes)))
    found = statement.fetchone()
    if found is None:
        return ""
    table, pid, user, application, state, query = found
    if pid is None:
        return f"{table} is locked by a prepared transaction (pg_prepared_xacts)"
    return f"{table} is locked by the server's process {pid} ({client_of(user, application, state, query)})"


def client_of(*known: str | None) -> str:
    """A process as ``pg_stat_activity`` shows it, its statement last.

    Of the statement two words, as the rest may be secret.
    """
    *about, query = (text or "" for text in known)
    return ", ".join(part for part in (*about, " ".join(query.split()[:2])) if part)
