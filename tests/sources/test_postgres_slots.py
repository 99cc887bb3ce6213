"""The slot and the snapshot: what the server and the run keep, and the errors if they are gone."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest

from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.log_history import lsn_of, lsn_text
from skws_schema.errors import SourceError
from tests.postgres import PASSWORD, Database, run_outside_transaction
from tests.sources.film_database import SCHEMA, TABLES, follow, insert, movies, open_feed, rows_of, source
from tests.sources.table_items import table_items
from tests.waiting import until


def confirmed_lsn(database: Database) -> int:
    statement = (
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    )
    return lsn_of(str(database.ask(statement)[0][0]))


def test_the_server_keeps_its_log_until_a_commit(database: Database) -> None:
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as feed:
        offset = feed.start()
        database.run(insert(1, 2000))
        _, offset, _ = follow(feed, database, offset)
        assert confirmed_lsn(database) < lsn_of(offset["lsn"])
        backlog = feed.backlog(offset)
        assert "the server keeps" in backlog.text
        assert (backlog.kept_bytes or 0) > 2000 * len("film") > (backlog.behind_bytes or 0) >= 0
        confirmed_backlog = feed.backlog({**offset, "lsn": lsn_text(confirmed_lsn(database))})
        assert (confirmed_backlog.behind_bytes or 0) > 2000 * len("film")
        feed.commit(offset)
        until(lambda: confirmed_lsn(database) >= lsn_of(offset["lsn"]))


@pytest.mark.parametrize("read", [False, True])
def test_only_committed_positions_are_confirmed(database: Database, read: bool) -> None:
    """Even if the log has nothing of these tables, and the server asks how much is flushed."""
    database.run(*TABLES, "CREATE TABLE other (x int)")
    with closing(open_feed(database, options="-c%20wal_sender_timeout%3D1s")) as feed:
        offset = feed.start()
        if read:
            database.run(insert(1, 2))
        _, first, _ = follow(feed, database, offset)
        database.run("INSERT INTO other VALUES (1)")
        _, later_offset, _ = follow(feed, database, first)
        feed.commit(first)
        time.sleep(0.6)  # the server asks after half a second
        assert list(feed.poll(later_offset, 10).read) == []
        until(lambda: confirmed_lsn(database) >= lsn_of(first["lsn"]))
        assert confirmed_lsn(database) == lsn_of(first["lsn"]) < lsn_of(later_offset["lsn"])
        assert list(feed.replay(first, later_offset)) == []
    with closing(open_feed(database)) as feed:
        database.run(insert(3, 4))
        items, _, _ = follow(feed, database, first)
        assert rows_of(items) == movies(3, 4)


def test_an_idle_table_does_not_retain_the_log(database: Database) -> None:
    """Offsets advance with the log of other tables."""
    database.run(*TABLES, "CREATE TABLE other (x int)")
    with closing(source(database).open(SCHEMA)) as feed:
        offset = feed.start()
        _, offset, _ = follow(feed, database, offset)
        database.run("INSERT INTO other SELECT generate_series(1, 10000)")
        items, later_offset, _ = follow(feed, database, offset)
        assert items == []
        assert lsn_of(later_offset["lsn"]) - lsn_of(offset["lsn"]) > 100_000


def test_a_leftover_slot_is_reported_and_can_be_dropped(database: Database) -> None:
    database.run(*TABLES, insert(1, 2))
    leftover = source(database)
    with closing(leftover.open(SCHEMA)) as feed:
        offset = feed.start()
        _, offset, _ = follow(feed, database, offset)
        offset = feed.poll(offset, 1).end
        with pytest.raises(SourceError, match=f"is in use by skws, process {os.getpid()} on "):
            leftover.drop_slot()
    _wait_for_release(database)
    with (
        closing(leftover.open(SCHEMA)) as feed,
        pytest.raises(SourceError, match=r"exists already.*--drop-slot"),
    ):
        feed.start()
    assert leftover.drop_slot().slot
    assert not leftover.drop_slot().slot
    slots = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{leftover.address.slot}'"
    assert database.ask(slots) == [(0,)]
    assert database.ask("SELECT count(*) FROM pg_publication") == [(0,)]
    with (
        closing(leftover.open(SCHEMA)) as feed,
        pytest.raises(SourceError, match="is gone, and so are the changes"),
    ):
        feed.poll(offset, 10)


def test_the_privilege_needed_to_publish_is_named(database: Database) -> None:
    role = f"reader_{database.name}"
    create_role = f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{PASSWORD}'"
    database.run(*TABLES, create_role, f"GRANT SELECT ON movie TO {role}")
    try:
        schema = replace(SCHEMA, relations=(SCHEMA.relation("movie"),), joins=())
        address = DatabaseAddress.of(database.uri(slot=database.name).replace("//owner:", f"//{role}:"))
        advice = f"GRANT CREATE ON DATABASE {database.name} TO {role}, and to own the tables"
        with (
            closing(PostgresSource(address).open(schema)) as feed,
            pytest.raises(SourceError, match=advice),
        ):
            feed.start()
    finally:
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_run_killed_at_its_start_starts_again(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES, insert(1, 3))
    with closing(open_feed(database, tmp_path)) as feed:
        feed.start()
    # As after a kill: the slot exists, the snapshot is incomplete.
    (header,) = tmp_path.glob("*-snapshot.json")
    header.rename(header.with_name(f"{database.name}-begun"))
    database.run(insert(4, 5))
    with closing(open_feed(database, tmp_path)) as feed:
        items, _, _ = follow(feed, database, feed.start())
    assert rows_of(items) == movies(*range(1, 6))
    assert list(tmp_path.glob("*-begun")) == []


def test_a_run_that_only_took_its_snapshot_restarts_from_it(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES, insert(1, 3))
    with closing(open_feed(database, tmp_path)) as feed:
        first = feed.start()
    with closing(open_feed(database, tmp_path)) as feed:
        assert feed.start() == first


def test_waiting_for_open_transactions_is_limited(database: Database) -> None:
    database.run(*TABLES)
    open_transaction = psycopg2.connect(database.uri())
    try:
        open_transaction.cursor().execute(insert(1, 1))
        with (
            closing(open_feed(database, patience="0.5")) as feed,
            pytest.raises(SourceError, match="PostgreSQL waits for every transaction"),
        ):
            feed.start()
        assert database.ask(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}'") == []
        threading.Timer(0.3, open_transaction.commit).start()
        with closing(open_feed(database)) as feed:
            items, _, _ = follow(feed, database, feed.start())
            assert rows_of(items) == movies(1)
    finally:
        open_transaction.close()


def test_a_slot_whose_log_was_removed_is_reported(database: Database) -> None:
    database.run(*TABLES)
    with closing(open_feed(database)) as feed:
        offset = feed.start()
    try:
        _apply_setting(database, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        for _ in range(4):
            database.run("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
            database.ask("SELECT pg_switch_wal()")
        _apply_setting(database, "CHECKPOINT")
        start = {"lsn": offset["lsn"], "change": 0, "time": 0, "server": offset["server"]}
        with (
            closing(open_feed(database)) as feed,
            pytest.raises(SourceError, match="the server has dropped its log"),
        ):
            feed.poll(start, 10)
    finally:
        _apply_setting(database, "ALTER SYSTEM RESET max_slot_wal_keep_size")


def _apply_setting(database: Database, statement: str) -> None:
    """Run a statement, and make the server reload its settings."""
    run_outside_transaction(database, statement)
    run_outside_transaction(database, "SELECT pg_reload_conf()")


def test_a_slot_can_be_continued_without_a_snapshot(database: Database) -> None:
    database.run(*TABLES, insert(1, 2))
    with closing(open_feed(database, snapshot="no")) as feed:
        feed.start()
    database.run(insert(3, 4))
    with closing(open_feed(database, snapshot="no")) as feed:
        items, _, _ = follow(feed, database, feed.start())
        assert rows_of(items) == movies(3, 4)


def test_a_snapshot_that_ended_with_its_process_is_reported(database: Database) -> None:
    database.run(*TABLES, insert(1, 20))
    with closing(open_feed(database)) as feed:
        offset = feed.poll(feed.start(), 5).end
    with (
        closing(open_feed(database)) as feed,
        pytest.raises(SourceError, match="the snapshot with which this run began is"),
    ):
        feed.poll(offset, 5)


def test_snapshot_rows_are_private_and_removed_when_read(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES, insert(1, 20))
    with closing(open_feed(database, tmp_path)) as feed:
        offset = feed.start()
        (rows,) = tmp_path.glob("*-rows.copy")
        assert rows.stat().st_mode & 0o077 == 0
        _, offset, _ = follow(feed, database, offset)
        feed.commit(offset)
        assert not rows.exists()
        assert table_items(feed) == []


def _wait_for_release(database: Database) -> None:
    active_slots = f"SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = '{database.name}'"
    until(lambda: not database.ask(active_slots))


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_damaged_snapshot_is_rejected(database: Database, tmp_path: Path, is_cut: bool) -> None:
    """Even by one bit, which would change the results of a search."""
    database.run(*TABLES, insert(1, 3))
    with closing(open_feed(database, tmp_path)) as feed:
        offset = feed.poll(feed.start(), 1).end
    (rows,) = tmp_path.glob("*-rows.copy")
    data = bytearray(rows.read_bytes())
    data[-5] ^= 1
    rows.write_bytes(data[: data.index(b"\n") + 1] if is_cut else data)
    with (
        closing(open_feed(database, tmp_path)) as feed,
        pytest.raises(SourceError, match=r"rows\.copy: damaged"),
    ):
        feed.poll(offset, 10)
    (header,) = tmp_path.glob("*-snapshot.json")
    header.write_bytes(header.read_bytes().replace(b'"time":1', b'"time":2'))
    with (
        closing(open_feed(database, tmp_path)) as feed,
        pytest.raises(SourceError, match="is gone; start a new run"),
    ):
        feed.poll(offset, 10)
