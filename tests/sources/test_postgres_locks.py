"""Tables that are rewritten, truncated or locked during the snapshot of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extensions import connection

from skws.sources.postgres import change_feed as postgres_feed
from skws.sources.postgres import spool
from skws.sources.postgres.slot import create_slot
from skws_schema.errors import NotYetError, SourceError
from tests.postgres import Database, run_outside_transaction
from tests.sources.film_database import TABLES, follow, insert, movies, open_feed, rows_of
from tests.sources.table_items import table_items

# Each leaves a new file of the table, in which an older snapshot sees nothing.
CHANGES = (
    "ALTER TABLE movie ALTER COLUMN gid TYPE bigint",
    "TRUNCATE movie",
    "DROP TABLE movie",
    "VACUUM FULL movie",
    "CLUSTER movie USING movie_pkey",
)


@contextmanager
def change_after_slot(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> Iterator[None]:
    """``change`` happens between the slot's first position and the first lock."""
    changes = iter([change])

    def create_then_change(*arguments: object) -> tuple[int, str]:
        slot = create_slot(*arguments)  # type: ignore[arg-type]
        next(changes, lambda: None)()
        return slot

    with monkeypatch.context() as patches:
        patches.setattr(postgres_feed, "create_slot", create_then_change)
        yield


@contextmanager
def locking(database: Database, statement: str) -> Iterator[connection]:
    """A transaction that has executed ``statement``, and is idle."""
    with closing(psycopg2.connect(database.uri(application_name="migration"))) as transaction:
        transaction.cursor().execute(statement)
        yield transaction


