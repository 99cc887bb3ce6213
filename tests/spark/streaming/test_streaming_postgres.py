"""A database followed on Spark: its snapshot, its changes, and the position of the next start."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from skws_windows.window import Unbounded
from tests.jobs.watching import request
from tests.postgres import Database
from tests.spark.streaming.spark_runs import running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


TABLES = (
    "CREATE TABLE customer (cid bigint PRIMARY KEY, name text)",
    'CREATE TABLE "order" (cid bigint, item text)',
    'ALTER TABLE "order" REPLICA IDENTITY FULL',
    "INSERT INTO customer VALUES (1, 'ada')",
    "INSERT INTO \"order\" VALUES (1, 'lamp')",
)


def test_changes_of_a_database(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES)
    asked = request(
        database.uri(), checkpoint=tmp_path / "checkpoint", window=Unbounded(), force_unbounded=True
    )
    with running(asked) as run:
        run.results(1)
        database.run("INSERT INTO \"order\" VALUES (1, 'green lamp')")
        run.results(2)
    # Spark confirms a batch to the source when it begins the next one.
    time.sleep(0.5)
    database.run("INSERT INTO customer VALUES (2, 'ada')", "DELETE FROM \"order\" WHERE item = 'lamp'")
    with running(asked) as run:
        run.results(1)
        database.run("INSERT INTO \"order\" VALUES (2, 'lamp')")
        run.results(2)
    told = [(r.op, [t.row["item"] for t in r.tuples if t.relation == "order"]) for r in run.sink.results]
    assert told == [("-", ["lamp"]), ("+", ["lamp"])]


def test_a_database_that_is_away_at_a_start_is_waited_for(database: Database, tmp_path: Path) -> None:
    """At a new run's start by the driver, at another one's by the process of the source."""
    database.run(*TABLES)
    asked = request(
        database.uri(), checkpoint=tmp_path / "checkpoint", window=Unbounded(), force_unbounded=True
    )
    for change in ("ANALYZE customer", "INSERT INTO \"order\" VALUES (1, 'lamp two')"):
        database.server.stop("fast")
        with running(asked) as run:
            run.until(lambda: any("Connection refused" in line for line in run.notes.lines))
            database.server.start()
            database.run(change)
            run.results(1)
        # A run that was stopped within a micro-batch reads it again first, and is started again for that.
        assert any("ing again in" in line for line in run.notes.lines)


def test_a_run_without_a_checkpoint_leaves_no_slot_behind(database: Database) -> None:
    database.run(*TABLES)
    for _ in range(2):
        with running(request(database.uri(), limit=1)) as run:
            run.results(1)
        assert database.ask("SELECT slot_name FROM pg_replication_slots") == []
        assert database.ask("SELECT pubname FROM pg_publication") == []
