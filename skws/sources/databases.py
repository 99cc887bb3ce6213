"""Databases by address: a SQLite file or a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from skws.extras import installed
from skws.sources.addresses import is_postgres
from skws_schema.infer.infer import Inference
from skws_schema.model import Relation, Row, Schema


class Database(Protocol):
    """A database to read from. ``name`` may be shown to anyone. All methods may raise SourceError."""

    @property
    def name(self) -> str: ...

    def stamp(self, relations: Sequence[Relation]) -> str:
        """A text that changes when the rows of ``relations`` change."""

    def inferred(self, *, followed: bool) -> Inference:
        """The schema that the catalog implies; ``followed``: changes will be read, too, if they can be."""

    def rows(self, relation: Relation) -> Iterator[Row]:
        """The rows of a relation's table, with the types of its attributes."""


def database_at(text: str) -> Database:
    """The database at an address. Raises UsageError, SourceError."""
    if is_postgres(text):
        with installed():
            from skws.sources.postgres.database import PostgresDatabase  # noqa: PLC0415 - psycopg2 is an extra
        return PostgresDatabase.of(text)
    from skws.sources.sqlite import SqliteDatabase  # noqa: PLC0415 - for SQLite only

    return SqliteDatabase.of(text)


def inference_of(address: str, name: str | None, window: str, *, followed: bool = True) -> Inference:
    """What the catalog of a database implies, with how sure it is; ``followed``: PostgreSQL's changes are.

    Raises UsageError, SourceError.
    """
    found = database_at(address).inferred(followed=followed)
    return replace(found, name=name or found.name, window=window)


def all_tables(schema: Schema) -> Schema:
    """The schema of a snapshot: every relation is a static table."""
    relations = tuple(replace(each, table=True, time=None) for each in schema.relations)
    return replace(schema, relations=relations, window="none")
