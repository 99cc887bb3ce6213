"""Results as Parquet files in a folder, each of several batches, whole when it appears."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skws.durable.whole import synced
from skws.results.model import LiveResult
from skws.results.writers.destination import Destination, destination
from skws.watch.sinks.base import NONE, Run, SinkError

MOST: Final = 50_000  # results in memory


class ParquetSink:
    """Makes ``results-RUN-FIRST-LAST.parquet`` in ``folder``: the name says which batches are in it."""

    def __init__(self, folder: Path, every: float = 10.0) -> None:
        self._folder = folder
        self.every = every
        self._held: list[LiveResult] = []
        self._first = NONE
        self._last = NONE
        self._done = NONE

    @property
    def name(self) -> str:
        return f"parquet:{self._folder}"

    def open(self, run: Run) -> None:
        self._prefix = f"results-{run.id[:12]}-"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for half in self._folder.glob(f".{self._prefix}*.partial"):
                half.unlink()  # of a process that was killed
        except OSError as error:
            raise SinkError(f"cannot write to {self._folder}: {error.strerror}") from None
        written = self._folder.glob(f"{self._prefix}*.parquet")
        self._done = max((int(path.stem.rpartition("-")[2]) for path in written), default=NONE)
        run.hold(self._done)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if batch <= self._done:
            return
        if results and not self._held:
            self._first = batch
        self._last = batch
        self._held += results
        if len(self._held) >= MOST:
            self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        path = self._folder / f"{self._prefix}{self._first:012d}-{self._last:012d}.parquet"
        with destination(path, sys.stdout.buffer) as opened:
            self._write(opened)
            with opened.guarded():
                opened.file.flush()
                os.fsync(opened.file.fileno())
        try:
            synced(self._folder)
        except OSError as error:
            raise SinkError(f"cannot write to {self._folder}: {error.strerror}") from None
        self._done = self._last
        self._held = []

    def close(self) -> None:
        self._held = []

    def _write(self, opened: Destination) -> None:
        from skws.results.writers.parquet import ParquetWriter  # noqa: PLC0415 - Arrow is slow to import

        writer = ParquetWriter(opened, ranked=any("score" in each.to_dict() for each in self._held))
        try:
            for result in self._held:
                writer.write(result)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
