"""A live search over a database resumes where it was interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skws.jobs.local import LocalWatch
from skws.sources.postgres.database_address import slots_of_this_host
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType
from skws_windows.window import TimeWindow
from tests.commands import Skws
from tests.jobs.watching import (
    LAMP,
    QUERY,
    SCHEMA,
    TABLES,
    Collected,
    Notes,
    lines,
    opened,
    request,
    result_events,
)
from tests.postgres import PASSWORD, Database
from tests.waiting import until


def until_lines(watch: LocalWatch, path: Path, count: int) -> None:
    until(lambda: len(lines(path)) >= count, watch.step, lambda: result_events(path))


def slots(database: Database) -> list[tuple[Any, ...]]:
    """The names of the slots, and whether they are active."""
    return database.ask(
        "SELECT slot_name, active FROM pg_replication_slots WHERE database = current_database()"
    )


def test_a_run_does_not_drop_the_slot_of_another_run(database: Database) -> None:
    """Without its slot, the other run could never continue."""
    database.run(*TABLES[:2])
    database.run("SELECT pg_create_logical_replication_slot('skws', 'pgoutput')")
    notes = Notes()
    with pytest.raises(SourceError, match="the slot 'skws' exists already"):
        LocalWatch(request(database.uri(slot="skws")), [Collected()], notes.log).run()
    assert slots(database) == [("skws", False)]
    database.run("SELECT pg_drop_replication_slot('skws')")


def test_a_run_without_a_checkpoint_drops_its_slot(database: Database) -> None:
    """No run could resume from it, and it would fill the server's disk."""
    database.run(*TABLES, LAMP)
    for _ in range(2):
        sink = Collected()
        LocalWatch(request(database.uri(), limit=1), [sink], Notes().log).run()
        assert sink.told() == [("+", QUERY)]
        assert slots(database) == []


def test_several_runs_without_a_checkpoint_follow_one_database(database: Database) -> None:
    database.run(*TABLES)
    sinks = Collected(), Collected()
    runs = [opened(request(database.uri()), sink) for sink in sinks]
    database.run(LAMP)
    for run, sink in zip(runs, sinks, strict=True):
        until(lambda: sink.results, run.step)  # noqa: B023 - called at once
    for run in runs:
        run.close()
    assert database.ask("SELECT 1 FROM pg_publication UNION ALL SELECT 1 FROM pg_replication_slots") == []


def test_a_run_drops_slots_of_killed_runs_on_its_machine(database: Database) -> None:
    """Only these: other runs read from their slots, or will resume from them."""
    database.run(*TABLES, LAMP)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    dead_slot = f"{slots_of_this_host()}{process.pid}_1"
    other_slots = [f"{slots_of_this_host()}{os.getppid()}_7", "skws_run_elsewhere_1_1", "skws"]
    for name in (dead_slot, *other_slots):
        database.run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    LocalWatch(request(database.uri(), limit=1), [Collected()], Notes().log).run()
    assert sorted(name for name, _ in slots(database)) == sorted(other_slots)
    for name in other_slots:
        database.run(f"SELECT pg_drop_replication_slot('{name}')")


def test_a_second_run_does_not_consume_changes_of_the_first(
    database: Database, tmp_path: Path, skws: Skws
) -> None:
    """A run with a checkpoint is stopped, one without runs on its own slot, and the first resumes."""
    database.run(*TABLES[:2], TABLES[3])
    out = tmp_path / "out.jsonl"
    job = request(database.uri(), sinks=(f"jsonl:{out}",), checkpoint=tmp_path / "kept", lateness=60_000_000)
    opened(job).close()
    sink = Collected()
    other = opened(request(database.uri(slot=f"{database.name}_two")), sink)
    database.run(LAMP)
    until(lambda: sink.results, other.step)
    other.close()
    first = opened(job)
    until_lines(first, out, 1)
    first.close()
    assert [(op, query) for op, query, _ in result_events(out)] == [("+", QUERY)]
    assert database.ask("SELECT pubname::text FROM pg_publication") == [("skws",)]
    assert skws("watch", "--drop-slot", "-S", database.uri(), "--checkpoint", tmp_path / "kept").code == 0
    assert database.ask("SELECT 1 FROM pg_publication UNION ALL SELECT 1 FROM pg_replication_slots") == []


