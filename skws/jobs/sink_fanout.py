"""Micro-batches to all sinks, and their dead letters to a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from skws.results.model import LiveResult
from skws.sinks.base import Marks, Run, Sink, WholeSink
from skws.sinks.files import BatchFile
from skws_schema.errors import SkwsError


class SinkFanout:
    """Opens the sinks, and the file for dead letters if there is one. Raises SinkError."""

    def __init__(self, sinks: Sequence[Sink], letters: Path | None, run: Run) -> None:
        self._sinks = [WholeSink(sink) for sink in sinks]
        self._letters: BatchFile | None = None
        self._batch = 0
        for sink in self._sinks:
            sink.open(run)
        if letters is not None:
            self._letters = BatchFile(letters, Marks(run, "dead letters"), run.tell)

    @property
    def every(self) -> float:
        """Seconds between flushes that suit all sinks."""
        return max((sink.every for sink in self._sinks), default=1.0)

    def write(self, batch: int, results: Sequence[LiveResult], letters: Iterable[str]) -> None:
        """One batch; letters are lines without line end."""
        self._batch = batch
        for sink in self._sinks:
            sink.write(batch, results)
        lines = "".join(f"{letter}\n" for letter in letters)
        if self._letters is not None and lines and not self._letters.has(batch):
            self._letters.write(lines.encode())

    def flush(self) -> None:
        for sink in self._sinks:
            sink.flush()
        if self._letters is not None:
            self._letters.flush(self._batch)

    def close(self, *, failed: bool) -> None:
        """``failed``: the run broke; each sink keeps the batches that it has whole."""
        for sink in self._sinks:
            if failed:
                with suppress(SkwsError):
                    sink.flush()
            with suppress(SkwsError):
                sink.close()
        if self._letters is not None:
            self._letters.close()
