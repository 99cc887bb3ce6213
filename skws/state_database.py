"""The state that a run needs to resume, in one SQLite database: ``CHECKPOINT/state.db``.

Every commit is durable before it returns, even if power is lost: SQLite syncs its rollback journal, the
database, and the journal again, after clearing its header (``synchronous = EXTRA``). Between two commits
``state.db`` holds everything. The journal stays beside it, without a valid header (``journal_mode =
PERSIST``): to create and remove a file at each commit takes longer than all syncs of data.

SQLite only detects damage to its own structure, which includes the index of names. So each row has a
checksum of its kind, name and value.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from threading import RLock, local
from typing import Any, Final, TypeAlias
from zlib import crc32

import orjson

from skws.durable import PRIVATE, damaged, explained, missing, sync_folder
from skws_schema.errors import StateError

NAME: Final = "state.db"
_SECONDS: Final = 60.0
"""The maximum time in seconds to wait while another process reads."""
_OUTSIDE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""Errors whose cause is outside the file; all others come from its content."""
_MAKE: Final = """CREATE TABLE state
    (kind TEXT, name TEXT, value BLOB, checksum INTEGER, PRIMARY KEY (kind, name))"""
_PUT: Final = "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)"


Statement: TypeAlias = tuple[str, Sequence[Any]]


class StateKind(StrEnum):
    """The kinds of values; each value has a name."""

    RUN = "run"
    """JSON: the settings of the run, the queries and schema of its last start, its last committed batch."""
    SINKS = "sinks"
    """JSON: the progress of each sink, by its address without password."""
    STATES = "states"
    """The state of each query that has one, as of the last committed micro-batch."""
    TABLES = "tables"
    """The rows of static tables at the first start, in numbered pieces."""


class StateDatabase:
    """An open database. Raises StateError, also for one that is ``missing`` or damaged.

    One process writes, from any of its threads. Others may read meanwhile (``read_only``).
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock = RLock()
        self._local = local()
        self._failed_statements: list[Statement] = []
        if read_only and not path.exists():
            raise missing(path)
        if not read_only:
            self._secure()
        with self._error_boundary("read"):
            self._connection = sqlite3.connect(path, timeout=_SECONDS, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Retry commits that failed, and close."""
        with suppress(StateError):
            self._commit(())
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the writes of this thread together at the end, or none of them if anything fails.

        Nothing is locked meanwhile. Reads do not see the writes before the end.
        """
        outer_statements, statements = self._pending, list[Statement]()
        self._pending = statements
        try:
            yield
        finally:
            self._pending = outer_statements
        self._add(statements)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Like ``transaction``, but if anything fails, the writes before it are committed.

        So several writers share the cost of one sync, and each keeps its own writes.
        """
        statements = list[Statement]()
        self._pending = statements
        try:
            yield
        except BaseException:
            self._pending = None
            with suppress(StateError):
                self._commit(statements)
            raise
        self._pending = None
        self._commit(statements)

    def put(self, kind: StateKind, name: str, value: bytes) -> None:
        """Set a value."""
        self._add([(_PUT, _row(kind, name, value))])

    def put_json(self, kind: StateKind, name: str, value: Any) -> None:
        self.put(kind, name, orjson.dumps(value))

    def clear(self, kind: StateKind) -> None:
        """Remove all values of a kind."""
        self._add([("DELETE FROM state WHERE kind = ?", (kind,))])

    def get(self, kind: StateKind, name: str) -> bytes | None:
        """A value; None if there is none."""
        rows = self._rows("SELECT * FROM state WHERE kind = ? AND name = ?", (kind, name))
        if not rows:
            return None
        value = rows[0][2]
        if not isinstance(value, bytes) or rows[0] != _row(kind, name, value):
            raise damaged(self.path, f" ({kind}: {name})")
        return value

    def get_json(self, kind: StateKind, name: str) -> Any:
        """A JSON value; None if there is none."""
        value = self.get(kind, name)
        return None if value is None else orjson.loads(value)

    def items(self, kind: StateKind) -> Iterator[tuple[str, bytes]]:
        """All names with their values, in order of names; one value at a time is in memory."""
        for (name,) in self._rows("SELECT name FROM state WHERE kind = ? ORDER BY name", (kind,)):
            value = self.get(kind, name)
            if value is not None:
                yield name, value

    @property
    def _pending(self) -> list[Statement] | None:
        """The writes of this thread in a transaction; None outside of one."""
        statements: list[Statement] | None = getattr(self._local, "statements", None)
        return statements

    @_pending.setter
    def _pending(self, statements: list[Statement] | None) -> None:
        self._local.statements = statements

    def _add(self, statements: Sequence[Statement]) -> None:
        pending = self._pending
        if pending is None:
            self._commit(statements)
        else:
            pending.extend(statements)

    def _commit(self, statements: Sequence[Statement]) -> None:
        """Commit the writes of earlier calls that failed, then these."""
        with self._error_boundary("write"):
            self._failed_statements += statements
            if self._failed_statements:
                with self._connection:
                    for statement, values in self._failed_statements:
                        self._connection.execute(statement, values)
                self._failed_statements.clear()

    def _rows(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._error_boundary("read"):
            return self._connection.execute(statement, values).fetchall()

    def _secure(self) -> None:
        """Make the last commit of an earlier process durable, as its last sync may have failed.

        A new file is for its owner alone; SQLite gives the files beside it the same mode.
        """
        with explained(f"{self.path}: cannot write"):
            # Before SQLite opens them: closing a file drops all locks that the process has on it.
            journal = Path(f"{self.path}-journal")
            for path in (journal, self.path) if journal.exists() else (self.path,):
                handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
            sync_folder(self.path.parent)

    def _prepare(self) -> None:
        self._connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        self._connection.execute("PRAGMA synchronous = EXTRA")
        self._connection.execute("PRAGMA journal_mode = PERSIST")
        if self._connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise damaged(self.path)
        if not self._connection.execute("SELECT 1 FROM sqlite_master").fetchall():
            with self._connection:
                self._connection.execute(_MAKE)

    @contextmanager
    def _error_boundary(self, action: str) -> Iterator[None]:
        """Lock the connection for this thread, and turn errors of SQLite into errors for the user."""
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR)
            if code & 0xFF in _OUTSIDE:
                raise StateError(f"{self.path}: cannot {action}: {error}") from None
            raise damaged(self.path) from None
        except UnicodeDecodeError:  # of a message that quotes the file
            raise damaged(self.path) from None


def _row(kind: StateKind, name: str, value: bytes) -> tuple[str, str, bytes, int]:
    return str(kind), name, value, crc32(value, crc32(f"{kind}/{name}/".encode()))
