"""A run waits for servers that are unavailable at its start, and reports those that reject it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from skws.jobs.local import LocalWatch
from skws.sources.postgres import change_feed as feed
from skws.sources.postgres.spool import copy_tables
from tests.commands import Skws
from tests.jobs.watching import (
    LAMP,
    QUERY,
    TABLES,
    YAML,
    Collected,
    Notes,
    append,
    customer,
    opened,
    order,
    ran,
    request,
    result_events,
    steps,
)
from tests.kafka import MockBroker
from tests.postgres import Database
from tests.waiting import until


@contextmanager
def stopped_server(database: Database, seconds: float = 1.0) -> Iterator[None]:
    """Stops the server, and starts it again while the block runs."""
    database.server.stop("fast")
    timer = threading.Timer(seconds, database.server.start)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def has_retried(notes: Notes) -> bool:
    return any("trying again in 0.1 s" in line and "Connection refused" in line for line in notes.lines)


@pytest.mark.check
def test_a_new_run_waits_for_its_database(database: Database) -> None:
    database.run(*TABLES, LAMP)
    sink, notes = Collected(), Notes()
    with stopped_server(database):
        LocalWatch(request(database.uri(), limit=1), [sink], notes.log).run()
    assert sink.told() == [("+", QUERY)]
    assert has_retried(notes)


@pytest.mark.slow
def test_a_resumed_run_waits_for_its_database(database: Database, tmp_path: Path, skws: Skws) -> None:
    database.run(*TABLES)
    out = tmp_path / "out.jsonl"
    job = request(database.uri(), checkpoint=tmp_path / "kept", sinks=(f"jsonl:{out}",), limit=1)
    opened(job).close()
    database.run(LAMP)
    notes = Notes()
    with stopped_server(database):
        watch = opened(job, notes=notes)
    assert has_retried(notes)
    until(lambda: watch.ended, watch.step)
    watch.close()
    assert [(op, query) for op, query, _ in result_events(out)] == [("+", QUERY)]
    assert skws("watch", "--drop-slot", "--source", database.uri()).code == 0


def test_a_run_survives_a_server_restart_during_its_start(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot is useless after the restart, and is created again."""
    database.run(*TABLES, LAMP)
    restarts = iter([True])

    def copied(*arguments: object) -> None:
        if next(restarts, False):
            database.server.stop("immediate")
            database.server.start()
        copy_tables(*arguments)  # type: ignore[arg-type]

    # After the slot is created, and before its snapshot is read.
    monkeypatch.setattr(feed, "copy_tables", copied)
    sink, notes = Collected(), Notes()
    LocalWatch(request(database.uri(), limit=1), [sink], notes.log).run()
    assert sink.told() == [("+", QUERY)]
    assert any("trying again" in line for line in notes.lines)
    assert database.ask("SELECT 1 FROM pg_replication_slots") == []


def test_a_run_stopped_while_waiting_leaves_no_state(tmp_path: Path) -> None:
    job = request("postgresql://joe@127.0.0.1:1/none", checkpoint=tmp_path / "kept")
    watch = LocalWatch(job, [Collected()], (notes := Notes()).log)
    thread = threading.Thread(target=watch.run)
    thread.start()
    until(lambda: has_retried(notes))
    watch.control.stop()
    thread.join(5)
    assert not thread.is_alive()
    path = tmp_path / "in.jsonl"
    path.touch()
    second = ran(request(path, checkpoint=tmp_path / "kept"), customer(1000, 7), order(1001, 7))
    assert second.told() == [("+", QUERY)]


@pytest.mark.parametrize(
    ("valid", "invalid", "message"),
    [
        ("owner:s3cret%2Fpass%40word", "owner:wrong", "password authentication failed"),
        ("/t", "/no", "does not exist"),
    ],
)
def test_a_rejected_connection_is_not_retried(
    database: Database,
    skws: Skws,
    tmp_path: Path,
    valid: str,
    invalid: str,
    message: str,
) -> None:
    (tmp_path / "schema.yaml").write_text(YAML)
    uri = database.uri().replace(valid, invalid)
    for source in (uri, str(tmp_path / "in.jsonl")):
        (tmp_path / "in.jsonl").write_text("")
        sink = "stdout:jsonl" if source == uri else uri
        command = ("watch", QUERY, "-s", tmp_path / "schema.yaml", "-S", source, "--sink", sink)
        outcome = skws(*command, "--engine", "local")
        assert outcome.code == (4 if source == uri else 1)
        assert message in outcome.err
        assert "trying again" not in outcome.err


def test_a_run_waits_for_its_brokers(tmp_path: Path) -> None:
    with closing(MockBroker()) as kafka:
        for topic in ("customer", "order"):
            kafka.create(topic)
        kafka.send("customer", [{"cid": 7, "name": "ada"}])
        kafka.send("order", [{"cid": 7, "item": "lamp"}])
        kafka.down()
        sink, notes = Collected(), Notes()
        timer = threading.Timer(2.0, kafka.up)
        timer.start()
        LocalWatch(request(kafka.uri("customer", "order"), limit=1), [sink], notes.log).run()
        timer.join()
    assert sink.told() == [("+", QUERY)]
    assert any("trying again in 0.1 s" in line for line in notes.lines)


@pytest.mark.slow
def test_a_sink_waits_for_its_database(database: Database, tmp_path: Path) -> None:
    path, notes = tmp_path / "in.jsonl", Notes()
    append(path, customer(1000, 7), order(1001, 7))
    with stopped_server(database):
        watch = opened(request(path, sinks=(database.uri(),)), notes=notes)
    assert any("trying again in 0.1 s" in line for line in notes.lines)
    steps(watch)
    watch.close()
    assert database.ask("SELECT query FROM results") == [(QUERY,)]