@pytest.mark.parametrize("change", CHANGES)
def test_changes_during_the_copy_of_another_table_wait(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    database.run(*TABLES, insert(1, 100), "INSERT INTO genre VALUES (1, 'noir')")
    changing_thread = threading.Thread(target=run_outside_transaction, args=(database, change))
    copy = spool.copy_tables

    def copy_then_change(*arguments: object) -> None:
        copy(*arguments)  # type: ignore[arg-type]
        if not changing_thread.ident:  # the static tables are copied, the streams are not
            changing_thread.start()
            waiting_locks = "SELECT 1 FROM pg_locks WHERE NOT granted"
            deadline = time.monotonic() + 5
            while (
                not database.ask(waiting_locks) and changing_thread.is_alive() and time.monotonic() < deadline
            ):
                time.sleep(0.01)

    monkeypatch.setattr(postgres_feed, "copy_tables", copy_then_change)
    with closing(open_feed(database, tmp_path)) as feed:
        offset = feed.start()
        changing_thread.join(10)
        assert not changing_thread.is_alive()
        items = list(feed.poll(offset, 1000).read)
    assert rows_of(list(items)) == movies(*range(1, 101))


@pytest.mark.check
@pytest.mark.parametrize("change", CHANGES)
def test_changes_before_the_lock_are_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    database.run(*TABLES, insert(1, 3))
    with (
        change_after_slot(monkeypatch, lambda: run_outside_transaction(database, change)),
        closing(open_feed(database, tmp_path)) as feed,
    ):
        if change.startswith("DROP"):
            with pytest.raises(SourceError, match=r'relation "public.movie" does not exist'):
                feed.start()
            return
        with pytest.raises(NotYetError, match=r"movie: emptied, rewritten or created again"):
            feed.start()
        assert database.ask("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
        assert database.ask("SELECT 1 FROM pg_publication") == []
        items, _, _ = follow(feed, database, feed.start())
    assert rows_of(items) == ([] if change.startswith("TRUNCATE") else movies(1, 2, 3))


def test_a_recreated_table_is_noticed_and_then_read(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database.run(*TABLES, insert(1, 3))
    statements = ("DROP TABLE movie", TABLES[1], insert(4, 5))
    with change_after_slot(monkeypatch, lambda: database.run(*statements)):
        with closing(open_feed(database, tmp_path)) as feed, pytest.raises(NotYetError, match="movie"):
            feed.start()
        with closing(open_feed(database, tmp_path)) as feed:
            items, offset, _ = follow(feed, database, feed.start())
            database.run(insert(6, 6))
            later_items, _, _ = follow(feed, database, offset)
    assert rows_of(items + later_items) == movies(4, 5, 6)


@pytest.mark.parametrize(
    ("change", "table_name"),
    [
        ("TRUNCATE movie_old", "movie_old"),
        ("ALTER TABLE movie DETACH PARTITION movie_old", "movie_old"),
        ("CREATE TABLE movie_later PARTITION OF movie FOR VALUES FROM (200) TO (300)", "movie_later"),
    ],
)
def test_changes_of_partitions_are_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str, table_name: str
) -> None:
    database.run(
        TABLES[0],
        "CREATE TABLE movie (mid int PRIMARY KEY, title text, gid int) PARTITION BY RANGE (mid)",
        "CREATE TABLE movie_old PARTITION OF movie FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE movie_new PARTITION OF movie FOR VALUES FROM (100) TO (200)",
        *TABLES[2:],
        insert(99, 101),
    )
    with (
        change_after_slot(monkeypatch, lambda: run_outside_transaction(database, change)),
        closing(open_feed(database, tmp_path)) as feed,
        pytest.raises(NotYetError, match=f": {table_name}: emptied"),
    ):
        feed.start()
    with closing(open_feed(database, tmp_path)) as feed:
        items, _, _ = follow(feed, database, feed.start())
    assert rows_of(items) == (movies(99, 100, 101) if "CREATE" in change else movies(100, 101))


def test_changes_of_a_table_below_a_view_are_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database.run(
        *TABLES[1:],
        "CREATE TABLE kind (gid int, label text)",
        "CREATE VIEW genre AS SELECT * FROM kind",
        "INSERT INTO kind VALUES (1, 'noir')",
    )
    statement = "ALTER TABLE kind ADD COLUMN at timestamptz DEFAULT clock_timestamp()"
    with (
        change_after_slot(monkeypatch, lambda: database.run(statement)),
        closing(open_feed(database, tmp_path)) as feed,
    ):
        with pytest.raises(NotYetError, match=r": kind: emptied"):
            feed.start()
        feed.start()
        assert rows_of(table_items(feed)) == [("+", "genre", 1, "noir")]


def test_a_materialized_view_is_copied(database: Database, tmp_path: Path) -> None:
    database.run(
        *TABLES[1:],
        "CREATE MATERIALIZED VIEW genre AS SELECT 1 AS gid, 'noir' AS label",
    )
    with closing(open_feed(database, tmp_path)) as feed:
        feed.start()
        assert rows_of(table_items(feed)) == [("+", "genre", 1, "noir")]


def test_a_locked_table_is_named_with_its_locker(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database.run(*TABLES, insert(1, 3))
    connections: list[connection] = []

    def lock() -> None:
        connections.append(psycopg2.connect(database.uri(application_name="migration")))
        connections[0].cursor().execute("LOCK TABLE movie IN ACCESS EXCLUSIVE MODE; SELECT 'a secret'")

    expected = (
        r"t\d+x\d+\?.*: cannot take the snapshot: movie is locked by the server's process"
        r" \d+ \(owner, migration, idle in transaction, LOCK TABLE\)$"
    )
    with (
        change_after_slot(monkeypatch, lock),
        closing(open_feed(database, tmp_path)) as feed,
        pytest.raises(NotYetError, match=expected),
    ):
        feed.start()
    connections[0].close()
    with closing(open_feed(database, tmp_path)) as feed:
        items, _, _ = follow(feed, database, feed.start())
    assert rows_of(items) == movies(1, 2, 3)


def test_a_table_that_cannot_be_published_yet_is_named(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES, insert(1, 3))
    with (
        locking(database, "LOCK TABLE sighting IN SHARE MODE"),
        closing(open_feed(database, tmp_path)) as feed,
        pytest.raises(NotYetError, match=r"cannot create the publication: sighting is locked by .*LOCK"),
    ):
        feed.start()
    with closing(open_feed(database, tmp_path)) as feed:
        items, _, _ = follow(feed, database, feed.start())
    assert rows_of(items) == movies(1, 2, 3)


def test_static_tables_are_locked_before_reading(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read again, as the snapshot has ended with its process."""
    database.run(*TABLES, "INSERT INTO genre VALUES (1, 'noir')")
    with closing(open_feed(database, snapshot="no")) as feed:
        feed.start()
        with (
            locking(database, "LOCK TABLE genre IN ACCESS EXCLUSIVE MODE"),
            pytest.raises(NotYetError, match="genre is locked"),
        ):
            feed.tables()
        assert rows_of(table_items(feed)) == [("+", "genre", 1, "noir")]


def test_writers_and_readers_do_not_delay_a_snapshot(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES, insert(1, 3))
    with (
        locking(database, "LOCK TABLE genre IN EXCLUSIVE MODE"),
        closing(open_feed(database, tmp_path)) as feed,
    ):
        items, _, _ = follow(feed, database, feed.start())
    assert rows_of(items) == movies(1, 2, 3)
