"""The snapshot, copied to files: the rows of all tables at the creation of the slot.

The copy spares the database a long transaction while a search reads the rows, and can be read again after a
crash, unlike a snapshot of PostgreSQL. The files are in the format of COPY (``copied.py``); a header, written
last, marks them as complete, with their checksum and their position in the log.

A snapshot does not cover a table whose file is replaced: after a TRUNCATE, or an ALTER TABLE that rewrites
it, the table is empty in the snapshot. A lock prevents that; the tables' files show whether it happened
between the snapshot and the lock. The code never waits for a lock: a waiting lock blocks all later users of
the table, and the creation of a slot waits for transactions that may wait for our locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import orjson
from psycopg2.errors import InsufficientPrivilege, LockNotAvailable
from psycopg2.extensions import connection, cursor
from psycopg2.sql import SQL, Identifier, Literal

from skws.data.batch import Chunk, Ints
from skws.durable import (
    PRIVATE,
    decode_frame,
    encode_frame,
    explained,
    file_digest,
    replace_file,
    sync_folder,
)
from skws.sources.postgres.catalog import CatalogTable
from skws.sources.postgres.numerics import AS_TEXT
from skws.sources.postgres.replica_identity import sql_name
from skws_mesh.columnar.columns import NOTHING
from skws_schema.errors import NotYetError, SourceError
from skws_schema.model import Schema

if TYPE_CHECKING:
    from skws.sources.postgres.copied import CopiedRows

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


def lock_tables(conn: connection, tables: Iterable[CatalogTable], shown: str) -> None:
    """Lock tables against everything except reading and writing of rows, until the transaction ends.

    Raises NotYetError with the table and the holder of its lock, psycopg2.Error.
    """
    lockable = [table for table in tables if table.kind in _LOCKABLE]
    if not lockable:
        return
    names = SQL(", ").join(table.quoted for table in lockable)
    with conn.cursor() as statement:
        try:
            statement.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE NOWAIT").format(names))
        except LockNotAvailable as error:
            conn.rollback()
            reason = _holder(statement, lockable, _UNREADABLE) or str(error).splitlines()[0]
            raise NotYetError(f"{shown}: cannot take the snapshot: {reason}") from None


def check_files(conn: connection, tables: Iterable[CatalogTable], shown: str) -> None:
    """Check that locked tables have not changed since the snapshot. Raises NotYetError, psycopg2.Error."""
    oids = [table.oid for table in tables if table.kind in _LOCKABLE]
    with conn.cursor() as statement:
        statement.execute(_CHANGED, (oids,))
        names = ", ".join(name for (name,) in statement.fetchall())
    if names:
        raise NotYetError(
            f"{shown}: {names}: emptied, rewritten or created again since the snapshot was taken;"
            " it is taken again"
        )


@contextmanager
def publishing(conn: connection, tables: Sequence[CatalogTable], shown: str) -> Iterator[cursor]:
    """A transaction that adds tables to a publication, without waiting long for locks.

    Raises NotYetError that names the table and the holder of its lock.
    """
    try:
        with conn, conn.cursor() as statement:
            statement.execute(_CHANGE_WAIT)
            yield statement
    except LockNotAvailable as error:
        with conn, conn.cursor() as statement:
            reason = _holder(statement, tables, _UNCHANGEABLE) or str(error).splitlines()[0]
        raise NotYetError(f"{shown}: cannot create the publication: {reason}") from None


def _holder(statement: cursor, tables: Sequence[CatalogTable], modes: Sequence[str]) -> str:
    """A table that is locked in one of ``modes``, or about to be, and the holder; empty if there is none."""
    statement.execute(_HOLDERS, ([table.oid for table in tables], list(modes)))
    row = statement.fetchone()
    if row is None:
        return ""
    table, pid, user, application, state, query = row
    if pid is None:
        return f"{table} is locked by a prepared transaction (pg_prepared_xacts)"
    return f"{table} is locked by the server's process {pid} ({client_of(user, application, state, query)})"


def client_of(*names: str | None) -> str:
    """A process from ``pg_stat_activity``, with two words of its statement, as the rest may be secret."""
    *client, query = (text or "" for text in names)
    return ", ".join(part for part in (*client, " ".join(query.split()[:2])) if part)


def line_order(path: Path, rows: CopiedRows) -> tuple[Ints, Ints]:
    """The first and last offsets of the lines of a snapshot, by time; lines without a time are first.

    Takes 16 bytes of memory a row. Raises OSError.
    """
    times, ends = [NOTHING], [NOTHING]
    with path.open("rb") as file:
        for piece in _pieces(file):
            offset = file.tell() - len(piece)
            times.append(rows.times(piece))
            ends.append(_line_ends(piece) + offset)
    bounds = np.concatenate([[0], *ends])
    order = np.argsort(np.concatenate(times), kind="stable")
    return bounds[:-1][order], bounds[1:][order]


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time."""
    while lines := file.read(_PIECE):
        yield lines + file.readline() if not lines.endswith(b"\n") else lines


