"""Changes on a real server as records: inserted, updated, deleted, rolled back, stored out of line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest

from skws.data.batch import BadRecord, Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.sources.feed import Feed
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_windows.window import MICROSECOND, TimeWindow
from tests.postgres import Database
from tests.sources.film_database import SCHEMA, TABLES, follow, records, rows_of, source
from tests.sources.table_items import table_items

LONG = "SELECT string_agg(md5(i::text), ' ') FROM generate_series(1, 2000) i"


@pytest.fixture
def feed(database: Database) -> Iterator[Feed]:
    database.run(*TABLES, "INSERT INTO genre VALUES (1, 'crime'), (2, NULL)")
    with closing(source(database).open(SCHEMA)) as postgres_feed:
        yield postgres_feed


def test_the_snapshot_comes_first_then_the_changes(database: Database, feed: Feed) -> None:
    database.run("INSERT INTO movie SELECT i, 'film ' || i, 1 FROM generate_series(1, 250) i")
    offset = feed.start()
    database.run("INSERT INTO movie VALUES (1000, 'later', 2)")
    assert rows_of(table_items(feed)) == [
        ("+", "genre", 1, "crime"),
        ("+", "genre", 2, None),
    ]
    items, _, _ = follow(feed, database, offset, limit=100)
    assert rows_of(items) == [
        *(("+", "movie", i, f"film {i}", 1) for i in range(1, 251)),
        ("+", "movie", 1000, "later", 2),
    ]
    times = [record.time for record in records(items)]
    assert times == sorted(times)
    assert len(set(times[:250])) == 1 < len(set(times))


def test_the_snapshot_is_in_order_of_event_times(database: Database, tmp_path: Path) -> None:
    """No row is late, although tables are copied one by one; relations without event times come last."""
    database.run(
        "CREATE TABLE movie (mid int PRIMARY KEY, title text)",
        "CREATE TABLE sighting (mid int, at timestamptz)",
        "CREATE TABLE review (mid int, at timestamptz)",
        "INSERT INTO movie SELECT i, 'film ' || i FROM generate_series(1, 50) i",
        "INSERT INTO sighting SELECT i, '2020-01-01Z'::timestamptz + (i * 37 % 100) * interval '1 day' "
        "FROM generate_series(1, 100) i",
        "INSERT INTO review SELECT i, '2019-12-01Z'::timestamptz + (i * 59 % 97) * interval '1 day' "
        "FROM generate_series(1, 97) i",
        "INSERT INTO review VALUES (98, NULL)",
    )
    kinds = (Attribute("mid", AttributeType.INTEGER), Attribute("at", AttributeType.TIMESTAMP))
    relations = tuple(Relation(name, kinds, time="at", search=()) for name in ("sighting", "review"))
    movie = Relation("movie", (kinds[0], Attribute("title", AttributeType.TEXT)), key=("mid",))
    schema = Schema("seen", (movie, *relations), ())
    with closing(PostgresSource(DatabaseAddress.of(database.uri()), tmp_path).open(schema)) as feed:
        start = feed.start()
        items, end, _ = follow(feed, database, start, limit=7)
        snapshot_again = feed.replay(start, end)
    snapshot_records = records(items)
    (bad_record,) = (item for item in items if isinstance(item, BadRecord))
    assert (list(snapshot_again.records.records()), list(snapshot_again.bad)) == (
        snapshot_records,
        [bad_record],
    )
    assert "gives the time of the record, but is None" in bad_record.reason
    times = [record.time for record in snapshot_records]
    assert times == sorted(times)
    assert Counter(record.relation for record in snapshot_records) == {0: 50, 1: 100, 2: 97}
    assert [record.row[0] for record in snapshot_records][-50:] == list(range(1, 51))
    assert not list(tmp_path.glob("*sorted*"))


def test_padding_blanks_are_removed_from_values(database: Database) -> None:
    """A char joins a varchar: in the snapshot, in changes, and as the key of a deletion."""
    database.run(
        "CREATE TABLE movie (mid char(5) PRIMARY KEY, title varchar)", "INSERT INTO movie VALUES ('a', 'a ')"
    )
    kinds = (Attribute("mid", AttributeType.STRING), Attribute("title", AttributeType.TEXT))
    schema = Schema("seen", (Relation("movie", kinds, key=("mid",)),), ())
    with closing(source(database).open(schema)) as feed:
        snapshot_items, offset, _ = follow(feed, database, feed.start())
        database.run("INSERT INTO movie VALUES ('b', 'b ')", "DELETE FROM movie WHERE mid = 'a'")
        change_items, _, _ = follow(feed, database, offset)
    actual = [(record.delete, record.row) for record in records([*snapshot_items, *change_items])]
    assert actual == [(False, ("a", "a ")), (False, ("b", "b ")), (True, ("a", None))]


def test_times_beyond_the_range_of_attributes_are_missing(database: Database) -> None:
    """Their rows are kept, in the snapshot and in changes; if the time is the event's, the row is bad."""
    database.run("CREATE TABLE movie (mid int PRIMARY KEY, title varchar, until timestamp)")
    rows = (
        "INSERT INTO movie VALUES (%d, 'a', 'infinity')",
        "INSERT INTO movie VALUES (%d, 'b', '0044-03-15 BC')",
        "INSERT INTO movie VALUES (%d, 'c', '12000-01-01')",
    )
    database.run(*(row % number for number, row in enumerate(rows)))
    kinds = (
        Attribute("mid", AttributeType.INTEGER),
        Attribute("title", AttributeType.TEXT),
        Attribute("until", AttributeType.TIMESTAMP),
    )
    schema = Schema("seen", (Relation("movie", kinds, key=("mid",)),), ())
    with closing(source(database).open(schema)) as feed:
        snapshot_items, offset, _ = follow(feed, database, feed.start())
        database.run(*(row % (number + 10) for number, row in enumerate(rows)))
        change_items, _, _ = follow(feed, database, offset)
    for items, first in ((snapshot_items, 0), (change_items, 10)):
        assert [record.row for record in records(items)] == [
            (first + number, title, None) for number, title in enumerate("abc")
        ]
        bad_records = [item for item in items if isinstance(item, BadRecord)]
        assert sum(item.passed_over for item in bad_records) == 3
        assert {item.reason for item in bad_records} == {
            "movie.until: times outside of the years 1 to 9999, and infinity, are missing"
        }


