"""Results in a table of a PostgreSQL database. While the server is away, the run waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg2
from psycopg2.extensions import connection
from psycopg2.extras import execute_batch

from schema.errors import SourceError
from skws.results.model import LiveResult
from skws.sources.postgres.address import Address
from skws.watch.sinks.base import Run, SinkError
from skws.watch.sinks.marks import NONE
from skws.watch.sinks.table import Retractions, Statements

_TYPES: Final = {
    "query": "text",
    "id": "text",
    "start": "double precision",
    "end": "double precision",
    "network": "text NOT NULL",
    "tuples": "jsonb NOT NULL",
    "joins": "jsonb NOT NULL",
    "snapshot": "boolean NOT NULL",
    "retracted": "double precision",
    "batch": "bigint NOT NULL",
    "score": "double precision",
    "explanation": "jsonb",
}
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 30.0)


class PostgresSink:
    """Upserts into ``table`` of the database at ``address``; it is made if it is not there."""

    every = 1.0

    def __init__(
        self,
        address: Address,
        table: str = "results",
        retractions: Retractions = Retractions.DELETE,
        scores: bool = False,
    ) -> None:
        self._address = address
        self._statements = Statements(table, retractions, "%s", _TYPES, scores=scores)
        self._connection: connection | None = None
        self._done = NONE

    @property
    def name(self) -> str:
        return self._address.shown

    def open(self, run: Run) -> None:
        self._run = run
        self._key = self._statements.progress_key(run.id)
        try:
            with self._connected() as connected, connected.cursor() as cursor:
                for statement in self._statements.create:
                    cursor.execute(statement)
                self._done = self._progress()
        except SourceError as error:
            raise SinkError(str(error)) from None
        except psycopg2.Error as error:
            raise SinkError(str(self._address.failure(error))) from None

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        """In one transaction; begun anew when the connection breaks."""
        if batch <= self._done or not results:
            return
        pauses = iter(_PAUSES)
        while not self._written(batch, results):
            pause = next(pauses, None)
            if pause is None:
                raise SinkError(f"{self.name}: the server is away; {len(results):,} results wait for it")
            if not self._run.wait(pause):
                raise SinkError(f"{self.name}: the server is away, and the run was ended meanwhile")
        self._done = batch

    def flush(self) -> None:
        """Every batch is there for good when it is written."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _written(self, batch: int, results: Sequence[LiveResult]) -> bool:
        """False if the server is away."""
        try:
            with self._connected() as connected, connected.cursor() as cursor:
                # A commit whose answer was lost may have come to pass.
                if self._progress() >= batch:
                    return True
                for statement, rows in self._statements.of(results):
                    execute_batch(cursor, statement, rows)
                cursor.execute(self._statements.advance, (self._key, batch))
        except (psycopg2.OperationalError, psycopg2.InterfaceError, SourceError) as error:
            told = error if isinstance(error, SourceError) else self._address.failure(error)
            self._run.tell(f"{told}; trying again")
            self.close()
            return False
        except psycopg2.Error as error:
            raise SinkError(str(self._address.failure(error))) from None
        return True

    def _connected(self) -> connection:
        """Raises SourceError."""
        if self._connection is None:
            self._connection = self._address.connected()
        return self._connection

    def _progress(self) -> int:
        with self._connected().cursor() as cursor:
            cursor.execute(self._statements.progress, (self._key,))
            found = cursor.fetchone()
        return int(found[0]) if found else NONE
