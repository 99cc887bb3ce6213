"""Databases that do not match the schema, or change while they are followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from skws.data.batch import Item
from skws.sources.feed import Feed, Offset
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType
from tests.postgres import Database, Server, binaries
from tests.sources.film_database import SCHEMA, TABLES, follow, rows_of, source
from tests.sources.table_items import table_items


@pytest.fixture
def feed(database: Database) -> Iterator[Feed]:
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as postgres_feed:
        yield postgres_feed


def test_all_missing_tables_and_columns_are_named_at_once(database: Database) -> None:
    database.run(
        "CREATE TABLE genres (gid int)",
        "CREATE TABLE movie (mid int, titel text, gid int GENERATED ALWAYS AS (1) STORED)",
        "CREATE VIEW sighting AS SELECT 1 AS mid, 'x' AS note",
    )
    with pytest.raises(SourceError) as error:
        source(database).open(SCHEMA)
    for message in (
        "no table 'genre' in the search path; did you mean 'genres'?",
        "public.movie has no column 'title'; did you mean 'titel'?",
        "public.movie.gid is a generated column",
        "public.sighting is a view or a foreign table",
    ):
        assert message in str(error.value)
    assert "***@" in str(error.value)


def test_changes_of_an_unlogged_table_cannot_be_followed(database: Database) -> None:
    database.run(*TABLES, "ALTER TABLE movie SET UNLOGGED")
    message = "is an unlogged table, whose changes cannot be followed .* ALTER TABLE public.movie SET LOGGED"
    with pytest.raises(SourceError, match=message):
        source(database).open(SCHEMA)


def test_an_inheriting_table_is_a_separate_relation(database: Database) -> None:
    """Since its changes are logged under its own name. A static table has the rows that SELECT returns."""
    database.run(
        *TABLES,
        "CREATE TABLE film () INHERITS (movie)",
        "CREATE TABLE style () INHERITS (genre)",
        "INSERT INTO genre VALUES (1, 'crime')",
        "INSERT INTO style VALUES (2, 'noir')",
        "INSERT INTO movie VALUES (1, 'a', 1)",
        "INSERT INTO film VALUES (2, 'b', 2)",
    )
    with closing(source(database).open(SCHEMA)) as feed:
        offset = feed.start()
        assert rows_of(table_items(feed)) == [
            ("+", "genre", 1, "crime"),
            ("+", "genre", 2, "noir"),
        ]
        database.run("INSERT INTO film VALUES (3, 'c', 2)", "INSERT INTO movie VALUES (4, 'd', 1)")
        database.run("DELETE FROM movie")  # also those of film, which need no replica identity
        items, _, notices = follow(feed, database, offset)
    assert rows_of(items) == [
        ("+", "movie", 1, "a", 1),
        ("+", "movie", 4, "d", 1),
        ("-", "movie", 1, None, None),
        ("-", "movie", 4, None, None),
    ]
    assert notices == [
        "public.movie is read without the rows of tables that inherit from it (film): PostgreSQL logs their"
        " changes under their own names; to follow them, make them relations of the schema"
    ]


def test_tables_of_another_namespace_are_found_by_the_search_path(database: Database) -> None:
    database.run(
        "CREATE SCHEMA other", "SET search_path = other", *TABLES, "INSERT INTO movie VALUES (1, 'a', 2)"
    )
    with closing(source(database, options="-csearch_path%3Dother").open(SCHEMA)) as feed:
        offset = feed.start()
        database.run("INSERT INTO other.movie VALUES (2, 'b', 2)")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [("+", "movie", 1, "a", 2), ("+", "movie", 2, "b", 2)]


def test_an_added_column_is_reported(database: Database, feed: Feed) -> None:
    offset = feed.start()
    database.run("INSERT INTO movie VALUES (1, 'a', 1)")
    database.run("ALTER TABLE movie ADD COLUMN year int DEFAULT 1994", "ALTER TABLE movie DROP COLUMN extra")
    database.run("INSERT INTO movie VALUES (2, 'b', 1, 1995)", "UPDATE movie SET year = 1996 WHERE mid = 1")
    items, _, notices = follow(feed, database, offset)
    assert rows_of(items) == [
        ("+", "movie", 1, "a", 1),
        ("+", "movie", 2, "b", 1),
        ("-", "movie", 1, None, None),
        ("+", "movie", 1, "a", 1),
    ]
    assert notices == [
        "public.movie has a new column 'year', which the schema does not name",
        "public.movie no longer has the column 'extra'; no attribute needs it",
    ]


def test_columns_may_change_positions_and_types(database: Database, feed: Feed) -> None:
    offset = feed.start()
    database.run("INSERT INTO movie VALUES (1, 'a', 1)")
    database.run(
        "ALTER TABLE movie DROP COLUMN title",
        "ALTER TABLE movie ADD COLUMN title varchar(9)",
        "ALTER TABLE movie ALTER gid TYPE numeric",
    )
    database.run("INSERT INTO movie (mid, title, gid) VALUES (2, 'b', 3)")
    database.run("INSERT INTO movie (mid, title, gid) VALUES (3, 'c', 3.5)")
    items, _, _ = follow(feed, database, offset)
    assert rows_of(items[:2]) == [("+", "movie", 1, "a", 1), ("+", "movie", 2, "b", 3)]
    assert "movie.gid: expected an integer, got '3.5'" in str(rows_of(items[2:]))


def test_a_renamed_column_stops_the_stream_before_its_first_change(database: Database, feed: Feed) -> None:
    offset = feed.start()
    database.run("INSERT INTO movie VALUES (1, 'a', 1)")
    database.run("ALTER TABLE movie RENAME title TO titles")
    database.run("INSERT INTO movie VALUES (2, 'b', 1)")
    items, end, error = _until_it_stops(feed, offset)
    assert "public.movie no longer has the column 'title'" in error
    assert "did you mean 'titles'?" in error
    assert rows_of(items) == [("+", "movie", 1, "a", 1)]
    movie = replace(
        SCHEMA.relations[1],
        attributes=(
            Attribute("mid", AttributeType.INTEGER),
            Attribute("titles", AttributeType.TEXT),
            Attribute("gid", AttributeType.INTEGER),
        ),
        search=("titles",),
    )
    corrected_schema = replace(SCHEMA, relations=(SCHEMA.relations[0], movie, SCHEMA.relations[2]))
    feed.close()
    with closing(source(database).open(corrected_schema)) as second_feed:
        items, _, _ = follow(second_feed, database, end)
    assert rows_of(items) == [("+", "movie", 2, "b", 1)]


def _until_it_stops(feed: Feed, offset: Offset) -> tuple[list[Item], Offset, str]:
    items: list[Item] = []
    for _ in range(1000):
        try:
            batch = feed.poll(offset, 1000)
        except SourceError as error:
            return items, offset, str(error)
        items += batch.read
        offset = batch.end
    raise AssertionError(items)


def test_a_renamed_table_stops_the_stream(database: Database, feed: Feed) -> None:
    offset = feed.start()
    database.run("ALTER TABLE movie RENAME TO film", "INSERT INTO film VALUES (2, 'b', 1)")
    with pytest.raises(SourceError, match=r"public\.movie was renamed to public\.film"):
        follow(feed, database, offset)


def test_a_table_renamed_back_is_followed(database: Database, feed: Feed) -> None:
    """Changes made in between are logged under the other name."""
    _, offset, _ = follow(feed, database, feed.start())
    database.run("ALTER TABLE movie RENAME TO film", "INSERT INTO film VALUES (2, 'b', 1)")
    with pytest.raises(SourceError, match=r"public\.movie was renamed to public\.film"):
        follow(feed, database, offset)
    feed.close()
    database.run("ALTER TABLE film RENAME TO movie", "INSERT INTO movie VALUES (3, 'c', 1)")
    with closing(source(database).open(SCHEMA)) as second_feed:
        items, _, _ = follow(second_feed, database, offset)
    assert rows_of(items) == [("+", "movie", 2, "b", 1), ("+", "movie", 3, "c", 1)]


def test_other_tables_of_a_publication_are_skipped(database: Database, feed: Feed) -> None:
    database.run("CREATE TABLE other (x int)", "CREATE PUBLICATION everything FOR ALL TABLES")
    with closing(source(database, publication="everything").open(SCHEMA)) as second_feed:
        offset = second_feed.start()
        database.run("INSERT INTO other VALUES (1)", "INSERT INTO movie VALUES (2, 'b', 1)", "TRUNCATE other")
        database.run("SELECT pg_logical_emit_message(true, 'x', 'y')")
        items, _, _ = follow(second_feed, database, offset)
    assert rows_of(items) == [("+", "movie", 2, "b", 1)]


def test_a_dropped_publication_is_reported(database: Database, feed: Feed) -> None:
    offset = feed.start()
    database.run(f"DROP PUBLICATION {database.name}")
    database.run("INSERT INTO movie VALUES (2, 'b', 1)")
    with pytest.raises(SourceError, match=f'publication "{database.name}" does not exist'):
        follow(feed, database, offset)


def test_a_failed_snapshot_leaves_no_slot(database: Database) -> None:
    database.run("CREATE VIEW genre AS SELECT 1 AS gid, (1 / 0)::text AS label", *TABLES[1:])
    with closing(source(database).open(SCHEMA)) as feed, pytest.raises(SourceError, match="division by zero"):
        feed.start()
    assert database.ask(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}'") == []


def test_a_role_without_replication_is_reported(database: Database) -> None:
    role = f"reader_{database.name}"
    database.run(
        *TABLES, f"CREATE ROLE {role} LOGIN PASSWORD 'x'", f"GRANT SELECT ON genre, movie, sighting TO {role}"
    )
    database.run("CREATE PUBLICATION skws FOR TABLE movie, sighting")
    uri = database.uri(slot=database.name).replace("owner:s3cret%2Fpass%40word", f"{role}:x")
    try:
        with (
            closing(PostgresSource(DatabaseAddress.of(uri)).open(SCHEMA)) as feed,
            pytest.raises(SourceError) as error,
        ):
            feed.start()
        assert "replication" in str(error.value)
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_role_that_may_not_see_all_rows_is_reported(database: Database) -> None:
    """Otherwise the snapshot would lack rows that are updated and deleted later."""
    role = f"reader_{database.name}"
    database.run(
        *TABLES,
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'",
        f"GRANT SELECT ON genre, movie, sighting TO {role}",
        "INSERT INTO movie VALUES (1, 'a', 1), (2, 'b', 2)",
        "CREATE PUBLICATION mine FOR TABLE movie, sighting WITH (publish_via_partition_root = true)",
        "ALTER TABLE movie ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY one ON movie USING (gid = 1)",
    )
    uri = database.uri(slot=database.name, publication="mine")
    address = DatabaseAddress.of(uri.replace("owner:s3cret%2Fpass%40word", f"{role}:x"))
    try:
        with closing(PostgresSource(address).open(SCHEMA)) as feed:
            with pytest.raises(SourceError) as error:
                feed.start()
            message = str(error.value)
            assert (
                f"the role '{role}' may not read all rows of public.movie: query would be affected" in message
            )
            assert f"ALTER ROLE {role} BYPASSRLS, or to own the table" in message
            assert database.ask(f"SELECT FROM pg_replication_slots WHERE slot_name = '{database.name}'") == []
            database.run(f"ALTER ROLE {role} BYPASSRLS")
            items, _, _ = follow(feed, database, feed.start())
        assert rows_of(items) == [("+", "movie", 1, "a", 1), ("+", "movie", 2, "b", 2)]
        PostgresSource(address).drop_slot()
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.check
def test_a_server_without_logical_replication_is_reported(postgres_server: Server) -> None:
    programs = binaries()
    assert programs is not None
    server = Server(programs, "wal_level=replica")
    try:
        server.start()
        plain = Database(server, "postgres")
        plain.run(*TABLES)
        with closing(PostgresSource(DatabaseAddress.of(plain.uri())).open(SCHEMA)) as feed:
            with pytest.raises(
                SourceError, match="wal_level is 'replica', but following changes needs 'logical'"
            ):
                feed.start()
            server.stop("immediate")
            with pytest.raises(SourceError, match="Connection refused"):
                feed.start()
    finally:
        server.remove()


def test_a_schema_of_tables_alone_has_nothing_to_follow(database: Database) -> None:
    database.run(*TABLES)
    tables_only = replace(SCHEMA, relations=SCHEMA.relations[:1], joins=())
    with pytest.raises(SourceError, match="there is nothing to follow"):
        source(database).open(tables_only)


def test_a_wrong_password_is_not_shown(database: Database) -> None:
    uri = database.uri().replace("s3cret", "Wr0ng")
    with pytest.raises(SourceError, match="authentication failed") as error:
        PostgresSource(DatabaseAddress.of(uri)).open(SCHEMA)
    assert "Wr0ng" not in str(error.value)
