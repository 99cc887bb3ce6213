"""Results as rows of a database table, one a query and id, in one transaction a batch.

A second table, ``skws_progress``, holds the last batch of each run: it is
moved on in the same transaction, so that a batch is never taken twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import orjson

from schema.errors import UsageError
from skws.results.model import LiveResult

PROGRESS: Final = "skws_progress"
COLUMNS: Final = ("query", "id", "start", "end", "network", "tuples", "joins", "snapshot", "retracted")
SCORES: Final = ("score", "explanation")
"""Columns that a table of ranked results has besides, where they are asked for."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
# Behind an even number of backslashes, which stand for half as many of them.
_ZERO: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class Retractions(StrEnum):
    """What a retraction does to the row of its result."""

    DELETE = "delete"
    MARK = "mark"


def table_name(text: str) -> str:
    """A table's name, perhaps behind that of its schema. Raises UsageError."""
    if not _NAME.fullmatch(text):
        raise UsageError(f"table {text!r}: expected letters, digits and '_', perhaps behind SCHEMA.")
    return text


class Statements:
    """The SQL of one table; ``mark`` stands where a parameter goes, ``types`` are the database's."""

    def __init__(
        self, table: str, retractions: Retractions, mark: str, types: dict[str, str], *, scores: bool = False
    ) -> None:
        self._retractions = retractions
        self._scores = scores
        columns = COLUMNS + SCORES if scores else COLUMNS
        self.table = table
        quoted = '"' + table.replace(".", '"."') + '"'
        text = types["query"]
        names = ", ".join(f'"{name}"' for name in columns)
        described = ", ".join(f'"{name}" {types[name]}' for name in columns)
        marks = ", ".join([mark] * len(columns))
        renewed = ", ".join(f'"{name}" = excluded."{name}"' for name in columns[2:])
        self.create = (
            f'CREATE TABLE IF NOT EXISTS {quoted} ({described}, PRIMARY KEY ("query", "id"))',
            f"CREATE TABLE IF NOT EXISTS {PROGRESS} (run {text} PRIMARY KEY, batch {types['batch']})",
        )
        # Names are checked by table_name; values are parameters.
        self._put = (
            f"INSERT INTO {quoted} ({names}) VALUES ({marks})"  # noqa: S608
            f' ON CONFLICT ("query", "id") DO UPDATE SET {renewed}'
        )
        where = f'WHERE "query" = {mark} AND "id" = {mark}'
        self._delete = f"DELETE FROM {quoted} {where}"  # noqa: S608
        self._retract = f'UPDATE {quoted} SET "retracted" = {mark} {where}'  # noqa: S608
        self.progress = f"SELECT batch FROM {PROGRESS} WHERE run = {mark}"  # noqa: S608
        self.advance = (
            f"INSERT INTO {PROGRESS} (run, batch) VALUES ({mark}, {mark})"  # noqa: S608
            " ON CONFLICT (run) DO UPDATE SET batch = excluded.batch"
        )

    def progress_key(self, run: str) -> str:
        """What the progress of a run is kept under."""
        return f"{run} {self.table}"

    def of(self, results: Sequence[LiveResult]) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
        """Statements with their parameters, neighbours of one kind together, in order."""
        grouped: list[tuple[str, list[tuple[Any, ...]]]] = []
        for result in results:
            statement, values = self._for(result)
            if not grouped or grouped[-1][0] != statement:
                grouped.append((statement, []))
            grouped[-1][1].append(values)
        return grouped

    def _for(self, result: LiveResult) -> tuple[str, tuple[Any, ...]]:
        if result.op == "+":
            row = _row(result)
            return self._put, (*row, *_score(result)) if self._scores else row
        if self._retractions is Retractions.DELETE:
            return self._delete, (result.query, result.id)
        return self._retract, (result.end, result.query, result.id)


def _json(value: object) -> str:
    """As text; the character of code 0, which PostgreSQL has no place for, is replaced."""
    text = orjson.dumps(value).decode()
    return _ZERO.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def _row(result: LiveResult) -> tuple[Any, ...]:
    shown = result.to_dict()
    tuples, joins = (_json(shown.get(name, [])) for name in ("tuples", "joins"))
    first = (result.query, result.id, result.start, result.end, shown.get("network", ""))
    return (*first, tuples, joins, result.snapshot, None)


def _score(result: LiveResult) -> tuple[Any, ...]:
    """Empty for results without a score; an explanation where one was asked for."""
    shown = result.to_dict()
    parts = shown.get("explanation")
    return shown.get("score"), None if parts is None else _json(parts)