def test_dropping_a_slot_keeps_a_publication_in_use(database: Database, skws: Skws) -> None:
    database.run(
        "CREATE TABLE customer (cid bigint PRIMARY KEY)",
        "CREATE PUBLICATION skws FOR TABLE customer",
        "COMMENT ON PUBLICATION skws IS 'made by skws'",
    )
    second_slot = f"{database.name}_two"
    for slot in ("skws", second_slot):
        database.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    for slot, note in (("skws", f"; its publication is kept: {second_slot} may read it"), (second_slot, "")):
        error = skws("watch", "--drop-slot", "--source", database.uri(slot=slot)).err
        assert f"dropped the slot {slot!r}" in error
        assert ("its publication is kept" in error) == bool(note)
        assert note in error
    outcome = skws("watch", "--drop-slot", "--source", database.uri())
    assert (outcome.code, "there is no slot 'skws'" in outcome.err) == (0, True)
    assert skws("watch", "--drop-slot", "--source", "in.jsonl").code == 2


def test_the_schema_of_a_new_database_is_inferred_and_saved(
    database: Database, tmp_path: Path, skws: Skws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    database.run(
        "CREATE TABLE customer (cid bigint PRIMARY KEY, name text)",
        "CREATE TABLE purchase (pid bigint PRIMARY KEY, cid bigint REFERENCES customer, item text)",
        "INSERT INTO customer VALUES (7, 'Ada Byron')",
        "INSERT INTO purchase VALUES (1, 7, 'travel kettle')",
    )
    outcome = skws("watch", "ada", "kettle", "--source", database.uri(), "--limit", 1, "--format", "jsonl")
    assert (outcome.code, len(outcome.records)) == (0, 1)
    (schema_file,) = (tmp_path / "share" / "skws" / "schemas").iterdir()
    assert str(schema_file) in outcome.err
    assert "purchase.cid = customer.cid" in outcome.err
    assert PASSWORD not in outcome.err + schema_file.read_text()
    skws("watch", "--drop-slot", "--source", database.uri())


def test_rows_of_the_snapshot_are_never_late(database: Database) -> None:
    """Whichever tables have a time attribute. The first late change is reported at once."""
    database.run(
        "CREATE TABLE customer (cid bigint PRIMARY KEY, name text)",
        'CREATE TABLE "order" (cid bigint, item text, at timestamptz)',
        "INSERT INTO customer SELECT i, 'ada' FROM generate_series(1, 40) i",
        "INSERT INTO \"order\" SELECT i, 'lamp', timestamptz '2024-01-01Z' + (i * 7 % 40) * interval '1 day' "
        "FROM generate_series(1, 40) i",
    )
    customers, orders = SCHEMA.relations
    time_attribute = Attribute("at", AttributeType.TIMESTAMP)
    timed_orders = replace(orders, attributes=(*orders.attributes, time_attribute), time="at")
    schema = replace(SCHEMA, relations=(customers, timed_orders))
    sink, notes = Collected(), Notes()
    watch = opened(request(database.uri(), schema=schema, window=TimeWindow(10**16)), sink, notes=notes)
    until(lambda: len(sink.results) == 40, watch.step)
    assert watch.metrics().late == 0
    assert not any("too late" in line for line in notes.lines)
    database.run("INSERT INTO \"order\" VALUES (1, 'lamp', '2024-02-01Z'), (2, 'lamp', '2024-03-01Z')")
    until(lambda: watch.metrics().late == 2, watch.step)
    late_notes = [line for line in notes.lines if "too late" in line]
    assert len(late_notes) == 1
    assert "a tuple of order came too late: its time is 2024-02-01T00:00:00Z" in late_notes[0]
    assert "--lateness" in late_notes[0]
    assert (watch.metrics().tuples, len(sink.results)) == (80, 40)
    watch.close()


def test_a_run_continues_after_a_column_was_renamed(database: Database, tmp_path: Path) -> None:
    """Whether it was running or stopped at the time: log entries before the change have the old name."""
    database.run(*TABLES)
    item = replace(SCHEMA.relation("order").attributes[1], origin="thing")
    order = SCHEMA.relation("order")
    renamed_order = replace(order, attributes=(order.attributes[0], item))
    new_schema = replace(SCHEMA, relations=(SCHEMA.relation("customer"), renamed_order))
    job = request(database.uri(slot=database.name), checkpoint=tmp_path)
    opened(job, Collected()).close()
    database.run(LAMP, 'ALTER TABLE "order" RENAME item TO thing', LAMP)
    sink, notes = Collected(), Notes()
    run = opened(job, sink, notes=notes)
    with pytest.raises(SourceError, match=r"public\.order no longer has the column 'item'"):
        until(lambda: False, run.step)
    run.close()
    assert sink.told() == [("+", QUERY)]
    assert any("has no column 'item': reading the log up to that change" in line for line in notes.lines)
    sink = Collected()
    run = opened(replace(job, schema=new_schema), sink)
    until(lambda: sink.results, run.step)
    database.run("DELETE FROM customer")
    until(lambda: len(sink.results) == 3, run.step)
    run.close()
    assert sink.told() == [("+", QUERY), ("-", QUERY), ("-", QUERY)]
