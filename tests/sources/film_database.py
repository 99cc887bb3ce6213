"""Fixtures for tests of the PostgreSQL source: its schema, and reading it to the end of the log."""

from __future__ import annotations

import time
from pathlib import Path

from skws.data.batch import BadRecord, Item, Record
from skws.sources.feed import Feed, Offset
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.log_history import lsn_of
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from tests.postgres import Database
from tests.waiting import PATIENCE

T = AttributeType
SCHEMA = Schema(
    "films",
    (
        Relation(
            "genre", (Attribute("gid", T.INTEGER), Attribute("label", T.TEXT)), key=("gid",), table=True
        ),
        Relation(
            "movie",
            (Attribute("mid", T.INTEGER), Attribute("title", T.TEXT), Attribute("gid", T.INTEGER)),
            key=("mid",),
            search=("title",),
        ),
        Relation("sighting", (Attribute("mid", T.INTEGER), Attribute("note", T.TEXT)), search=("note",)),
    ),
    (
        Join("of", "movie", "genre", (("gid", "gid"),)),
        Join("seen", "sighting", "movie", (("mid", "mid"),)),
    ),
)
TABLES = (
    "CREATE TABLE genre (gid int PRIMARY KEY, label text)",
    "CREATE TABLE movie (mid int PRIMARY KEY, title text, gid int, extra jsonb)",
    "CREATE TABLE sighting (mid int, note text)",
    "ALTER TABLE sighting REPLICA IDENTITY FULL",
)


def source(database: Database, **parameters: str) -> PostgresSource:
    return PostgresSource(DatabaseAddress.of(database.uri(slot=database.name, **parameters)))


def rows_of(items: list[Item]) -> list[tuple[object, ...]]:
    """Items without times."""
    return [
        (item.source.split(" at ")[0], item.reason)
        if isinstance(item, BadRecord)
        else ("-" if item.delete else "+", SCHEMA.relations[item.relation].name, *item.row)
        for item in items
    ]


def follow(
    feed: Feed,
    database: Database,
    offset: Offset,
    *,
    limit: int = 1000,
    commit: bool = False,
) -> tuple[list[Item], Offset, list[str]]:
    """Read all items up to the current end of the log."""
    ((current,),) = database.ask("SELECT pg_current_wal_lsn()::text")
    end, deadline = lsn_of(str(current)), time.monotonic() + PATIENCE
    items: list[Item] = []
    notices: list[str] = []
    while lsn_of(offset["lsn"]) < end or "snapshot" in offset:
        assert time.monotonic() < deadline, (offset, current, items, notices)
        batch = feed.poll(offset, limit)
        items += batch.read.records.records()
        items += batch.read.bad
        notices += batch.notices
        offset = batch.end
        if commit:
            feed.commit(offset)
    return items, offset, notices


def records(items: list[Item]) -> list[Record]:
    return [item for item in items if isinstance(item, Record)]


def open_feed(database: Database, folder: Path | None = None, **parameters: str) -> Feed:
    return PostgresSource(DatabaseAddress.of(database.uri(slot=database.name, **parameters)), folder).open(
        SCHEMA
    )


def movies(*numbers: int) -> list[tuple[object, ...]]:
    return [("+", "movie", number, f"film {number}", 1) for number in numbers]


def film(number: int) -> dict[str, object]:
    """A movie as a message."""
    return {"mid": number, "title": f"film {number}", "gid": 1}


def insert(first: int, last: int) -> str:
    return f"INSERT INTO movie SELECT i, 'film ' || i, 1 FROM generate_series({first}, {last}) i"
