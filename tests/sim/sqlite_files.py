"""SQLite over the simulated disk: whole databases are written where SQLite writes their pages.

The real library works on a copy in memory. The copy is loaded from the bytes of the file and written back at
each commit in the order of SQLite with a rollback journal that persists and ``synchronous = EXTRA``: the old
content and a sync, the new content and a sync, an empty header of the journal and a sync. So every fault of
the disk can occur between them, and a flipped bit is one of SQLite's own pages. SQLite's behaviour within its
pages is left to SQLite's tests.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import orjson

from tests.sim.world import World

_connect: Final = sqlite3.connect
_HEAD: Final = 20
_MESSAGES: Final = {errno.ENOSPC: "database or disk is full"}


class SqliteFile:
    """A connection to a file of the simulated disk, like that of ``sqlite3``."""

    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self._path = path
        self._journal = f"{path}-journal"
        self._interrupted = False
        self._guarded(self._roll_back)
        self._content = world.disk.content(path)
        self._memory = _load(self._content)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._memory.execute(statement, values)

    def close(self) -> None:
        self._memory.close()

    def __enter__(self) -> SqliteFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._memory.rollback()
        elif self._memory.in_transaction:
            self._memory.commit()
            try:
                self._guarded(self._commit)
            finally:
                self._memory = _load(self._content)

    def _commit(self) -> None:
        new_content = self._memory.serialize()
        header = b"%010d%010d" % (len(self._content), crc32(self._content))
        self._write(self._journal, header + self._content)
        self._sync(str(Path(self._path).parent))
        try:
            self._write(self._path, new_content)
            self._write(self._journal, bytes(_HEAD), whole=False)
        except OSError:
            with suppress(OSError):  # otherwise the next process does it
                self._roll_back()
            raise
        self._content = new_content
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _roll_back(self) -> None:
        """Restore the old content from a journal; sync it first, as its writer may not have."""
        old_data = old_content(self._world.disk.content(self._journal))
        if old_data is not None:
            self._sync(self._journal)
            self._write(self._path, old_data)
            self._write(self._journal, bytes(_HEAD), whole=False)

    def _write(self, path: str, data: bytes, *, whole: bool = True) -> None:
        """Write and sync the beginning of a file, or the ``whole`` file."""
        handle = self._call(lambda: os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[self._call(lambda: os.write(handle, remaining)) :]  # noqa: B023 - called at once
            if whole:
                self._call(lambda: os.ftruncate(handle, len(data)))
            self._call(lambda: os.fsync(handle))
        finally:
            os.close(handle)

    def _sync(self, path: str) -> None:
        handle = self._call(lambda: os.open(path, os.O_RDONLY))
        try:
            self._call(lambda: os.fsync(handle))
        finally:
            os.close(handle)

    def _call(self, call: Callable[[], Any]) -> Any:
        """Python raises an interrupt once SQLite has returned."""
        try:
            return call()
        except KeyboardInterrupt:
            self._interrupted = True
            return call()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            raise sqlite3.OperationalError(_MESSAGES.get(error.errno or 0, "disk I/O error")) from None


def old_content(journal: bytes) -> bytes | None:
    """The content in a rollback journal; None if the journal is incomplete."""
    length, checksum, content = journal[: _HEAD // 2], journal[_HEAD // 2 : _HEAD], journal[_HEAD:]
    is_complete = length.isdigit() and checksum.isdigit() and len(content) >= int(length)
    if not is_complete or crc32(content[: int(length)]) != int(checksum):
        return None
    return content[: int(length)]


def value_in(files: Mapping[str, bytes], path: str, kind: str, name: str) -> Any:
    """A JSON value of a state database among files; None if it is missing, or its file is damaged."""
    content = old_content(files.get(f"{path}-journal", b""))
    memory = _load(files.get(path, b"") if content is None else content)
    with suppress(sqlite3.Error, ValueError):
        rows: Iterable[Any] = memory.execute(
            "SELECT value FROM state WHERE kind = ? AND name = ?", (kind, name)
        ).fetchall()
        return next((orjson.loads(value) for (value,) in rows), None)
    return None


def _load(content: bytes) -> sqlite3.Connection:
    memory = _connect(":memory:", check_same_thread=False)
    if content:
        memory.deserialize(content)
    return memory