def test_a_snapshot_ignores_the_statement_timeout(database: Database) -> None:
    database.run(
        *TABLES,
        "INSERT INTO movie SELECT i, 'film ' || i, 1 FROM generate_series(1, 2000) i",
        "DO $$ BEGIN EXECUTE format("
        "'ALTER DATABASE %I SET statement_timeout = 1', current_database()); END $$",
    )
    with closing(source(database).open(SCHEMA)) as feed:
        items, _, _ = follow(feed, database, feed.start())
    assert len(records(items)) == 2000


@pytest.mark.usefixtures("many_files")
def test_changes_are_read_beside_many_open_files(database: Database) -> None:
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as feed:
        _, offset, _ = follow(feed, database, feed.start())
        assert list(feed.poll(offset, 10).read) == []  # waits for changes
        database.run("INSERT INTO movie VALUES (1, 'Jackie Brown', 1)")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [("+", "movie", 1, "Jackie Brown", 1)]


def test_rows_with_a_null_in_their_key_are_deleted_one_by_one(database: Database) -> None:
    """The key of the schema may be NULL if old rows are logged whole."""
    database.run(*TABLES)
    *other_relations, sighting = SCHEMA.relations
    schema = replace(SCHEMA, relations=(*other_relations, replace(sighting, key=("mid",))))
    engine = StreamEngine.of(Plan(schema, parse_query("home", schema), TimeWindow(3600 * MICROSECOND), 1))
    with closing(source(database).open(schema)) as feed:
        offset = feed.start()
        for note in ("at home", "home alone", "at home"):
            database.run(f"INSERT INTO sighting VALUES (NULL, '{note}')")
        database.run("UPDATE sighting SET note = 'gone' WHERE note = 'home alone'")
        items, _, _ = follow(feed, database, offset)
    results = list(engine.process(records(items)))
    assert [(r.op, r.tuples[0].row["note"]) for r in results] == [
        ("+", "at home"),
        ("+", "home alone"),
        ("+", "at home"),
        ("-", "home alone"),
    ]


