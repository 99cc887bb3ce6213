"""Results as JSON lines at the end of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skws.results.model import LiveResult
from skws.watch.sinks.appended import BatchFile
from skws.watch.sinks.base import NONE, Run
from skws.watch.sinks.marks import Marks


class JsonLinesSink:
    """Appends to ``path``; every line is there once, also if the run breaks and goes on."""

    every = 1.0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = NONE

    @property
    def name(self) -> str:
        return f"jsonl:{self._path}"

    def open(self, run: Run) -> None:
        self._file = BatchFile(self._path, Marks(run, self.name), run.tell)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if results and not self._file.has(batch):
            self._file.write(b"".join(result.to_json() + b"\n" for result in results))
        self._last = batch

    def flush(self) -> None:
        self._file.flush(self._last)

    def close(self) -> None:
        self._file.close()
