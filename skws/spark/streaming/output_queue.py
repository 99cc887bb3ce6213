"""What batches came to, from Spark's thread to that of the run; in the outbox until the sinks have it.

Spark goes on when a batch is in the outbox, so that a slow sink holds it up
only when ``AHEAD`` batches wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event
from typing import Final

from skws.durable.files import damaged
from skws.spark.streaming.output_log import Output, OutputLog

AHEAD: Final = 16
"""Batches that wait for the sinks; the job waits with the next one."""
TICK: Final = 0.1  # seconds


class OutputQueue:
    """``stopping``: the run is to end, and nobody waits for a place in the queue any more."""

    def __init__(self, outbox: OutputLog, stopping: Event) -> None:
        self._outbox = outbox
        self._stopping = stopping
        self._closing = Event()
        self._queue: Queue[Output] = Queue(AHEAD)

    @property
    def last(self) -> int:
        """The number of the last batch that was put in."""
        return self._outbox.last

    def left(self, committed: int) -> Iterator[Output]:
        """What an earlier process left for the sinks; to be read to the end first of all."""
        first = committed + 1
        for output in self._outbox.open():
            if output.number > first:
                raise damaged(self._outbox.folder, f" (micro-batch {first:,} is missing)")
            if output.number == first:
                first += 1
                yield output
        self._outbox.last = max(self._outbox.last, committed)

    def check(self, held: int) -> None:
        """Raises StateError if a sink has had a batch that nobody else knows."""
        known = self._outbox.last
        if known < held:
            raise damaged(self._outbox.folder, f" (of {held:,} micro-batches it knows {known:,})")

    def put(self, output: Output) -> None:
        """From Spark's thread. Raises StateError, also if the batch is not the next one."""
        if output.number == self._outbox.last:
            return  # Spark did not know it to be done
        self._outbox.put(output)
        while not (self._closing.is_set() or self._stopping.is_set()):
            with suppress(Full):
                self._queue.put(output, timeout=TICK)
                return

    def next(self) -> Output | None:
        """The next batch, if it comes within a tick."""
        with suppress(Empty):
            return self._queue.get(timeout=TICK)
        return None

    def rest(self) -> Iterator[Output]:
        """What is there now."""
        with suppress(Empty):
            while True:
                yield self._queue.get_nowait()

    def stop_waiting(self) -> None:
        """Spark's thread waits for nobody from now on."""
        self._closing.set()

    def trim(self, committed: int) -> None:
        """All sinks have everything up to a batch."""
        self._outbox.trim(committed)

    def close(self) -> None:
        self._outbox.close()
