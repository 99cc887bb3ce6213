"""The cache of indexes is limited by age and size, can be listed, and can be cleared."""

from __future__ import annotations

import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from skws.durable import cache_folder
from skws.index.kept import DATABASES, TABLES, cached_indexes, clear, delete_old, locked_folder
from tests.commands import Skws


@pytest.fixture
def databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skws: Skws) -> list[Path]:
    """Three files, searched in this order."""
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path / "cache"))
    paths = [tmp_path / f"{name}.db" for name in ("a", "b", "c")]
    for age, path in enumerate(reversed(paths)):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE movie (id integer primary key, title text)")
            connection.execute("INSERT INTO movie VALUES (1, 'Pulp Fiction')")
        assert skws("search", path, "pulp", "--quiet").code == 0
        (newest, *_) = cached_indexes()
        mtime = time.time() - (2 - age) * 86_400
        os.utime(newest.folder / "lock", (mtime, mtime))
    return paths


def names() -> list[str]:
    return [Path(index.source).name for index in cached_indexes()]


def test_old_and_excess_indexes_are_deleted_when_one_is_built(databases: list[Path], skws: Skws) -> None:
    assert names() == ["a.db", "b.db", "c.db"]
    first, second, third = cached_indexes()
    delete_old(first.folder, most=first.size + second.size)
    assert names() == ["a.db", "b.db"]
    delete_old(second.folder, most=first.size)
    assert names() == ["a.db", "b.db"]
    os.utime(second.folder / "lock", (0, 0))
    assert skws("search", databases[2], "pulp", "--quiet").code == 0  # the index is built again
    assert names() == ["c.db", "a.db"]
    assert third.folder.exists()


def test_a_damaged_name_of_an_index_ends_no_command(databases: list[Path], skws: Skws) -> None:
    (cached_indexes()[0].folder / "of").write_bytes(b"\xff")
    assert skws("cache").code == 0
    delete_old(cached_indexes()[2].folder)
    assert names()[1:] == ["b.db", "c.db"]


def test_an_index_of_a_file_whose_name_is_not_utf_8_is_cached(databases: list[Path], skws: Skws) -> None:
    name = os.fsdecode(b"m\xfcller.db")
    try:
        path = databases[0].rename(databases[0].with_name(name))
    except OSError:  # as on macOS
        pytest.skip("the file system only has names in UTF-8")
    assert skws("search", path, "pulp", "--quiet").code == 0
    assert names()[0] == name


def test_cached_indexes_are_listed_and_cleared(databases: list[Path], skws: Skws) -> None:
    output = skws("cache").out.splitlines()
    assert [line.split("MB  ")[1].split() for line in output[:3]] == [
        ["today", str(databases[0])],
        ["1", "day", "ago", str(databases[1])],
        ["2", "days", "ago", str(databases[2])],
    ]
    assert output[3].startswith("3 indexes, ")
    with locked_folder(cached_indexes()[1].folder, "made just now"):
        assert skws("cache", "clear").out.startswith("2 indexes deleted, ")
    assert names() == ["made just now"]
    assert skws("cache", "clear").out.startswith("1 index deleted, ")
    assert list(cache_folder(DATABASES).iterdir()) == []
    assert skws("cache").out.startswith("0 indexes, 0.0 MB in ")
    assert skws("search", databases[0], "pulp", "--quiet").code == 0


def test_an_index_is_made_while_others_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder may be removed at any time before it is locked, and not after."""
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path / "cache"))
    folder = cache_folder(TABLES) / "index"
    done = Event()

    def clear_all() -> None:
        while not done.is_set():
            clear()

    with ThreadPoolExecutor() as threads:
        clearing = [threads.submit(clear_all) for _ in range(2)]
        try:
            for _ in range(1_000):
                with locked_folder(folder, "a source"):
                    (folder / "part").touch()
                    assert (folder / "part").exists()
        finally:
            done.set()
        for each in clearing:
            each.result()
