"""The publication of a slot: which one is used, which slots share it, and when it is dropped."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

import pytest

from skws.sources.feed import Feed
from skws.sources.postgres.change_feed import Dropped, PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.slot import server_of
from skws_schema.errors import SourceError
from tests.postgres import Database
from tests.sources.film_database import SCHEMA, TABLES, follow, insert, movies, rows_of

LEGACY = (
    "CREATE PUBLICATION skws FOR TABLE movie, sighting WITH (publish_via_partition_root = true)",
    "COMMENT ON PUBLICATION skws IS 'made by skws'",
)
"""As created by earlier versions, one for all slots."""


@pytest.fixture
def slots(database: Database) -> tuple[str, str]:
    """Slot names, which are unique in the whole server."""
    return f"{database.name}_a", f"{database.name}_b"


def source_of(database: Database, slot: str, **parameters: str) -> PostgresSource:
    return PostgresSource(DatabaseAddress.of(database.uri(slot=slot, **parameters)))


def publication_names(database: Database) -> list[object]:
    return [name for (name,) in database.ask("SELECT pubname::text FROM pg_publication ORDER BY 1")]


def make_slot(database: Database, slot: str) -> None:
    database.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")


def confirmed_offset(database: Database, slot: str) -> dict[str, object]:
    """The offset after the snapshot of a run that has stopped."""
    ((lsn,),) = database.ask(
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    server = server_of(DatabaseAddress.of(database.uri()))
    return {"lsn": lsn, "change": 0, "time": 0, "server": [*server]}


def read_on(feed: Feed, database: Database, slot: str, number: int) -> None:
    """Check that a change made while no run was reading arrives, and one made now."""
    items, offset, _ = follow(feed, database, confirmed_offset(database, slot))
    assert rows_of(items) == movies(number)
    database.run(insert(number + 1, number + 1))
    items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == movies(number + 1)


def test_a_slot_has_its_own_publication_which_is_dropped_with_it(
    database: Database, slots: tuple[str, str]
) -> None:
    database.run(*TABLES)
    one, two = slots
    for slot in slots:
        with closing(source_of(database, slot).open(SCHEMA)) as feed:
            feed.start()
    assert publication_names(database) == [one, two]
    assert source_of(database, two).drop_slot() == Dropped(slot=True, readers=())
    assert publication_names(database) == [one]
    database.run(insert(1, 1))
    with closing(source_of(database, one).open(SCHEMA)) as feed:
        read_on(feed, database, one, 1)


def test_earlier_slots_keep_their_shared_publication(database: Database, slots: tuple[str, str]) -> None:
    """It is dropped with the last of them; slots with their own publication do not count."""
    database.run(*TABLES, *LEGACY)
    one, two = slots
    for slot in slots:
        make_slot(database, slot)
    database.run(insert(1, 1))
    with closing(source_of(database, one).open(SCHEMA)) as feed:
        read_on(feed, database, one, 1)
    third = f"{database.name}_c"
    with closing(source_of(database, third).open(SCHEMA)) as feed:
        feed.start()
    assert publication_names(database) == ["skws", third]
    outcome = source_of(database, one).drop_slot()
    assert (outcome.slot, outcome.readers) == (True, (two,))
    assert source_of(database, third).drop_slot().readers == ()
    with closing(source_of(database, two).open(SCHEMA)) as feed:
        items, _, _ = follow(feed, database, confirmed_offset(database, two))
    assert rows_of(items) == movies(1, 2)
    assert source_of(database, two).drop_slot().readers == ()
    assert publication_names(database) == []


def test_the_default_slot_reuses_its_leftover_publication(database: Database) -> None:
    """In a publication created by skws, another run's tables do no harm."""
    database.run(*TABLES, "CREATE PUBLICATION skws FOR TABLE movie", LEGACY[1])
    source = PostgresSource(DatabaseAddress.of(database.uri()))
    with closing(source.open(SCHEMA)) as feed:
        offset = feed.start()
        _, offset, _ = follow(feed, database, offset)
        database.run("INSERT INTO sighting VALUES (1, 'seen')")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [("+", "sighting", 1, "seen")]
    assert source.drop_slot().readers == ()
    assert publication_names(database) == []


def test_a_publication_for_all_tables_serves_new_slots(database: Database, slots: tuple[str, str]) -> None:
    database.run(*TABLES, LEGACY[0], insert(1, 1))
    with closing(source_of(database, slots[0]).open(SCHEMA)) as feed:
        items, offset, _ = follow(feed, database, feed.start())
        database.run(insert(2, 2))
        later_items, _, _ = follow(feed, database, offset)
    assert rows_of(items + later_items) == movies(1, 2)
    source_of(database, slots[0]).drop_slot()
    assert publication_names(database) == ["skws"]


def test_a_named_publication_serves_several_slots(database: Database, slots: tuple[str, str]) -> None:
    database.run(*TABLES)
    one, two = (source_of(database, slot, publication="both") for slot in slots)
    for source in (one, two):
        with closing(source.open(SCHEMA)) as feed:
            feed.start()
    assert publication_names(database) == ["both"]
    assert one.drop_slot().readers == (slots[1],)
    database.run(insert(1, 1))
    with closing(two.open(SCHEMA)) as feed:
        read_on(feed, database, slots[1], 1)
    assert two.drop_slot().readers == ()
    assert publication_names(database) == []


@pytest.mark.parametrize(
    ("publication_statement", "publication_name", "message"),
    [
        (
            "CREATE PUBLICATION {0} FOR TABLE movie, sighting",
            "",
            r"that skws did not make: use it with \?pub",
        ),
        (
            "CREATE PUBLICATION {0} FOR TABLE movie",
            "{0}",
            r"lacks public\.sighting \(ALTER PUBLICATION \S+ ADD TABLE",
        ),
        (
            "CREATE PUBLICATION {0} FOR TABLE movie, sighting WITH (publish = 'insert')",
            "{0}",
            "leaves out update, delete, truncate",
        ),
    ],
)
def test_unusable_publications_are_rejected(
    database: Database,
    slots: tuple[str, str],
    publication_statement: str,
    publication_name: str,
    message: str,
) -> None:
    database.run(*TABLES, publication_statement.format(slots[0]))
    parameters = {"publication": publication_name.format(slots[0])} if publication_name else {}
    with (
        closing(source_of(database, slots[0], **parameters).open(SCHEMA)) as feed,
        pytest.raises(SourceError, match=message),
    ):
        feed.start()
    assert publication_names(database) == [slots[0]]
    assert database.ask(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slots[0]}'") == []


PARTITIONED = (
    *TABLES,
    "DROP TABLE movie",
    "CREATE TABLE movie (mid int PRIMARY KEY, title text, gid int) PARTITION BY RANGE (mid)",
    "CREATE TABLE early PARTITION OF movie FOR VALUES FROM (0) TO (10)",
)
INHERITED = (*TABLES, 'CREATE TABLE "Film" () INHERITS (movie)')


@pytest.mark.parametrize(
    ("tables", "publication_statement", "message"),
    [
        (
            TABLES,
            "FOR TABLE movie, sighting WITH (publish = 'insert, update, delete')",
            "leaves out truncate (ALTER PUBLICATION mine SET (publish = 'insert, update, delete, truncate'))",
        ),
        (
            TABLES,
            "FOR TABLE movie WHERE (mid < 5), sighting",
            "leaves out rows of public.movie by a WHERE (ALTER PUBLICATION mine DROP TABLE public.movie;"
            " ALTER PUBLICATION mine ADD TABLE public.movie)",
        ),
        (
            TABLES,
            "FOR TABLE movie (mid, extra), sighting",
            "leaves out columns of public.movie: gid, title (ALTER PUBLICATION mine DROP TABLE public.movie;",
        ),
        (
            INHERITED,
            "FOR TABLE sighting",
            "lacks public.movie (ALTER PUBLICATION mine ADD TABLE ONLY public.movie)",
        ),
        (
            PARTITIONED,
            "FOR TABLE movie, sighting",
            "publishes the partitions of public.movie under their own names"
            " (ALTER PUBLICATION mine SET (publish_via_partition_root = true)): change it",
        ),
        (
            PARTITIONED,
            "FOR ALL TABLES",
            "under their own names (ALTER PUBLICATION mine SET (publish_via_partition_root = true)): change",
        ),
        (
            PARTITIONED,
            "FOR TABLE movie WITH (publish = 'insert')",
            "lacks public.sighting (ALTER PUBLICATION mine ADD TABLE public.sighting)",
        ),
        (
            PARTITIONED,
            "FOR TABLE sighting",
            "SET (publish_via_partition_root = true)); lacks public.movie (ALTER PUBLICATION mine ADD TABLE",
        ),
    ],
)
def test_an_incomplete_publication_is_rejected_with_its_correction(
    database: Database, tables: tuple[str, ...], publication_statement: str, message: str
) -> None:
    database.run(*tables, f"CREATE PUBLICATION mine {publication_statement}")
    with closing(source_of(database, database.name, publication="mine").open(SCHEMA)) as feed:
        with pytest.raises(SourceError) as error:
            feed.start()
        message_text = str(error.value)
        assert message in message_text
        corrections = re.findall(r"ALTER PUBLICATION (?:[^();]|\([^()]*\))*", message_text)
        database.run(*corrections)
        _, offset, _ = follow(feed, database, feed.start())
        database.run(insert(1, 6))
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == movies(*range(1, 7))


def test_a_column_list_with_all_attributes_is_accepted(database: Database) -> None:
    database.run(*TABLES, "CREATE PUBLICATION mine FOR TABLE movie (mid, title, gid), sighting")
    with closing(source_of(database, database.name, publication="mine").open(SCHEMA)) as feed:
        _, offset, _ = follow(feed, database, feed.start())
        database.run(insert(1, 1), "DELETE FROM movie")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [*movies(1), ("-", "movie", 1, None, None)]


def test_an_altered_publication_of_a_slot_is_rejected(database: Database, slots: tuple[str, str]) -> None:
    database.run(*TABLES, *LEGACY, "ALTER PUBLICATION skws SET (publish = 'insert')")
    make_slot(database, slots[1])  # it may need the publication, which is therefore not dropped
    with (
        closing(source_of(database, slots[0], publication="skws").open(SCHEMA)) as feed,
        pytest.raises(SourceError, match="leaves out update, delete, truncate"),
    ):
        feed.start()
    assert publication_names(database) == ["skws"]


def test_missing_tables_are_added_to_the_publication_of_a_continued_slot(
    database: Database, slots: tuple[str, str]
) -> None:
    """Otherwise their changes would be missing without notice."""
    movie = replace(SCHEMA, relations=SCHEMA.relations[:2], joins=SCHEMA.joins[:1])
    database.run(*TABLES)
    with closing(source_of(database, slots[0], snapshot="no").open(movie)) as feed:
        feed.start()
    with closing(source_of(database, slots[0], snapshot="no").open(SCHEMA)) as feed:
        offset = feed.start()
        database.run("INSERT INTO sighting VALUES (1, 'seen')")
        items, _, _ = follow(feed, database, offset)
        assert rows_of(items) == [("+", "sighting", 1, "seen")]
    database.run(f"DROP PUBLICATION {slots[0]}")
    with (
        closing(source_of(database, slots[0], snapshot="no").open(SCHEMA)) as feed,
        pytest.raises(
            SourceError, match=r"the publication \S+ is gone, and a publication that is made later"
        ),
    ):
        feed.start()


def test_missing_tables_are_reported_to_a_resumed_run(database: Database, slots: tuple[str, str]) -> None:
    database.run(*TABLES)
    with closing(source_of(database, slots[0]).open(SCHEMA)) as feed:
        _, offset, _ = follow(feed, database, feed.start())
    database.run(f"ALTER PUBLICATION {slots[0]} DROP TABLE sighting")
    with (
        closing(source_of(database, slots[0]).open(SCHEMA)) as feed,
        pytest.raises(SourceError, match=r"lacks public\.sighting"),
    ):
        feed.poll(offset, 10)


def test_the_publication_of_another_slot_cannot_be_used(database: Database, slots: tuple[str, str]) -> None:
    database.run(*TABLES)
    with closing(source_of(database, slots[0]).open(SCHEMA)) as feed:
        feed.start()
    with (
        closing(source_of(database, slots[1], publication=slots[0]).open(SCHEMA)) as feed,
        pytest.raises(SourceError, match="belongs to the slot"),
    ):
        feed.start()
    assert publication_names(database) == [slots[0]]
