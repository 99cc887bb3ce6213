"""Files that grow by batches: a broken run's last bytes are cut off, so that each batch is there once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skws.durable.growing import GrowingFile
from skws.watch.sinks.base import NONE, SinkError
from skws.watch.sinks.marks import Marks


class AppendedFile:
    """Appends to ``path``, behind the first ``length`` bytes if that is given. Raises SinkError."""

    def __init__(self, path: Path, length: int | None, tell: Callable[[str], None]) -> None:
        self._path = path
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = GrowingFile(path)
            if length is not None:
                self._cut(length, tell)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._file.size

    def write(self, data: bytes) -> None:
        """Seen by readers at once."""
        with self._told():
            self._file.append(data)

    def sync(self) -> int:
        """All of it is there for good; gives the size."""
        with self._told():
            return self._file.sync()

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkError(f"cannot write to {self._path}: {error.strerror}") from None

    def _cut(self, length: int, tell: Callable[[str], None]) -> None:
        if not self._path.is_file():
            return
        if self.size > length:
            self._file.cut(length)
        elif self.size < length:
            tell(f"{self._path} is shorter than it was left: what was in it is not written again")


class BatchFile:
    """Batches at the end of a file; goes on in another process where ``marks`` say.

    Raises SinkError, StateError.
    """

    def __init__(self, path: Path, marks: Marks, tell: Callable[[str], None]) -> None:
        self._marks = marks
        kept = marks.read()
        self.batch: int = kept.get("batch", NONE)
        self._file = AppendedFile(path, kept.get("bytes"), tell)
        if kept.get("bytes") != self._file.size:
            marks.keep(self.batch, bytes=self._file.size)

    def has(self, batch: int) -> bool:
        """True if a batch is there for good already."""
        return batch <= self.batch

    def write(self, data: bytes) -> None:
        """Seen by readers at once."""
        self._file.write(data)

    def flush(self, batch: int) -> None:
        """All up to ``batch`` is there for good."""
        if not self.has(batch):
            self._marks.keep(batch, bytes=self._file.sync())
            self.batch = batch

    def close(self) -> None:
        self._file.close()
