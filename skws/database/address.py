"""Databases by their addresses: a SQLite file or a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from schema.errors import SourceError
from schema.infer import Inference
from schema.model import Relation, Row, Schema
from skws.replay.values import MalformedError, conversion
from skws.sources.addresses import is_postgres

SQLITE: Final = "sqlite:"
_SUFFIXES: Final = frozenset({".db", ".sqlite", ".sqlite3"})


class Database(Protocol):
    """Tables that can be read. All methods may raise SourceError.

    ``name`` is fit to be shown.
    """

    @property
    def name(self) -> str: ...

    def stamp(self, relations: Sequence[Relation]) -> str:
        """What changes when the rows of some relations do."""

    def inferred(self) -> Inference:
        """What the catalog tells of the schema."""

    def rows(self, relation: Relation) -> Iterator[Row]:
        """The rows of a relation's table, typed as its attributes."""


def is_sqlite(text: str) -> bool:
    """True for the address of a SQLite file, or its path if it is called like one."""
    return text.startswith(SQLITE) or Path(text).suffix in _SUFFIXES


def database_at(text: str) -> Database:
    """The database at an address. Raises UsageError, SourceError."""
    if is_postgres(text):
        try:
            from skws.database.postgres import PostgresDatabase  # noqa: PLC0415 - psycopg2 is an extra
        except ModuleNotFoundError as error:
            if error.name != "psycopg2":
                raise
            raise SourceError(
                "PostgreSQL needs psycopg2: install skws with its extra, skws[postgres]"
            ) from None
        return PostgresDatabase.of(text)
    from skws.database.sqlite import SqliteDatabase  # noqa: PLC0415 - for who has one

    return SqliteDatabase(Path(text.removeprefix("sqlite://").removeprefix(SQLITE)))


def all_tables(schema: Schema) -> Schema:
    """The schema of a snapshot: every relation is a static table."""
    relations = tuple(replace(each, table=True, time=None) for each in schema.relations)
    return replace(schema, relations=relations, window="none")


def typed(database: str, relation: Relation, values: Iterator[tuple[Any, ...]]) -> Iterator[Row]:
    """Values of a database as those of the attributes. Raises SourceError for one that does not fit."""
    kinds = [attribute.type for attribute in relation.attributes]
    for number, row in enumerate(values, 1):
        try:
            yield tuple(conversion(kind, type(value))(value) for kind, value in zip(kinds, row, strict=True))
        except MalformedError as error:
            raise SourceError(f"{database}: row {number:,} of {relation.name}: {error}") from None
