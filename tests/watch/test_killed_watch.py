"""``kill -9`` of a running ``skws watch`` at random moments: its output ends as if undisturbed."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from tests.watch.watching import QUERY, YAML, append, lines, numbered, told

ROOT = Path(__file__).resolve().parents[2]
RESULTS = 600


def command(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "skws", "watch", QUERY, "--engine", "local"),
        *("--schema", str(folder / "schema.yaml"), "--source", str(folder / "in.jsonl")),
        *("--checkpoint", str(folder / "checkpoint"), "--lateness", "1 s"),
        *("--sink", f"jsonl:{folder / 'out.jsonl'}", "--sink", f"sqlite:{folder / 'out.db'}"),
    ]


def write(path: Path, seconds: float) -> None:
    """The stream, a part at a time, lines cut in two among them."""
    records = list(numbered(RESULTS))
    for first in range(0, len(records), 10):
        append(path, *records[first : first + 10])
        time.sleep(seconds / (len(records) / 10))


def rows(folder: Path) -> set[str]:
    connected = sqlite3.connect(folder / "out.db")
    found = {row[0] for row in connected.execute("SELECT id FROM results")}
    connected.close()
    return found


def until(done: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_loses_and_repeats_nothing(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    (tmp_path / "schema.yaml").write_text(YAML)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.touch()
    writer = Thread(target=write, args=(source, kills * 1.2))
    writer.start()
    killed = 0
    while killed < kills:
        process = subprocess.Popen(command(tmp_path), cwd=ROOT, stderr=subprocess.DEVNULL)
        # Start-up takes about half a second: some are killed in the middle of recovery.
        time.sleep(rng.uniform(0.3, 1.8))
        assert process.poll() is None
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    writer.join()
    process = subprocess.Popen(command(tmp_path), cwd=ROOT, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert b"going on" in process.stderr.readline()
    until(lambda: len(lines_so_far(out)) >= RESULTS)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    ids = [identity for _, _, identity in told(out)]
    assert len(ids) == len(set(ids)) == RESULTS
    assert rows(tmp_path) == set(ids)
    assert [line["start"] for line in lines(out)] == sorted(line["start"] for line in lines(out))


def lines_so_far(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []
