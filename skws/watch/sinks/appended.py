"""Files that grow by batches: a broken run's last bytes are cut off, so that each batch is there once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from skws.watch.sinks.base import SinkError
from skws.watch.sinks.marks import NONE, Marks


class AppendedFile:
    """Appends to ``path``, and goes on in another process where ``marks`` say. Raises SinkError."""

    def __init__(self, path: Path, marks: Marks, tell: Callable[[str], None]) -> None:
        self._path = path
        self._marks = marks
        kept = marks.read()
        self.batch: int = kept.get("batch", NONE)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab")
            if kept:
                self._cut(kept["bytes"], tell)
            else:
                marks.keep(NONE, bytes=self._size())
        except OSError as error:
            raise SinkError(f"cannot write to {path}: {error.strerror}") from None

    def has(self, batch: int) -> bool:
        """True if a batch is there for good already."""
        return batch <= self.batch

    def write(self, data: bytes) -> None:
        """Seen by readers at once."""
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise SinkError(f"cannot write to {self._path}: {error.strerror}") from None

    def flush(self, batch: int) -> None:
        """All up to ``batch`` is there for good."""
        if batch <= self.batch:
            return
        try:
            if self._path.is_file():
                os.fsync(self._file.fileno())
            self._marks.keep(batch, bytes=self._size())
        except OSError as error:
            raise SinkError(f"cannot write to {self._path}: {error.strerror}") from None
        self.batch = batch

    def close(self) -> None:
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _cut(self, length: int, tell: Callable[[str], None]) -> None:
        if not self._path.is_file():
            return
        here = self._size()
        if here > length:
            self._file.truncate(length)
        elif here < length:
            tell(f"{self._path} is shorter than it was left: what was in it is not written again")
