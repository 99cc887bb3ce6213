"""Results in a table of a PostgreSQL database. While the server is unavailable, the run waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import psycopg2
from psycopg2.extensions import connection, cursor
from psycopg2.extras import execute_batch

from skws.sinks.base import persistently
from skws.sinks.database_sink import DatabaseSink, ResultTable, Statements
from skws.sources.postgres.database_address import DatabaseAddress
from skws_schema.errors import NotYetError

_TYPES: Final = {
    "name": "text",
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
    "count": "numeric",
    "score": "double precision",
    "explanation": "jsonb",
}

T = TypeVar("T")


class PostgresSink(DatabaseSink[cursor]):
    """Writes to PostgreSQL; a transaction whose connection breaks is repeated."""

    def __init__(self, address: DatabaseAddress, table: ResultTable) -> None:
        super().__init__(Statements(table, "%s", _TYPES), table)
        self._address = address
        self.place = "postgresql", address.identity, table.name
        self._connection: connection | None = None

    @classmethod
    def of(cls, uri: str, table: ResultTable) -> PostgresSink:
        """The table in the database at a URI. Raises UsageError."""
        return cls(DatabaseAddress.of(uri), table)

    @property
    def name(self) -> str:
        return self._address.shown

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _transaction(self, work: Callable[[cursor], T]) -> T:
        return persistently(self._run, self.name, lambda: self._attempt(work))

    def _attempt(self, work: Callable[[cursor], T]) -> T:
        """Raises NotYetError if the server is unavailable, SourceError."""
        try:
            if self._connection is None:
                self._connection = self._address.connect()
            with self._connection as open_connection, open_connection.cursor() as statement:
                return work(statement)
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            self.close()
            raise NotYetError(str(self._address.failure(error))) from None
        except psycopg2.Error as error:
            raise self._address.failure(error) from None

    def _has(self, cursor: cursor, table: str) -> bool:
        table_name = '"' + table.replace(".", '"."') + '"'
        (exists,) = self._execute(cursor, "SELECT to_regclass(%s) IS NOT NULL", (table_name,))
        return bool(exists)

    def _execute(self, cursor: cursor, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor.execute(statement, values)
        return cursor.fetchone() if cursor.description else None

    def _execute_many(self, cursor: cursor, statement: str, rows: list[tuple[Any, ...]]) -> None:
        execute_batch(cursor, statement, rows)
