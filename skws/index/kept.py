"""The indexes in the cache: a folder for each, in which one process at a time works.

When an index is made, those unused for a month are deleted, and the least recently used ones beyond
``MOST`` bytes. A process that has one open can continue to use it: the system keeps a deleted file while it
is mapped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from typing import Final

from skws.durable import cache_folder
from skws.sources.feed import redacted

TABLES: Final = "tables"
DATABASES: Final = "databases"
MOST: Final = 2 << 30
"""The most bytes of all indexes together, unless the latest alone is larger."""
_DAYS: Final = 30
_LOCK: Final = "lock"  # a file whose modification time is the time of the last use
_ATTEMPTS: Final = 1_000  # to lock a folder that other processes remove
_OF: Final = "of"
_BLOCK: Final = 512  # bytes; a sparse file takes fewer blocks than its size


@dataclass(frozen=True, slots=True)
class CachedIndex:
    """An index in the cache. ``source``: without a password. ``used``: seconds since the epoch."""

    folder: Path
    source: str
    size: int
    used: float


@contextmanager
def locked_folder(folder: Path, source: str) -> Iterator[None]:
    """Hold the lock of an index's folder, created if missing, for the index of ``source``. Raises OSError."""
    lock = _lock(folder)
    try:
        os.utime(folder / _LOCK)
        (folder / _OF).write_bytes(os.fsencode(redacted(source)))
        yield
    finally:
        os.close(lock)


@contextmanager
def locked_parent(path: Path) -> Iterator[None]:
    """Hold a lock on the folder of a file, in which no other file is left. Raises OSError.

    Without effect if the file system has no locks on folders.
    """
    lock = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, FileNotFoundError):  # another process may be removing the folder
            if not attempts_left:
                raise
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_current(lock, folder):
            return lock
        os.close(lock)
    raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(folder))


def _is_current(lock: int, folder: Path) -> bool:
    """False if the folder of a lock was removed meanwhile: then another process may have a new lock there."""
    with suppress(FileNotFoundError):
        return os.fstat(lock).st_ino == (folder / _LOCK).stat().st_ino
    return False


def cached_indexes() -> list[CachedIndex]:
    """All indexes in the cache, the most recently used first."""
    indexes = (
        _read_entry(lock) for kind in (TABLES, DATABASES) for lock in cache_folder(kind).glob(f"*/{_LOCK}")
    )
    return sorted(
        (index for index in indexes if index is not None), key=lambda index: index.used, reverse=True
    )


def delete_old(latest: Path, most: int = MOST) -> None:
    """Delete the indexes that are too old or exceed ``most`` bytes, except the ``latest``."""
    size, oldest = 0, time.time() - _DAYS * 86_400
    for index in cached_indexes():
        size += index.size
        if index.folder != latest and (index.used < oldest or size > most):
            _remove(index)


def clear() -> list[CachedIndex]:
    """Delete all indexes that no process is making; returns the deleted ones."""
    return [index for index in cached_indexes() if _remove(index)]


def _read_entry(lock: Path) -> CachedIndex | None:
    folder = lock.parent
    try:
        size = sum(_BLOCK * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())
        source = os.fsdecode((folder / _OF).read_bytes()) if (folder / _OF).exists() else folder.name
        return CachedIndex(folder, source, size, lock.stat().st_mtime)
    except OSError:  # another process removes it
        return None


def _remove(index: CachedIndex) -> bool:
    with suppress(OSError), (index.folder / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(lock.fileno(), index.folder):
            shutil.rmtree(index.folder)
            return True
    return False
