"""Results as rows of a database table, one for each query and id, in one transaction per batch.

A second table, ``skws_progress``, holds the last batch of each run. It changes
in the same transaction, so that a batch is never written twice.
"""

from __future__ import annotations

import re
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import orjson

from skws.results.result import LiveResult
from skws.sinks.base import DESCRIBED, NONE, BatchSink, SinkError, SinkRun, persistently
from skws_schema.errors import NotYetError, SourceError, UsageError, nearest, shown

PROGRESS: Final = "skws_progress"
COLUMNS: Final = (*DESCRIBED, "retracted")
KEY: Final = ("name", "id")
"""An update replaces the row of its result; two queries may have results with the same id."""
COUNT: Final = "count"
"""A further column, for results that stand for several equal rows."""
SCORES: Final = ("score", "explanation")
"""Further columns of a table of ranked results, on request."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
# After an even number of backslashes: each pair is an escaped backslash.
_ZERO: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_SQLITE_TYPES: Final = {
    "name": "TEXT NOT NULL",
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
    "count": "NUMERIC",
    "score": "REAL",
    "explanation": "TEXT",
}
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

T = TypeVar("T")
Cursor = TypeVar("Cursor")


class Retractions(StrEnum):
    """What a retraction does to the row of its result."""

    DELETE = "delete"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The table of results. ``name`` may be qualified by a schema. ``scores`` adds the columns SCORES."""

    name: str = "results"
    retractions: Retractions = Retractions.DELETE
    scores: bool = False

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> ResultTable:
        """The table that ``PARAMETERS`` of an address describe. Raises UsageError."""
        name = parameters.get("table", cls().name)
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"table {shown(name)}: expected letters, digits and '_', optionally after SCHEMA."
            )
        retractions, choices = parameters.get("retractions", Retractions.DELETE), list(Retractions)
        if retractions not in choices:
            raise UsageError(
                f"retractions={retractions}: expected delete or mark{nearest(retractions, choices)}"
            )
        scores = parameters.get("scores", "no")
        if scores not in {"yes", "no"}:
            raise UsageError(f"scores={scores}: expected yes or no")
        return cls(name, Retractions(retractions), scores == "yes")


PARAMETERS: Final = ("table", "retractions", "scores")


class Statements:
    """The SQL of one table; ``mark`` is the placeholder of parameters, ``types`` are the database's."""

    def __init__(self, table: ResultTable, mark: str, types: dict[str, str]) -> None:
        self._table = table
        columns = COLUMNS + SCORES if table.scores else COLUMNS
        table_name = '"' + table.name.replace(".", '"."') + '"'
        text = types["query"]
        column_definitions = ", ".join(f'"{name}" {types[name]}' for name in (*columns, COUNT))
        key = ", ".join(_quoted(KEY))
        self.create_results = (
            f"CREATE TABLE IF NOT EXISTS {table_name} ({column_definitions}, PRIMARY KEY ({key}))"
        )
        self.create_progress = (
            f"CREATE TABLE IF NOT EXISTS {PROGRESS} (run {text} PRIMARY KEY, batch {types['batch']})"
        )
        # ``ResultTable.of`` has checked the name; values are parameters.
        self._put, self._put_counted = (
            f"INSERT INTO {table_name} ({', '.join(_quoted(names))})"  # noqa: S608
            f" VALUES ({', '.join([mark] * len(names))}) ON CONFLICT ({key}) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in _quoted(names) if name not in _quoted(KEY))
            for names in (columns, (*columns, COUNT))
        )
        where = "WHERE " + " AND ".join(f'"{name}" = {mark}' for name in KEY)
        self._delete = f"DELETE FROM {table_name} {where}"  # noqa: S608
        self._retract = f'UPDATE {table_name} SET "retracted" = {mark} {where}'  # noqa: S608
        self.progress = f"SELECT batch FROM {PROGRESS} WHERE run = {mark}"  # noqa: S608
        self.advance = (
            f"INSERT INTO {PROGRESS} (run, batch) VALUES ({mark}, {mark})"  # noqa: S608
            " ON CONFLICT (run) DO UPDATE SET batch = excluded.batch"
        )

    def progress_key(self, run: str) -> str:
        return f"{run} {self._table.name}"

    def of(self, results: Sequence[LiveResult]) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
        """Statements with their parameters in order; equal consecutive statements are combined."""
        groups: list[tuple[str, list[tuple[Any, ...]]]] = []
        for result in results:
            statement, values = self._statement_for(result)
            if not groups or groups[-1][0] != statement:
                groups.append((statement, []))
            groups[-1][1].append(values)
        return groups

    def _statement_for(self, result: LiveResult) -> tuple[str, tuple[Any, ...]]:
        if result.op != "-":
            row = (*_row(result), *(_score(result) if self._table.scores else ()))
            # As text, since it may have more than 64 bits.
            return (
                (self._put, row) if result.count is None else (self._put_counted, (*row, str(result.count)))
            )
        if self._table.retractions is Retractions.DELETE:
            return self._delete, _key(result)
        return self._retract, (result.end, *_key(result))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _json(value: object) -> str:
    """A value as JSON text; U+0000, which PostgreSQL cannot store, is replaced."""
    text = orjson.dumps(value).decode()
    return _ZERO.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def _text(value: str) -> str:
    """A text without U+0000, as in ``_json``."""
    return value.replace("\0", "\ufffd")