def _line_ends(lines: bytes) -> Ints:
    return np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == ord("\n")) + 1


_PIECE: Final = 1 << 22  # bytes


@dataclass(frozen=True, slots=True)
class SnapshotSpool:
    """The files of one slot's snapshot in ``folder``."""

    folder: Path
    slot: str

    @property
    def rows(self) -> Path:
        return self.folder / f"{self.slot}-rows.copy"

    @property
    def sorted(self) -> Path:
        """The rows of streams while they are sorted."""
        return self.folder / f"{self.slot}-sorted.copy"

    @property
    def tables(self) -> Path:
        """The rows of static tables."""
        return self.folder / f"{self.slot}-tables.copy"

    @property
    def header(self) -> Path:
        return self.folder / f"{self.slot}-snapshot.json"

    @property
    def marker(self) -> Path:
        """The file that exists while a slot and its snapshot are made, as an incomplete pair is useless."""
        return self.folder / f"{self.slot}-begun"

    def begin(self) -> None:
        """Remove the files of another run, and mark a new snapshot as begun."""
        self.remove()
        with _new_file(self.marker):
            sync_folder(self.folder)

    def point(self) -> tuple[int, int] | None:
        """Position and time of the snapshot; None if it is missing or incomplete."""
        header = self._header()
        return None if header is None else (header["lsn"], header["time"])

    def check_rows(self) -> None:
        """Raises SourceError if the streams' rows were damaged since the copy."""
        header = self._header()
        with _reading(self.rows):
            is_whole = header is not None and header["rows"] == file_digest(self.rows)
        if not is_whole:
            raise SourceError(
                f"{self.rows}: damaged: the run cannot continue from this snapshot"
                " (drop the slot, and start with a new --checkpoint)"
            )

    def finish(self, lsn: int, time: int) -> None:
        """Mark the files as complete."""
        with _writing(self.header):
            header = {"lsn": lsn, "time": time, "rows": file_digest(self.rows)}
            sync_folder(self.folder)  # the rows are durable before the header
            text = encode_frame(orjson.dumps(header), self.header.name)
            replace_file(self.header, text, durable=True, mode=PRIVATE)
            self.marker.unlink(missing_ok=True)

    def secure(self) -> None:
        """Make a complete snapshot durable, as its process may have been killed before doing so."""
        with _writing(self.header):
            sync_folder(self.folder)

    def sort(self, schema: Schema, time: int) -> None:
        """Sort the streams' rows by time, unless all have the snapshot's ``time``."""
        if not any(relation.time for relation in schema.relations if not relation.table):
            return
        with _new_file(self.sorted) as file:
            starts, ends = line_order(self.rows, self._rows_reader(schema, time))
            with self.rows.open("rb") as rows:
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                    rows.seek(start)
                    file.write(rows.read(end - start))
        with _writing(self.rows):
            self.sorted.replace(self.rows)

    def forget_rows(self) -> None:
        """Remove the streams' rows, once they are read. Raises SourceError."""
        with _writing(self.rows):
            self.rows.unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes of the streams' rows."""
        with _reading(self.rows):
            return self.rows.stat().st_size

    def remove(self) -> None:
        """Remove all files, the header first, as the others are ignored without it."""
        for path in (self.header, self.rows, self.sorted, self.tables, self.marker):
            with _writing(path):
                path.unlink(missing_ok=True)

    def _header(self) -> dict[str, Any] | None:
        try:
            text = decode_frame(self.header.read_bytes(), self.header.name)
        except OSError:
            return None
        return None if text is None else orjson.loads(text)

    def read_tables(self, schema: Schema) -> Iterator[Chunk]:
        """The rows of static tables. Raises SourceError."""
        rows = self._rows_reader(schema, 0)
        with _reading(self.tables), self.tables.open("rb") as file:
            for lines in _pieces(file):
                yield rows.read(lines, file.tell() - len(lines))

    def read_rows(self, schema: Schema, start: int, end: int) -> Chunk:
        """The streams' rows of lines that begin in a range of bytes. Raises SourceError."""
        point = self.point()
        time = point[1] if point is not None else 0
        with _reading(self.rows), self.rows.open("rb") as file:
            file.seek(start)
            lines = file.read(end - start)
        return self._rows_reader(schema, time).read(lines, start)

    def lines_end(self, start: int, limit: int) -> int:
        """The offset after ``limit`` of the streams' rows from ``start`` on, or after the last.

        Raises SourceError.
        """
        with _reading(self.rows), self.rows.open("rb") as file:
            file.seek(start)
            for lines in _pieces(file):
                ends = _line_ends(lines)
                if len(ends) >= limit:
                    return start + int(ends[limit - 1])
                start, limit = start + len(lines), limit - len(ends)
        return start

    def _rows_reader(self, schema: Schema, time: int) -> CopiedRows:
        # It loads Arrow, 40 MB that a run does not need after the snapshot.
        from skws.sources.postgres.copied import CopiedRows  # noqa: PLC0415

        return CopiedRows(schema, time, f"snapshot of {self.slot}")


