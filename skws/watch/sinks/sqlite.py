"""Results in a table of an SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skws.results.model import LiveResult
from skws.watch.sinks.base import NONE, Run, SinkError
from skws.watch.sinks.table import Retractions, Statements

_TYPES: Final = {
    "query": "TEXT NOT NULL",
    "id": "TEXT NOT NULL",
    "start": "REAL",
    "end": "REAL",
    "network": "TEXT NOT NULL",
    "tuples": "TEXT NOT NULL",
    "joins": "TEXT NOT NULL",
    "snapshot": "INTEGER NOT NULL",
    "retracted": "REAL",
    "batch": "INTEGER NOT NULL",
    "score": "REAL",
    "explanation": "TEXT",
}
_BUSY_SECONDS: Final = 30.0


class SqliteSink:
    """Upserts into ``table`` of the database at ``path``; both are made if they are not there."""

    every = 1.0

    def __init__(
        self,
        path: Path,
        table: str = "results",
        retractions: Retractions = Retractions.DELETE,
        scores: bool = False,
    ) -> None:
        self._path = path
        self._statements = Statements(table, retractions, "?", _TYPES, scores=scores)
        self._done = NONE

    @property
    def name(self) -> str:
        return f"sqlite:{self._path}"

    def open(self, run: Run) -> None:
        self._run = self._statements.progress_key(run.id)
        try:
            # Used by one thread at a time, though not always by the one that opened it.
            self._connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            with self._connection:
                for statement in self._statements.create:
                    self._connection.execute(statement)
            found = self._connection.execute(self._statements.progress, (self._run,)).fetchone()
        except sqlite3.Error as error:
            raise SinkError(f"{self._path}: {error}") from None
        self._done = found[0] if found else NONE
        run.hold(self._done)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if batch <= self._done or not results:
            return
        try:
            with self._connection:
                for statement, rows in self._statements.of(results):
                    self._connection.executemany(statement, rows)
                self._connection.execute(self._statements.advance, (self._run, batch))
        except sqlite3.Error as error:
            raise SinkError(f"{self._path}: {error}") from None
        self._done = batch

    def flush(self) -> None:
        """Every batch is there for good when it is written."""

    def close(self) -> None:
        self._connection.close()
