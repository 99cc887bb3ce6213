"""A file that grows by whole pieces, and is never said to hold one of which a part is there."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class GrowingFile:
    """Appends to ``path``, which is made with ``mode``. Raises OSError.

    A piece that is broken off, by a full disk or an interrupt, is cut away at
    once if that is possible. The file is broken then: it takes no more pieces,
    and ``sync`` fails, so that nobody notes a length with half a piece in it.
    ``anew``: what is in it goes. ``shared``: other processes append to it, too.
    """

    def __init__(self, path: Path, *, mode: int = 0o666, anew: bool = False, shared: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if anew else 0)
        self.path = path
        self._handle = os.open(path, flags, mode)
        self._regular = stat.S_ISREG(os.fstat(self._handle).st_mode)
        self._shared = shared
        self._broken = False
        self._synced = True
        self._closed = False

    @property
    def size(self) -> int:
        """In bytes; 0 of a pipe or device."""
        return os.fstat(self._handle).st_size

    def append(self, piece: bytes) -> None:
        """All of it, or the file is broken. Readers see it at once."""
        self._check()
        with self._alone():
            before = self.size
            self._broken, self._synced = True, False
            try:
                written(self._handle, piece)
            except BaseException:
                with suppress(OSError):
                    self.cut(before)
                raise
        self._broken = False

    def cut(self, length: int) -> None:
        """Leave the first bytes of a regular file alone."""
        if self._regular:
            os.ftruncate(self._handle, length)
            self._synced = False

    def sync(self) -> int:
        """All pieces are there for good, also after a loss of power; gives the size."""
        self._check()
        if self._regular and not self._synced:
            self._broken = True  # what a failed sync has lost, the next one does not tell of
            os.fdatasync(self._handle)
            self._broken = False
        self._synced = True
        return self.size

    def close(self) -> None:
        """At any time, also twice."""
        if not self._closed:
            self._closed = True
            os.close(self._handle)

    def _check(self) -> None:
        if self._broken:
            raise OSError(errno.EIO, "an earlier write to it was broken off")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._shared:
            yield
            return
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)


def written(handle: int, data: bytes) -> None:
    """Write all of it, in as many parts as the system takes. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
