"""Resuming at an offset after a crash, a restart, or within a transaction: no record is lost or repeated."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from skws.data.batch import Item
from skws.sources.feed import Feed, Offset
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.slot import LogPosition, SlotStream
from skws_schema.errors import SourceError
from tests.clocks import HandClock
from tests.places import ROOT
from tests.postgres import Database
from tests.sources.film_database import SCHEMA, TABLES, follow, insert, movies, records, rows_of, source
from tests.strategies import THOROUGH


def test_committed_changes_cannot_be_read_again(database: Database) -> None:
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as feed:
        start = feed.start()
        database.run(insert(1, 5))
        _, end, _ = follow(feed, database, start)
        feed.commit(end)
        follow(feed, database, end)
        with pytest.raises(SourceError, match="no longer has the changes since"):
            list(feed.replay({"lsn": start["lsn"], "change": 0, "time": 0, "server": start["server"]}, end))
    with closing(source(database).open(SCHEMA)) as feed:
        database.run(insert(6, 7))
        items, _, _ = follow(feed, database, end)
        assert rows_of(items) == movies(6, 7)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_loses_and_repeats_nothing(database: Database, mode: str) -> None:
    database.run(*TABLES, insert(1, 3))
    with closing(source(database).open(SCHEMA)) as feed:
        offset = feed.start()
        items, offset, _ = follow(feed, database, offset)
        database.run(insert(4, 6))
        committed_items, offset, _ = follow(feed, database, offset)
        feed.commit(offset)
        database.run(insert(7, 8))
        items_at_stop, offset, notices = _read_during_stop(feed, database, offset, mode)
        database.server.start()
        database.run(insert(9, 10))
        remaining, offset, later_notices = follow(feed, database, offset)
        assert rows_of(items + committed_items + items_at_stop + remaining) == movies(*range(1, 11))
    all_notices = " ".join((*notices, *later_notices))
    assert "trying again in" in all_notices
    assert "connected again" in all_notices


def _read_during_stop(
    feed: Feed, database: Database, offset: Offset, mode: str
) -> tuple[list[Item], Offset, list[str]]:
    """Read while the server stops, which must not wait for uncommitted changes."""
    stopping_thread = threading.Thread(target=database.server.stop, args=(mode,))
    stopping_thread.start()
    items: list[Item] = []
    notices: list[str] = []
    while stopping_thread.is_alive():
        batch = feed.poll(offset, 100)
        items += batch.read
        offset = batch.end
        notices += batch.notices
        time.sleep(0.01)
    stopping_thread.join()
    batch_while_away = feed.poll(offset, 100)
    assert (list(batch_while_away.read), batch_while_away.end) == ([], offset)
    return items, offset, [*notices, *batch_while_away.notices]


def test_reading_again_waits_for_the_server(database: Database) -> None:
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as feed:
        start = feed.start()
        database.run(insert(1, 500))
        items, end, _ = follow(feed, database, start, limit=100)
        database.server.stop("immediate")
        restart_timer = threading.Timer(0.5, database.server.start)
        restart_timer.start()
        assert list(feed.replay(start, end)) == items
        restart_timer.join()


def test_changes_of_concurrent_writers_arrive_once_and_in_order(database: Database) -> None:
    """Concurrent transactions of several connections, batches of every size, and occasional commits."""
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as feed:
        offset = feed.start()
        writer_threads = [threading.Thread(target=_write, args=(database, writer)) for writer in range(3)]
        for writer in writer_threads:
            writer.start()
        items: list[Item] = []
        limit = 1
        while len(items) < 3 * 60:
            batch = feed.poll(offset, limit)
            items += batch.read
            offset, limit = batch.end, limit % 13 + 1
            if limit % 4 == 0:
                feed.commit(offset)
        for writer in writer_threads:
            writer.join()
        remaining, _, _ = follow(feed, database, offset)
    assert remaining == []
    for number in range(3):
        writer_items = [entry for entry in rows_of(items) if entry[-1] == number]
        assert writer_items == [("+", "movie", number * 1000 + i, "x", number) for i in range(60)]
    times = [record.time for record in records(items)]
    assert times == sorted(times)


def test_a_batch_ends_with_a_transaction(database: Database) -> None:
    """So that rows that are deleted and inserted again in one are updated, for any size of batches."""
    database.run(*TABLES)
    with closing(source(database).open(SCHEMA)) as feed:
        _, offset, _ = follow(feed, database, feed.start())
        for first in (1, 101):
            database.run(insert(first, first + 29))
        sizes: list[int] = []
        while sum(sizes) < 60:
            batch = feed.poll(offset, 7)
            offset = batch.end
            sizes += [len(batch.read)] if len(batch.read) else []
    assert sizes == [30, 30]


def _write(database: Database, writer: int) -> None:
    for first in range(0, 60, 4):
        rows = ", ".join(f"({writer * 1000 + i}, 'x', {writer})" for i in range(first, first + 4))
        database.run(f"INSERT INTO movie VALUES {rows}")


@pytest.mark.check
def test_a_killed_process_resumes(database: Database, tmp_path: Path) -> None:
    """Offsets are written after each batch; the process is killed between any two instructions."""
    database.run(*TABLES, insert(1, 300))
    log = tmp_path / "batches"
    arguments = [sys.executable, "-c", FOLLOWER, database.uri(slot=database.name), str(tmp_path), str(log)]
    writer = threading.Thread(target=_write_slowly, args=(database,))
    writer.start()
    for count in (0, 1, 100, 250, 400, 550, 700, 900) if THOROUGH else (1, 300, 900):
        process = subprocess.Popen(arguments, cwd=ROOT)
        time.sleep(random.uniform(0.1, 0.5))
        while len(_numbers_in_log(log)) < count:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
    writer.join()
    assert _numbers_in_log(log) == list(range(1, 901))


def _write_slowly(database: Database) -> None:
    for first in range(301, 901, 10):
        database.run(insert(first, first + 9))
        time.sleep(0.04)


def _numbers_in_log(log: Path) -> list[int]:
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return [number for line in lines if line.endswith(b"\n") for number in json.loads(line)["items"]]


FOLLOWER = """
import json, sys
from pathlib import Path
from skws.sources.addresses import parse_source
from tests.sources.film_database import SCHEMA

