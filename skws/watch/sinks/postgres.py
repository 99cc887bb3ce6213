"""Results in a table of a PostgreSQL database. While the server is away, the run waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import psycopg2
from psycopg2.extensions import connection, cursor
from psycopg2.extras import execute_batch

from schema.errors import NotYetError, SourceError
from skws.results.model import LiveResult
from skws.sources.postgres.address import Address
from skws.watch.sinks.base import NONE, Run, SinkError
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
# Five minutes, as sources have.
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 11.5, *(30.0,) * 9)

T = TypeVar("T")


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
        self._done = self._until_there(self._made)
        run.hold(self._done)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        """In one transaction; begun anew when the connection breaks."""
        if batch <= self._done or not results:
            return
        self._until_there(lambda cursor: self._write(cursor, batch, results))
        self._done = batch

    def flush(self) -> None:
        """Every batch is there for good when it is written."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _until_there(self, work: Callable[[cursor], T]) -> T:
        """What ``work`` gives in a transaction, begun anew while the server is away. Raises SinkError."""
        for pause in _PAUSES:
            try:
                return self._tried(work)
            except NotYetError as error:
                self._run.tell(f"{error}; trying again in {pause:g} s")
            except SourceError as error:
                raise SinkError(str(error)) from None
            self.close()
            if not self._run.wait(pause):
                raise SinkError(f"{self.name}: the server is away, and the run was ended meanwhile")
        raise SinkError(f"{self.name}: the server is away (tried for {sum(_PAUSES):g} seconds)")

    def _tried(self, work: Callable[[cursor], T]) -> T:
        """Raises NotYetError if the server is away, SourceError."""
        try:
            with self._connected() as connected, connected.cursor() as statement:
                return work(statement)
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            raise NotYetError(str(self._address.failure(error))) from None
        except psycopg2.Error as error:
            raise self._address.failure(error) from None

    def _made(self, statement: cursor) -> int:
        """The tables; gives the last batch that they have."""
        for each in self._statements.create:
            statement.execute(each)
        return self._progress(statement)

    def _write(self, statement: cursor, batch: int, results: Sequence[LiveResult]) -> None:
        # A commit whose answer was lost may have come to pass.
        if self._progress(statement) < batch:
            for each, rows in self._statements.of(results):
                execute_batch(statement, each, rows)
            statement.execute(self._statements.advance, (self._key, batch))

    def _connected(self) -> connection:
        """Raises SourceError."""
        if self._connection is None:
            self._connection = self._address.connected()
        return self._connection

    def _progress(self, statement: cursor) -> int:
        statement.execute(self._statements.progress, (self._key,))
        found = statement.fetchone()
        return int(found[0]) if found else NONE