def test_a_transaction_has_one_time_and_a_rollback_no_records(database: Database, feed: Feed) -> None:
    offset = feed.start()
    with pytest.raises(Exception, match="division"):
        database.run("INSERT INTO movie VALUES (1, 'gone', 1)", "SELECT 1 / 0")
    database.run(
        "INSERT INTO movie VALUES (2, 'kept', 1)",
        "SAVEPOINT s",
        "INSERT INTO movie VALUES (3, 'gone', 1)",
        "ROLLBACK TO s",
        "INSERT INTO movie VALUES (4, 'kept', 1)",
    )
    items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [("+", "movie", 2, "kept", 1), ("+", "movie", 4, "kept", 1)]
    assert len({record.time for record in records(items)}) == 1


def test_unlogged_unchanged_values_are_bad_records(database: Database, feed: Feed) -> None:
    database.run("ALTER TABLE movie ALTER title SET STORAGE EXTERNAL")
    offset = feed.start()
    database.run(f"INSERT INTO movie SELECT 1, ({LONG}), 1")
    database.run("UPDATE movie SET gid = 2")
    items, _, _ = follow(feed, database, offset)
    _, deleted, bad_record = items
    assert rows_of([deleted]) == [("-", "movie", 1, None, None)]
    assert isinstance(bad_record, BadRecord)
    assert "public.movie.title: its value did not change and was not logged" in bad_record.reason
    assert bad_record.raw == b'{"mid":"1","gid":"2","extra":null}'


def test_unlogged_values_of_other_columns_are_harmless(database: Database, feed: Feed) -> None:
    database.run("ALTER TABLE movie ALTER extra SET STORAGE EXTERNAL")
    offset = feed.start()
    database.run(f"INSERT INTO movie SELECT 1, 'a', 1, to_jsonb(({LONG}))")
    database.run("UPDATE movie SET gid = 2")
    items, _, _ = follow(feed, database, offset)
    assert rows_of(items)[1:] == [("-", "movie", 1, None, None), ("+", "movie", 1, "a", 2)]


def test_deletions_without_old_rows_are_bad_records(database: Database, feed: Feed) -> None:
    database.run(
        "ALTER TABLE sighting ADD PRIMARY KEY (mid)", "ALTER TABLE sighting REPLICA IDENTITY DEFAULT"
    )
    with closing(source(database).open(SCHEMA)) as second_feed:
        offset = second_feed.start()
        database.run(
            "INSERT INTO sighting VALUES (1, 'a')", "UPDATE sighting SET note = 'b'", "DELETE FROM sighting"
        )
        items, _, notices = follow(second_feed, database, offset)
    first, second, unknown, deletion = items
    assert rows_of([first, second]) == [("+", "sighting", 1, "a"), ("+", "sighting", 1, "b")]
    for bad_record in (unknown, deletion):
        assert isinstance(bad_record, BadRecord)
        assert "the schema has no key (ALTER TABLE public.sighting REPLICA IDENTITY FULL" in bad_record.reason
    assert any("updates and deletes of public.sighting will be bad records" in notice for notice in notices)


