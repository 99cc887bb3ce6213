"""Sinks that fail, or are interrupted: what they have of a batch is not said to be all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skws.results.model import LiveResult
from skws.watch.sinks.base import Run, Sink, SinkError


class WholeSink:
    """A sink that is flushed only behind whole batches.

    Behind a call that did not end, by an error or a second Ctrl-C, it takes
    and flushes nothing more: what a flush would mark as there may be half of it.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._broken = False

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def every(self) -> float:
        return self._sink.every

    def open(self, run: Run) -> None:
        self._sink.open(run)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        with self._whole():
            self._sink.write(batch, results)

    def flush(self) -> None:
        with self._whole():
            self._sink.flush()

    def close(self) -> None:
        self._sink.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self._broken:
            raise SinkError(f"{self.name}: an earlier write was broken off")
        self._broken = True
        yield
        self._broken = False
