"""The state of a run is committed atomically and readable only by its owner; errors describe damage."""

from __future__ import annotations

import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from skws.state_database import NAME, StateDatabase, StateKind
from skws_schema.errors import StateError
from tests.places import ROOT
from tests.sim.sqlite_files import SqliteFile
from tests.sim.world import Fault, World

RUN, SINKS = StateKind.RUN, StateKind.SINKS


def opened(folder: Path) -> StateDatabase:
    return StateDatabase(folder / NAME)


def test_values_are_stored_by_kind_and_name(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as state:
        state.put(RUN, "b", b"1")
        state.put(RUN, "a", b"\0")
        state.put(SINKS, "a", b"")
        state.put_json(RUN, "b", {"two": 2})
    with closing(opened(tmp_path)) as state:
        assert list(state.items(RUN)) == [("a", b"\0"), ("b", b'{"two":2}')]
        assert (state.get(SINKS, "a"), state.get(SINKS, "b")) == (b"", None)
        assert (state.get_json(RUN, "b"), state.get_json(RUN, "c")) == ({"two": 2}, None)
        state.clear(RUN)
        assert [*state.items(RUN), *state.items(SINKS)] == [("a", b"")]


def test_a_failed_transaction_is_rolled_back_and_gathering_commits_the_complete_ones(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as state:
        with suppress(KeyboardInterrupt), state.transaction():
            state.put(RUN, "one", b"1")
            raise KeyboardInterrupt
        assert list(state.items(RUN)) == []
        with suppress(KeyboardInterrupt), state.gathering():
            state.put(SINKS, "one", b"1")
            with state.transaction():
                state.put(RUN, "two", b"2")
                state.put(RUN, "three", b"3")
            with state.transaction():
                state.clear(RUN)
                raise KeyboardInterrupt
        assert [*state.items(SINKS), *state.items(RUN)] == [("one", b"1"), ("three", b"3"), ("two", b"2")]


def test_changes_are_visible_only_after_their_transaction(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as state, closing(StateDatabase(state.path, read_only=True)) as reader:
        with state.transaction():
            state.put(RUN, "one", b"1")
            assert state.get(RUN, "one") is reader.get(RUN, "one") is None
        assert state.get(RUN, "one") == reader.get(RUN, "one") == b"1"


def test_the_state_database_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as state:
        state.put(RUN, "one", b"1")
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_read_only_database_must_exist(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"state\.db: missing: the run cannot continue without it"):
        StateDatabase(tmp_path / NAME, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_reported_or_harmless(tmp_path: Path) -> None:
    rng = random.Random(3)
    with closing(opened(tmp_path)) as state:
        for number in range(40):
            state.put(StateKind.TABLES, f"{number:03d}", rng.randbytes(rng.choice((0, 10, 700))))
        state.put_json(RUN, "settings", {"id": "one", "version": 9})
        expected = [*state.items(StateKind.TABLES), *state.items(RUN)]
    path, rejected_count, readable_count = tmp_path / NAME, 0, 0
    data = path.read_bytes()
    lengths = [*range(0, len(data), 997), len(data) - 1]
    bit_flips = [(offset, 1 << rng.randrange(8)) for offset in rng.sample(range(len(data)), 700)]
    for content in (*(data[:length] for length in lengths), *(_flipped(data, *flip) for flip in bit_flips)):
        path.write_bytes(content)
        try:
            with closing(opened(tmp_path)) as state:
                items = [*state.items(StateKind.TABLES), *state.items(RUN)]
        except StateError as error:
            rejected_count += str(error).startswith(f"{path}: damaged")
            continue
        assert items in (expected, [])
        assert items or not content  # an empty file is a new database
        readable_count += 1
    assert rejected_count > 300
    assert rejected_count + readable_count == len(lengths) + len(bit_flips)


def _flipped(data: bytes, offset: int, bits: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ bits]) + data[offset + 1 :]


_WRITER = """
import sys
from pathlib import Path
from skws.state_database import StateDatabase, StateKind
state = StateDatabase(Path(sys.argv[1]))
for number in range(1 << 30):
    with state.transaction():
        state.put(StateKind.RUN, "one", b"%d" % number)
        state.put(StateKind.RUN, "other", b"%d" % number * 5000)
    print(number, flush=True)
"""


def test_a_killed_process_leaves_complete_commits(tmp_path: Path) -> None:
    path, committed = tmp_path / NAME, -1
    for seed in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        committed = int(writer.stdout.readline())
        time.sleep(random.Random(seed).uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        committed = max(
            [committed, *(int(line) for line in writer.communicate()[0].splitlines() if line.isdigit())]
        )
        with closing(StateDatabase(path)) as state:
            number = state.get_json(RUN, "one")
            assert number in (committed, committed + 1)
            assert state.get(RUN, "other") == b"%d" % number * 5000


def test_a_failed_commit_is_retried_on_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync fails once: the error contains SQLite's message, and closing the database commits."""
    world = World()
    path = Path("/sim/state.db")
    with world.simulated():
        monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: SqliteFile(world, str(path)))
        state = StateDatabase(path)
        state.put(RUN, "one", b"1")
        world.arm([Fault("error", 2, 0.9, "sync")])
        with pytest.raises(StateError, match=r"state\.db: cannot write: disk I/O error"):
            state.put(RUN, "one", b"2")
        assert state.get(RUN, "one") == b"1"
        state.close()
        with closing(StateDatabase(path)) as reopened:
            assert reopened.get(RUN, "one") == b"2"
