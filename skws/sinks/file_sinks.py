"""Files as sinks: a file that grows by batches, and a folder of whole Parquet files.

A run that resumes after a failure recognizes the last lines of the interrupted run, so each batch is in the
file exactly once, even among lines of other writers.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final
from zlib import crc32

from skws.durable import GrowingFile, explained, sync_folder
from skws.results.result import LiveResult
from skws.sinks.base import (
    NONE,
    BatchSink,
    JsonLinesEncoder,
    SinkError,
    SinkProgress,
    SinkRun,
    destination,
    further_columns,
)
from skws.sinks.formats import Writer, plain_encoder
from skws.spec.enums import OutputFormat
from skws_schema.errors import quantity

_CHECKED: Final = 1024
"""Bytes before a mark that identify the marked file."""
_PARQUET_NAME: Final = re.compile(r"results-.*-\d{12}-(\d{12})\.parquet")
MOST: Final = 50_000
"""Results that a Parquet sink holds in memory."""


class AppendedFile:
    """Appends whole lines to ``path``, to which other writers may append too. Raises SinkError.

    ``mark``: the ``mark()`` of an earlier process, whose last lines follow it. They are recognized by their
    content; lines of other writers are never changed.
    """

    def __init__(self, path: Path, mark: Mapping[str, int], tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        with _guarded(path):
            within_folder(path)
            self._file = GrowingFile(path, shared=True)
            # Lines are only recognized in a file that can be read.
            self._is_readable = self._file.regular and os.access(path, os.R_OK)
            self.start = self._start(mark)
        self._first_write: int | None = None  # the offset of the first bytes that this process wrote
        self._reported_others = False

    def mark(self) -> dict[str, int]:
        """Make the whole file durable; returns its end, and a checksum of the bytes before it."""
        with _guarded(self._path):
            size = self._file.sync()
        return self.mark_at(size)

    def mark_at(self, size: int) -> dict[str, int]:
        """The mark after the first ``size`` bytes."""
        with _guarded(self._path):
            return {"bytes": size, "crc": self._checksum(size)} if self._is_readable else {"bytes": size}

    def write(self, data: bytes) -> None:
        """Append bytes, which readers see at once.

        If the file ends in an incomplete line of another writer, that line is ended first.
        """
        with _guarded(self._path), self._file.exclusive_access():
            if data and self._first_write is None:
                self._first_write = self._file.size
                data = b"\n" + data if self._ends_torn() else data
            self._file.append(data)

    def take_up(
        self, lines: Sequence[bytes], separator: bytes = b"\n", repeats: Sequence[bytes] = ()
    ) -> list[bytes]:
        """The ``lines`` that an earlier process has not completely written after its mark.

        If no other writer has written after the mark, everything after it is cut off; otherwise only an
        incomplete line at the end, or the zeros that a loss of power leaves. Lines are compared up to the
        last ``separator`` in them. ``repeats``: lines of the run that must not be written again. Once this
        process has written, its own lines do not count, and nothing is cut off.
        """
        with _guarded(self._path), self._file.exclusive_access():
            end = self._file.size if self._first_write is None else self._first_write
            if not ((lines or repeats) and self._is_readable and end > self.start):
                return list(lines)
            tail = _TailLines(lines, separator, repeats)
            with self._path.open("rb") as file:
                file.seek(self.start)
                for line in file:
                    tail.add(line)
                    if self.start + tail.size >= end:
                        break
            if self._first_write is not None:
                return tail.missing_lines()
            if not tail.other_count:
                self._file.truncate(self.start)  # after a failed sync, the system considers lines written
                return list(lines)
            if not self._reported_others:
                self._reported_others = True
                self._tell(
                    f"{self._path} has {quantity(tail.other_count, 'line')} of other writers after those of"
                    " this run: they are kept"
                )
            if tail.cut_at is not None:
                self._file.truncate(self.start + tail.cut_at)
            return tail.missing_lines()

    def close(self) -> None:
        self._file.close()

    def _start(self, mark: Mapping[str, int]) -> int:
        """The offset from which lines of an earlier process may follow: the mark, or a shorter file's end."""
        size = self._file.size
        offset = mark.get("bytes", size)
        if not self._is_readable or offset == size:
            return offset
        if offset > size:
            self._tell(
                f"{self._path} is shorter than when it was last written: lost results are not repeated"
            )
            return size
        if mark.get("crc") not in (None, self._checksum(offset)):
            self._tell(
                f"{self._path} is not the file that was last written: results in that file are not repeated"
            )
        return offset

    def _ends_torn(self) -> bool:
        if not self._is_readable or not self._file.size:
            return False
        with self._path.open("rb") as file:
            file.seek(self._file.size - 1)
            return file.read() != b"\n"

    def _checksum(self, size: int) -> int:
        """The checksum of the last bytes before an offset."""
        with self._path.open("rb") as file:
            file.seek(max(0, size - _CHECKED))
            return crc32(file.read(min(size, _CHECKED)))


class _TailLines:
    """The content after a mark, line by line. ``other_count``: the number of lines of other writers.

    ``size``: the bytes of the lines so far. ``cut_at``: the offset of an incomplete line, or of zeros, at the
    end of the file; None if there is none.
    """

    def __init__(self, lines: Sequence[bytes], separator: bytes, repeats: Sequence[bytes]) -> None:
        self._lines = lines
        self._line_counts = Counter(lines) | Counter(repeats)
        self._separator = separator
        self._counts_before: Counter[bytes] = Counter()  # own lines found before ``cut_at``
        self._counts_after: Counter[bytes] = Counter()
        self.size = 0
        self.other_count = 0
        self.cut_at: int | None = None

    def add(self, line: bytes) -> None:
        """Add the next line; the last one may have no line end."""
        content = line.strip(b"\0")  # bytes that a loss of power leaves
        text = self._line_key(content)
        is_half = not line.endswith(b"\n") and self._is_half(content)
        if self.cut_at is None and (is_half or content != line):
            self.cut_at = self.size
        if self._counts_before[text] + self._counts_after[text] < self._line_counts[text]:
            (self._counts_before if self.cut_at is None else self._counts_after)[text] += 1
        elif content and not is_half:
            self.other_count += 1
            self._counts_before, self._counts_after, self.cut_at = (
                self._counts_before + self._counts_after,
                Counter(),
                None,
            )
        self.size += len(line)

    def missing_lines(self) -> list[bytes]:
        """The run's lines that are missing after the cut."""
        counts = self._counts_before if self.cut_at is not None else self._counts_before + self._counts_after
        missing: list[bytes] = []
        for line in self._lines:
            counts[line] -= 1
            if counts[line] < 0:
                missing.append(line)
        return missing

    def _line_key(self, line: bytes) -> bytes:
        index = line.rfind(self._separator)
        return line if index < 0 else line[: index + len(self._separator)]

    def _is_half(self, line: bytes) -> bool:
        """True if it may be an incomplete line of the run."""
        return any(own.startswith(line) or line.startswith(own) for own in self._line_counts)


class BatchFile:
    """Appends batches to a file; a later process continues after the last batch in ``sink_progress``.

    While the run repeats batches, their lines are buffered; at the end of the repetition, the lines that are
    not in the file are appended. Raises SinkError, StateError.
    """

    def __init__(self, path: Path, sink_progress: SinkProgress, run: SinkRun) -> None:
        self._progress = sink_progress
        self._run = run
        progress = sink_progress.read()
        self.batch: int = progress.get("batch", NONE)
        self._file = AppendedFile(path, progress, run.tell)
        self._pending_lines: list[bytes] | None = [] if progress and run.repeating else None
        if self._pending_lines is not None:
            run.end_callbacks.append(self._append_missing)
        if progress.get("bytes") != self._file.start:
            sink_progress.keep(self.batch, **self._file.mark_at(self._file.start))

    def has(self, batch: int) -> bool:
        """True if a batch is durable already."""
        return batch <= self.batch

    def write(self, data: bytes) -> None:
        """Append bytes, which readers see at once, or at the end of the repetition of batches."""
        if self._pending_lines is None:
            self._file.write(data)
        else:
            self._pending_lines += data.splitlines(keepends=True)

    def flush(self, batch: int) -> None:
        """Make all batches up to ``batch`` durable; does nothing while the run repeats batches."""
        if self._run.repeating:
            return
        self._append_missing()
        if not self.has(batch):
            self._progress.keep(batch, **self._file.mark())
            self.batch = batch

    def close(self) -> None:
        self._file.close()

    def _append_missing(self) -> None:
        if self._pending_lines is not None:
            missing_lines = self._file.take_up(self._pending_lines, repeats=self._run.repeats)
            self._file.write(b"".join(missing_lines))
            self._pending_lines = None


class JsonLinesSink(BatchSink):
    """Appends to ``path``; each result is in it once, even if the run fails and resumes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._encoder = JsonLinesEncoder()

    @property
    def name(self) -> str:
        return f"jsonl:{self._path}"

    def _opened(self, run: SinkRun) -> int:
        self._file = BatchFile(self._path, SinkProgress(run, self.name), run)
        return self._file.batch

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - the file has no numbers
        self._file.write(b"".join(map(self._encoder.encode, results)))

    def _keep(self, batch: int) -> None:
        self._file.flush(batch)

    def close(self) -> None:
        self._file.close()


class ParquetSink(BatchSink):
    """Writes ``results-RUN-FIRST-LAST.parquet`` into ``folder``; the name gives the batches in the file.

    Each file contains several batches, and is complete when it appears.
    """

    def __init__(self, folder: Path, every: float = 10.0) -> None:
        super().__init__()
        self._folder = folder
        self.place = "parquet", folder.resolve()
        self.every = every
        self._results: list[LiveResult] = []
        self._first_batch = NONE

    @property
    def name(self) -> str:
        return f"parquet:{self._folder}"

    def _opened(self, run: SinkRun) -> int:
        self._prefix = f"results-{run.id[:12]}-"
        with _guarded(self._folder):
            within_folder(self._folder)
            self._folder.mkdir(exist_ok=True)
        names = (path.name for path in self._folder.glob(f"{self._prefix}*.parquet"))
        matches = filter(None, map(_PARQUET_NAME.fullmatch, names))
        return max((int(match[1]) for match in matches), default=NONE)

    def _take_over(self) -> None:
        with _guarded(self._folder):
            for path in self._folder.glob(f".{self._prefix}*.partial"):
                path.unlink()  # of a killed process
            sync_folder(self._folder)  # the process may have been killed after a rename

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        if not self._results:
            self._first_batch = batch
        self._results += results
        if len(self._results) >= MOST:
            self._keep(batch)
            self._done = batch

    def _keep(self, batch: int) -> None:
        if not self._results:
            return
        path = self._folder / f"{self._prefix}{self._first_batch:012d}-{batch:012d}.parquet"
        with destination(path, sys.stdout.buffer) as open_output:
            encoder = plain_encoder(OutputFormat.PARQUET, further_columns(self._results))
            writer = Writer(encoder, open_output)
            for result in self._results:
                writer.write(result)
            writer.finish()
            open_output.sync()
        with _guarded(self._folder):
            sync_folder(self._folder)
        self._results = []

    def close(self) -> None:
        self._results = []


def within_folder(path: Path) -> None:
    """Raises SinkError if the folder of a file does not exist; it is not created, as it may be mistyped."""
    if not path.parent.exists():
        raise SinkError(f"cannot write to {path}: there is no folder {path.parent}; create it first")


def _guarded(path: Path) -> AbstractContextManager[None]:
    return explained(f"cannot write to {path}", SinkError)
