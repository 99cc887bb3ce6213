"""The archive of Java classes made beside a run: when it starts, its messages, and its end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from queue import Empty, Queue

import pytest

from skws.spark.classes import archive_of
from skws.spark.java import java_cache
from skws.spark.local_java import java_options
from skws.spark.streaming import archiving
from skws.spark.streaming.archiving import NOT_WANTED, Archiving

PATIENCE = 20


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue[subprocess.Popen[bytes]]:
    """Processes in the place of those that make an archive: they wait for the end of their input."""
    monkeypatch.delenv(NOT_WANTED, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(archiving, "use_java", lambda: Path("/bin/sh"))
    queue: Queue[subprocess.Popen[bytes]] = Queue()

    def preparing() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        queue.put(process)
        return process

    monkeypatch.setattr(archiving, "_preparing", preparing)
    return queue


def test_it_is_told_when_it_is_begun_and_when_it_is_done(begun: Queue[subprocess.Popen[bytes]]) -> None:
    told: Queue[str] = Queue()
    Archiving(told.put, rest=0).start()
    process = begun.get(timeout=PATIENCE)
    assert f"160 MB in {java_cache()}" in told.get(timeout=PATIENCE)
    assert process.stdin is not None
    process.stdin.close()
    assert "the next start on Spark is sooner" in told.get(timeout=PATIENCE)


def test_it_ends_with_the_run_and_says_nothing_more(begun: Queue[subprocess.Popen[bytes]]) -> None:
    told: Queue[str] = Queue()
    making = Archiving(told.put, rest=0)
    making.start()
    process = begun.get(timeout=PATIENCE)
    told.get(timeout=PATIENCE)
    making.end()
    assert process.wait(PATIENCE) == 0
    assert told.empty()


def test_a_run_that_ends_soon_begins_none(begun: Queue[subprocess.Popen[bytes]]) -> None:
    making = Archiving(lambda _: None, rest=0.2)
    making.start()
    making.end()
    with pytest.raises(Empty):
        begun.get(timeout=0.5)


@pytest.mark.parametrize("there", [True, False])
def test_none_is_made_where_there_is_one_or_none_is_wanted(
    begun: Queue[subprocess.Popen[bytes]], there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        archive = archive_of(Path("/bin/sh"), java_options())
        archive.parent.mkdir(parents=True)
        archive.touch()
    else:
        monkeypatch.setenv(NOT_WANTED, "1")
    Archiving(lambda _: None, rest=0).start()
    with pytest.raises(Empty):
        begun.get(timeout=0.3)