def test_a_truncate_deletes_the_rows_of_each_named_table(database: Database, feed: Feed) -> None:
    """Including those of CASCADE; later inserts of the same transaction follow it."""
    offset = feed.start()
    database.run("TRUNCATE movie, sighting; INSERT INTO sighting VALUES (1, 'a')")
    items, _, _ = follow(feed, database, offset)
    *deletions, insertion = items
    assert all(isinstance(item, Record) and item.truncates for item in deletions)
    assert sorted(SCHEMA.relations[item.relation].name for item in deletions if isinstance(item, Record)) == [
        "movie",
        "sighting",
    ]
    assert isinstance(insertion, Record)
    assert (insertion.delete, {item.time for item in deletions if isinstance(item, Record)}) == (
        False,
        {insertion.time},
    )


def test_values_of_the_wrong_type_are_bad_records(database: Database) -> None:
    database.run(
        "CREATE TABLE event (id int PRIMARY KEY, seen timestamptz, worth float8, flag bool, n numeric)"
    )
    kinds = {"id": "INTEGER", "seen": "TIMESTAMP", "worth": "NUMBER", "flag": "BOOLEAN", "n": "INTEGER"}
    attributes = tuple(Attribute(name, AttributeType[kind]) for name, kind in kinds.items())
    schema = Schema("s", (Relation("event", attributes, key=("id",), time="seen"),), ())
    rows = (
        "INSERT INTO event VALUES (%d, '2026-01-01 05:30:00.25+05:30', 0.1::float8 + 0.2, true, 5.00)",
        "INSERT INTO event VALUES (%d, 'infinity', 1, true, 1)",
        "INSERT INTO event VALUES (%d, '2026-01-01', 'NaN', true, 1)",
        "INSERT INTO event VALUES (%d, '2026-01-01', 1, true, 1.5)",
        "INSERT INTO event VALUES (%d, NULL, 1, true, 1)",
    )
    database.run(*(row % number for number, row in enumerate(rows)))
    with closing(source(database).open(schema)) as feed:
        offset = feed.start()
        database.run(*(row % (number + 10) for number, row in enumerate(rows)))
        items, _, _ = follow(feed, database, offset)
    micros = 1_767_225_600_250_000
    values = (micros, 0.1 + 0.2, True, 5)
    assert [(r.time, r.row) for r in records(items) if r.row[0] not in (2, 12)] == [
        (micros, (0, *values)),
        (micros, (10, *values)),
    ]
    assert [r.row[2] for r in records(items) if r.row[0] in (2, 12)] == [None, None]  # NaN
    bad_records = [item for item in items if isinstance(item, BadRecord)]
    assert {item.reason.split(":")[0] for item in bad_records if item.passed_over} == {"event.worth"}
    reasons = [item.reason for item in bad_records if not item.passed_over]
    assert sorted(reasons[:3]) == sorted(reasons[3:])  # a snapshot is in order of time
    assert [reason.split(":")[0].split(" ")[0] for reason in reasons[3:]] == [
        "event.seen",
        "event.n",
        "event.seen",
    ]


def test_texts_are_unchanged(database: Database, feed: Feed) -> None:
    texts = ["tab\there", "line\nend\r", "back\\slash \\N \\.", "", "Zoë 映画 🎬", "'quotes\"", "\b\f\v"]
    values = ", ".join(f"({i}, $x${text}$x$, 1)" for i, text in enumerate(texts))
    database.run(f"INSERT INTO movie VALUES {values}")
    offset = feed.start()
    database.run("DELETE FROM movie", f"INSERT INTO movie VALUES {values}")
    items, _, _ = follow(feed, database, offset)
    rows = [record.row for record in records(items) if not record.delete]
    assert rows == [(i, text, 1) for _ in range(2) for i, text in enumerate(texts)]


def test_texts_of_any_type_are_equal_in_the_snapshot_and_in_changes(database: Database) -> None:
    database.run(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE event (id int PRIMARY KEY, flag bool, code char(5), pairs pair, list text[],"
        " doc jsonb, bytes bytea, gone text)",
    )
    names = ("flag", "code", "pairs", "list", "doc", "bytes", "gone")
    attributes = tuple(Attribute(name, AttributeType.TEXT) for name in names)
    key = Attribute("id", AttributeType.INTEGER)
    schema = Schema("s", (Relation("event", (key, *attributes), key=("id",)),), ())
    values = (
        "true, 'ab', ROW(1, 'x \"y\"'), '{a,NULL,\"b c\"}', '{\"k\": [1, \"\\n\"]}', '\\x00ff', NULL",
        "false, '', ROW(NULL, NULL), '{}', 'null', '', ''",
        "NULL, NULL, NULL, NULL, NULL, NULL, E'\\x01\\x02\\n\\t\\\\N \\\\.'",
    )
    database.run(*(f"INSERT INTO event VALUES ({number}, {row})" for number, row in enumerate(values)))
    with closing(source(database).open(schema)) as feed:
        offset = feed.start()
        database.run(
            *(f"INSERT INTO event VALUES ({number + 3}, {row})" for number, row in enumerate(values))
        )
        items, _, _ = follow(feed, database, offset)
    snapshot_records, change_records = records(items)[:3], records(items)[3:]
    assert [record.row[1:] for record in snapshot_records] == [record.row[1:] for record in change_records]
    assert [record.row[1:4] for record in snapshot_records] == [
        ("t", "ab", '(1,"x ""y""")'),
        ("f", "", "(,)"),
        (None, None, None),
    ]
    assert snapshot_records[2].row[-1] == "\x01\x02\n\t\\N \\."


def test_partitions_are_followed_through_their_root(database: Database) -> None:
    database.run(
        "CREATE TABLE genre (gid int PRIMARY KEY, label text)",
        "CREATE TABLE sighting (mid int, note text)",
        "CREATE TABLE movie (mid int PRIMARY KEY, title text, gid int) PARTITION BY RANGE (mid)",
        "CREATE TABLE early PARTITION OF movie FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE late PARTITION OF movie FOR VALUES FROM (10) TO (20)",
        "INSERT INTO movie VALUES (1, 'a', 1)",
    )
    with closing(source(database).open(SCHEMA)) as feed:
        offset = feed.start()
        database.run("INSERT INTO movie VALUES (11, 'b', 1)", "DELETE FROM movie WHERE mid = 1")
        items, _, _ = follow(feed, database, offset)
    assert rows_of(items) == [
        ("+", "movie", 1, "a", 1),
        ("+", "movie", 11, "b", 1),
        ("-", "movie", 1, None, None),
    ]


def test_a_notice_says_that_the_server_rejects_changes_without_a_key(database: Database, feed: Feed) -> None:
    """A key that is checked at the end of a transaction does not count."""
    database.run(
        "ALTER TABLE sighting REPLICA IDENTITY DEFAULT, ADD PRIMARY KEY (mid) DEFERRABLE",
        "INSERT INTO sighting VALUES (1, 'a')",
    )
    with closing(source(database).open(SCHEMA)) as second_feed:
        _, _, notices = follow(second_feed, database, second_feed.start())
        with pytest.raises(psycopg2.Error, match="does not have a replica identity"):
            database.run("DELETE FROM sighting")
    warning = "public.sighting logs no key of old rows: while it is in a publication"
    assert any(warning in line for line in notices)


def test_a_deferrable_key_is_reported(database: Database) -> None:
    """The schema names it, though the table checks its key at the end of a statement."""
    database.run(
        "CREATE TABLE genre (gid int PRIMARY KEY, label text)",
        "CREATE TABLE sighting (mid int, note text)",
        "CREATE TABLE movie (mid int PRIMARY KEY DEFERRABLE, title text, gid int)",
        "ALTER TABLE movie REPLICA IDENTITY FULL",
    )
    with closing(source(database).open(SCHEMA)) as feed:
        _, _, notices = follow(feed, database, feed.start())
    assert any("public.movie has a primary key that is DEFERRABLE" in line for line in notices)