def _key(result: LiveResult) -> tuple[str, str]:
    return _text(result.name), result.id


def _row(result: LiveResult) -> tuple[Any, ...]:
    fields = result.to_dict()
    tuples, joins = (_json(fields.get(name, [])) for name in ("tuples", "joins"))
    name, identity = _key(result)
    network = _text(fields.get("network", ""))
    times = result.start, result.end
    return (name, _text(result.query), identity, *times, network, tuples, joins, result.snapshot, None)


def _score(result: LiveResult) -> tuple[Any, ...]:
    """The score and its explanation; None for what the result does not have."""
    fields = result.to_dict()
    explanation = fields.get("explanation")
    return fields.get("score"), None if explanation is None else _json(explanation)


class DatabaseSink(BatchSink, Generic[Cursor]):
    """Upserts into a table, which is created if it is missing; each batch is durable once it is written."""

    def __init__(self, statements: Statements, table: ResultTable) -> None:
        super().__init__()
        self._statements = statements
        self._table = table

    def _opened(self, run: SinkRun) -> int:
        self._key = self._statements.progress_key(run.id)
        last_batch, has_table = self._transaction(self._create_tables)
        if not has_table and (last_batch != NONE or run.repeating):
            run.tell(
                f"{self.name}: no table {self._table.name}: it is created again, without earlier results"
            )
        return last_batch

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        self._transaction(lambda cursor: self._write(cursor, batch, results))
        self._done = batch

    def _keep(self, batch: int) -> None:
        """Does nothing: each batch is durable once it is written."""

    @abstractmethod
    def _transaction(self, work: Callable[[Cursor], T]) -> T:
        """The result of ``work`` in a transaction. Raises SinkError."""

    @abstractmethod
    def _has(self, cursor: Cursor, table: str) -> bool:
        """True if there is a table or view of a name, which may be qualified by a schema."""

    @abstractmethod
    def _execute(self, cursor: Cursor, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement's result, or None."""

    @abstractmethod
    def _execute_many(self, cursor: Cursor, statement: str, rows: list[tuple[Any, ...]]) -> None: ...

    def _create_tables(self, cursor: Cursor) -> tuple[int, bool]:
        """Create the tables; returns the last batch, and True if the table of results existed before."""
        self._execute(cursor, self._statements.create_progress)
        last_batch, has_table = self._progress(cursor), self._has(cursor, self._table.name)
        self._execute(cursor, self._statements.create_results)
        return last_batch, has_table

    def _write(self, cursor: Cursor, batch: int, results: Sequence[LiveResult]) -> None:
        # An earlier attempt may have been committed though its answer was lost.
        if self._progress(cursor) < batch:
            for statement, rows in self._statements.of(results):
                self._execute_many(cursor, statement, rows)
            self._execute(cursor, self._statements.advance, (self._key, batch))

    def _progress(self, cursor: Cursor) -> int:
        row = self._execute(cursor, self._statements.progress, (self._key,))
        return int(row[0]) if row else NONE


class SqliteSink(DatabaseSink[sqlite3.Cursor]):
    """Writes to a database file at ``path``, which is created if it is missing.

    ``timeout``: the seconds of one attempt while the file is locked; then the run waits as for an unavailable
    server.
    """

    def __init__(self, path: Path, table: ResultTable = ResultTable(), timeout: float = 5.0) -> None:
        super().__init__(Statements(table, "?", _SQLITE_TYPES), table)
        self._path = path
        self._timeout = timeout
        self.place = "sqlite", path.resolve(), table.name.casefold()

    @property
    def name(self) -> str:
        return f"sqlite:{self._path}"

    def _opened(self, run: SinkRun) -> int:
        try:
            # Used by one thread at a time, though not always by the one that opened it.
            self._connection = sqlite3.connect(self._path, timeout=self._timeout, check_same_thread=False)
        except sqlite3.Error as error:
            raise SinkError(f"{self._path}: {error}") from None
        persistently(run, self.name, lambda: self._attempt(self._write_ahead))
        return super()._opened(run)

    def close(self) -> None:
        self._connection.close()

    def _transaction(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        return persistently(self._run, self.name, lambda: self._attempt(lambda: self._in_transaction(work)))

    def _write_ahead(self) -> None:
        self._connection.execute("PRAGMA journal_mode=WAL")

    def _in_transaction(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        with self._connection:
            return work(self._connection.cursor())

    def _attempt(self, call: Callable[[], T]) -> T:
        """Raises NotYetError while another process has locked the file, SourceError."""
        try:
            return call()
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise (NotYetError if code in _BUSY else SourceError)(f"{self._path}: {error}") from None

    def _has(self, cursor: sqlite3.Cursor, table: str) -> bool:
        schema, _, name = table.rpartition(".")
        statement = f'SELECT 1 FROM "{schema or "main"}".sqlite_master WHERE name = ? COLLATE NOCASE'  # noqa: S608 - checked
        return self._execute(cursor, statement, (name,)) is not None

    def _execute(self, cursor: sqlite3.Cursor, statement: str, values: Sequence[Any] = ()) -> Any:
        return cursor.execute(statement, values).fetchone()

    def _execute_many(self, cursor: sqlite3.Cursor, statement: str, rows: list[tuple[Any, ...]]) -> None:
        cursor.executemany(statement, rows)
