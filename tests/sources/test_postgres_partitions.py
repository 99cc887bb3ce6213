"""Partitions whose replica identity differs from their root's: the logged old rows, and the warnings."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from skws.data.batch import BadRecord, Item
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws_schema.model import Schema
from tests.clocks import HandClock
from tests.postgres import Database
from tests.sources.film_database import SCHEMA, follow, movies, rows_of, source

ROOT = (
    "CREATE TABLE genre (gid int PRIMARY KEY, label text)",
    "CREATE TABLE sighting (mid int, note text)",
    "ALTER TABLE sighting REPLICA IDENTITY FULL",
    "CREATE TABLE movie (mid int, title text, gid int) PARTITION BY RANGE (mid)",
    "ALTER TABLE movie REPLICA IDENTITY FULL",
)
EARLY = "CREATE TABLE early PARTITION OF movie FOR VALUES FROM (0) TO (10)"
LATE = "CREATE TABLE late PARTITION OF movie FOR VALUES FROM (10) TO (20)"
KEY = "ALTER TABLE %s ADD PRIMARY KEY (mid)"
FULL = "ALTER TABLE %s REPLICA IDENTITY FULL"
_GENRE, _MOVIE, _SIGHTING = SCHEMA.relations
KEYLESS: Schema = replace(SCHEMA, relations=(_GENRE, replace(_MOVIE, key=()), _SIGHTING))


def bad_records_of(items: list[Item]) -> list[BadRecord]:
    return [item for item in items if isinstance(item, BadRecord)]


def test_a_partition_without_a_key_is_reported(database: Database) -> None:
    """The server rejects updates of its rows, though those of the root are logged whole."""
    database.run(*ROOT, EARLY, LATE, FULL % "late", "INSERT INTO movie VALUES (1, 'a', 1)")
    with closing(source(database).open(SCHEMA)) as feed:
        _, offset, notices = follow(feed, database, feed.start())
        assert notices == [
            "public.early, a partition of public.movie, has REPLICA IDENTITY DEFAULT and no key for it: while"
            " public.movie is in a publication, the server refuses all updates and deletes of its rows, from"
            " every client (ALTER TABLE public.early REPLICA IDENTITY FULL)"
        ]
        with pytest.raises(psycopg2.Error, match="does not have a replica identity"):
            database.run("DELETE FROM movie")
        database.run(FULL % "early", "DELETE FROM movie")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [("-", "movie", 1, "a", 1)]


def test_a_detached_or_dropped_partition_is_reported(database: Database) -> None:
    """The log does not contain the removal of its rows, which remain."""
    database.run(*ROOT, EARLY, LATE, FULL % "early", FULL % "late")
    clock = HandClock()
    with closing(PostgresSource(DatabaseAddress.of(database.uri()), clock=clock).open(SCHEMA)) as feed:
        offset = feed.start()
        reports = []
        for changes in (
            ("INSERT INTO movie VALUES (12, 'a', 1)",),
            ("ALTER TABLE movie DETACH PARTITION early", "INSERT INTO movie VALUES (11, 'b', 1)"),
            ("DROP TABLE movie", "CREATE TABLE movie (mid int PRIMARY KEY, title text, gid int)"),
            ("INSERT INTO sighting VALUES (1, 'c')",),
        ):
            database.run(*changes)
            clock.micros += 60_000_000
            _, offset, notices = follow(feed, database, offset)
            batch = feed.poll(offset, 10)
            offset = batch.end
            reports.append([line.split(",")[0] for line in (*notices, *batch.notices)])
    assert reports == [
        [],
        ["early is no longer a partition of public.movie"],
        ["public.movie was dropped"],
        [],
    ]


def test_deletions_from_a_partition_that_logs_only_its_key_are_reported(database: Database) -> None:
    database.run(*ROOT, EARLY, LATE, KEY % "early", FULL % "late")
    with closing(source(database).open(KEYLESS)) as feed:
        _, offset, notices = follow(feed, database, feed.start())
        (notice,) = notices
        assert notice.startswith(
            "public.early, a partition of public.movie, has REPLICA IDENTITY DEFAULT, whatever the identity"
            " of public.movie: updates and deletes of its rows will be bad records"
        )
        assert "(ALTER TABLE public.early REPLICA IDENTITY FULL" in notice
        database.run("INSERT INTO movie VALUES (1, 'a', 1), (11, 'b', 1)")
        database.run("UPDATE movie SET title = 'c'", "UPDATE movie SET mid = mid + 1", "DELETE FROM movie")
        items, offset, notices = follow(feed, database, offset)
        assert notices == []
        bad_records = bad_records_of(items)
        assert [item.raw for item in bad_records] == [
            b'{"mid":"1","title":"c","gid":"1"}',
            b'{"mid":"1","title":null,"gid":null}',
            b'{"mid":"2","title":null,"gid":null}',
        ]
        for item in bad_records:
            assert "it may belong to public.early, a partition of public.movie with another" in item.reason
            assert "(ALTER TABLE public.early REPLICA IDENTITY FULL" in item.reason
        assert [row for row in rows_of(items) if row[0] == "-"] == [
            ("-", "movie", 11, "b", 1),
            ("-", "movie", 11, "c", 1),
            ("-", "movie", 12, "c", 1),
        ]
        database.run(FULL % "early", "INSERT INTO movie VALUES (1, NULL, NULL)", "DELETE FROM movie")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [("+", "movie", 1, None, None), ("-", "movie", 1, None, None)]


def test_a_partition_attached_later_is_reported(database: Database) -> None:
    database.run(*ROOT, EARLY, FULL % "early")
    with closing(source(database).open(KEYLESS)) as feed:
        _, offset, notices = follow(feed, database, feed.start())
        assert notices == []
        database.run(LATE, KEY % "late", "INSERT INTO movie VALUES (11, 'b', 1)", "DELETE FROM movie")
        items, _, notices = follow(feed, database, offset)
    (notice,) = notices
    assert notice.startswith("public.late, a partition of public.movie, has REPLICA IDENTITY DEFAULT")
    assert rows_of(items[:1]) == [("+", "movie", 11, "b", 1)]
    (bad_record,) = bad_records_of(items)
    assert "(ALTER TABLE public.late REPLICA IDENTITY FULL" in bad_record.reason


def test_the_key_of_the_schema_suffices(database: Database) -> None:
    """For a partition that logs it, and for one that logs whole rows."""
    database.run(*ROOT, EARLY, LATE, KEY % "early", FULL % "late")
    with closing(source(database).open(SCHEMA)) as feed:
        _, offset, notices = follow(feed, database, feed.start())
        database.run("INSERT INTO movie SELECT i, 'film ' || i, 1 FROM generate_series(1, 19, 18) i")
        database.run("UPDATE movie SET title = 'b'", "DELETE FROM movie")
        items, _, later_notices = follow(feed, database, offset)
    assert (notices, later_notices) == ([], [])
    assert rows_of(items) == [
        *movies(1, 19),
        ("-", "movie", 1, None, None),
        ("+", "movie", 1, "b", 1),
        ("-", "movie", 19, "film 19", 1),
        ("+", "movie", 19, "b", 1),
        ("-", "movie", 1, None, None),
        ("-", "movie", 19, "b", 1),
    ]


def test_a_partition_may_have_a_different_key_from_its_root(database: Database) -> None:
    """The update of a key that it does not log would leave the old row."""
    database.run(
        *ROOT[:3],
        "CREATE TABLE movie (mid int PRIMARY KEY, title text, gid int NOT NULL) PARTITION BY RANGE (mid)",
        EARLY,
        "CREATE UNIQUE INDEX by_genre ON early (gid)",
        "ALTER TABLE early REPLICA IDENTITY USING INDEX by_genre",
        "INSERT INTO movie VALUES (1, 'a', 1)",
    )
    with closing(source(database).open(SCHEMA)) as feed:
        _, offset, notices = follow(feed, database, feed.start())
        assert "has REPLICA IDENTITY USING INDEX" in str(notices)
        database.run("UPDATE movie SET mid = 2", "DELETE FROM movie")
        items, _, _ = follow(feed, database, offset)
    assert len(bad_records_of(items)) == 2
    assert rows_of([item for item in items if not isinstance(item, BadRecord)]) == [("+", "movie", 2, "a", 1)]


def test_partitions_without_logged_changes_are_reported(database: Database) -> None:
    database.run(*ROOT, "CREATE UNLOGGED TABLE early PARTITION OF movie FOR VALUES FROM (0) TO (10)")
    with closing(source(database).open(SCHEMA)) as feed:
        _, _, notices = follow(feed, database, feed.start())
    assert notices == [
        "public.early, a partition of public.movie, is a foreign or an unlogged table, whose changes are not"
        " logged: its present rows stay in the search until their window ends"
    ]


def test_the_first_of_many_partitions_are_reported(database: Database) -> None:
    create_partition = "CREATE TABLE part%d PARTITION OF movie FOR VALUES FROM (%d) TO (%d)"
    database.run(*ROOT, *(create_partition % (number, number, number + 1) for number in range(8)))
    with closing(source(database).open(SCHEMA)) as feed:
        _, _, notices = follow(feed, database, feed.start())
    assert [notice.split(",")[0] for notice in notices[:5]] == [f"public.part{n}" for n in range(5)]
    assert notices[5:] == ["the same holds for 3 more partitions of public.movie"]