_COPY: Final = SQL("COPY (SELECT {}, {} FROM {}) TO STDOUT")
_ITSELF: Final = SQL("{}")
_UNPADDED: Final = SQL("{}::text")  # for a char(n)
# The log has the changes of all rows: if policies hide rows from the role, the server refuses to copy.
_NO_ROW_SECURITY: Final = "SET LOCAL row_security = off"


def copy_tables(conn: connection, tables: Mapping[int, CatalogTable], schema: Schema, path: Path) -> None:
    """Write the rows of tables, by position of their relation.

    Raises psycopg2.Error, SourceError if the file cannot be written or the role may not read all rows.
    """
    with _new_file(path) as file, conn.cursor() as cursor:
        cursor.execute(_NO_ROW_SECURITY)
        for position, table in tables.items():
            relation = schema.relations[position]
            expressions = {column.name: _UNPADDED for column in table.columns if column.type == "bpchar"}
            expressions |= dict.fromkeys(table.numerics, AS_TEXT)
            names = [attribute.column for attribute in relation.attributes]
            statement = _COPY.format(
                Literal(position),
                SQL(", ").join(expressions.get(name, _ITSELF).format(Identifier(name)) for name in names),
                table.quoted if relation.table else table.only,  # the rows that are logged under its name
            )
            with _explain_rights(conn, table):
                cursor.copy_expert(statement.as_string(conn), file)


@contextmanager
def _explain_rights(conn: connection, table: CatalogTable) -> Iterator[None]:
    """Raises SourceError that says which right is missing."""
    try:
        yield
    except InsufficientPrivilege as error:
        user = conn.info.user
        raise SourceError(
            f"the role {user!r} may not read all rows of {table.full_name}: {str(error).splitlines()[0]}; it"
            " needs the right to SELECT and, where row-level security hides rows, ALTER ROLE"
            f" {sql_name(user)} BYPASSRLS, or to own the table: changes of hidden rows would still"
            " arrive"
        ) from None


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only its owner may read, as it contains data of the database."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


def _writing(path: Path) -> AbstractContextManager[None]:
    return explained(f"{path}: cannot write the snapshot", SourceError)


def _reading(path: Path) -> AbstractContextManager[None]:
    return explained(f"{path}: cannot read the snapshot", SourceError)
