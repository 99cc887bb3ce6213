"""Files as sinks: one that grows by batches, and a folder of whole Parquet files.

A run that resumes after a failure cuts off what the broken run wrote last, so
that each batch is in the file once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from skws.durable import GrowingFile, explained, synced
from skws.results.model import LiveResult
from skws.sinks.base import NONE, BatchSink, JsonLinesEncoder, Marks, Run, SinkError, destination
from skws.sinks.formats import Writer, plain_encoder
from skws.spec.enums import OutputFormat

MOST: Final = 50_000
"""Results that a Parquet sink holds in memory."""


class AppendedFile:
    """Appends to ``path``, after its first ``length`` bytes if that is given. Raises SinkError."""

    def __init__(self, path: Path, length: int | None, tell: Callable[[str], None]) -> None:
        self._path = path
        with _guarded(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = GrowingFile(path)
            if length is not None:
                self._cut(length, tell)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._file.size

    def write(self, data: bytes) -> None:
        """Readers see it at once."""
        with _guarded(self._path):
            self._file.append(data)

    def sync(self) -> int:
        """Make all of it durable; gives the size."""
        with _guarded(self._path):
            return self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _cut(self, length: int, tell: Callable[[str], None]) -> None:
        if not self._path.is_file():
            return
        if self.size > length:
            self._file.cut(length)
        elif self.size < length:
            tell(f"{self._path} is shorter than when it was last written: lost results are not repeated")


class BatchFile:
    """Appends batches to a file, in a later process after the last batch in ``marks``.

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
        """True if a batch is durable already."""
        return batch <= self.batch

    def write(self, data: bytes) -> None:
        """Readers see it at once."""
        self._file.write(data)

    def flush(self, batch: int) -> None:
        """Make all batches up to ``batch`` durable."""
        if not self.has(batch):
            self._marks.keep(batch, bytes=self._file.sync())
            self.batch = batch

    def close(self) -> None:
        self._file.close()


class JsonLinesSink(BatchSink):
    """Appends to ``path``; each line is in it once, also if the run breaks and resumes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._encoder = JsonLinesEncoder()

    @property
    def name(self) -> str:
        return f"jsonl:{self._path}"

    def _opened(self, run: Run) -> int:
        self._file = BatchFile(self._path, Marks(run, self.name), run.tell)
        return self._file.batch

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - the file has no numbers
        self._file.write(b"".join(map(self._encoder.encode, results)))

    def _keep(self, batch: int) -> None:
        self._file.flush(batch)

    def close(self) -> None:
        self._file.close()


class ParquetSink(BatchSink):
    """Writes ``results-RUN-FIRST-LAST.parquet`` into ``folder``: the name says which batches are in it.

    Each file holds several batches, and is whole when it appears.
    """

    def __init__(self, folder: Path, every: float = 10.0) -> None:
        super().__init__()
        self._folder = folder
        self.every = every
        self._held: list[LiveResult] = []
        self._first = NONE

    @property
    def name(self) -> str:
        return f"parquet:{self._folder}"

    def _opened(self, run: Run) -> int:
        self._prefix = f"results-{run.id[:12]}-"
        with _guarded(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for half in self._folder.glob(f".{self._prefix}*.partial"):
                half.unlink()  # of a process that was killed
            synced(self._folder)  # it may have been killed behind a rename
        written = self._folder.glob(f"{self._prefix}*.parquet")
        return max((int(path.stem.rpartition("-")[2]) for path in written), default=NONE)

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        if not self._held:
            self._first = batch
        self._held += results
        if len(self._held) >= MOST:
            self._keep(batch)
            self._done = batch

    def _keep(self, batch: int) -> None:
        if not self._held:
            return
        path = self._folder / f"{self._prefix}{self._first:012d}-{batch:012d}.parquet"
        ranked = any("score" in each.to_dict() for each in self._held)
        with destination(path, sys.stdout.buffer) as opened:
            writer = Writer(plain_encoder(OutputFormat.PARQUET, ranked=ranked), opened)
            for result in self._held:
                writer.write(result)
            writer.finish()
            opened.sync()
        with _guarded(self._folder):
            synced(self._folder)
        self._held = []

    def close(self) -> None:
        self._held = []


def _guarded(path: Path) -> AbstractContextManager[None]:
    return explained(f"cannot write to {path}", SinkError)