uri, folder, log = sys.argv[1:]
feed = parse_source(uri, folder=Path(folder)).open(SCHEMA)
lines = Path(log).read_bytes().splitlines(keepends=True) if Path(log).exists() else []
whole = [line for line in lines if line.endswith(b"\\n")]
offset = json.loads(whole[-1])["end"] if whole else feed.start()
with open(log, "r+b" if lines else "wb") as file:
    file.truncate(sum(map(len, whole)))
    file.seek(0, 2)
    while True:
        batch = feed.poll(offset, 7)
        offset = batch.end
        if batch.read:
            items = [item.row[0] for item in batch.read]
            file.write(json.dumps({"items": items, "end": offset}).encode() + b"\\n")
            file.flush()
            feed.commit(offset)
"""


def test_retries_take_longer_each_time_and_end() -> None:
    clock = HandClock()
    slot_stream = SlotStream(DatabaseAddress.of("postgresql://joe:secret@127.0.0.1:1/none"), clock)
    assert not slot_stream.open(LogPosition(0))
    assert not slot_stream.open(LogPosition(0))
    (notice,) = slot_stream.take_notices()
    assert "Connection refused" in notice
    assert "trying again in 0.1 s" in notice
    for _ in range(9):
        slot_stream.wait()
        assert not slot_stream.open(LogPosition(0))
    durations = [line.rpartition(" in ")[2] for line in (notice, *slot_stream.take_notices())]
    assert durations == [
        "0.1 s",
        "0.2 s",
        "0.4 s",
        "0.8 s",
        "1.6 s",
        "3.2 s",
        "6.4 s",
        "10 s",
        "10 s",
        "10 s",
    ]
    clock.sleep(300_000_000)
    with pytest.raises(SourceError, match="tried for 300 seconds"):
        slot_stream.open(LogPosition(0))
