"""What batches came to, from Spark's thread to the sinks: kept in the outbox, delivered, committed.

Spark goes on when a batch is in the outbox, so that a slow sink holds it up only when ``AHEAD`` batches
wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event
from typing import Final

from skws.durable import damaged
from skws.jobs.clock import StoppableClock
from skws.spark.streaming.output_log import Output
from skws.spark.streaming.output_merger import OutputMerger
from skws.spark.streaming.run_directory import RunDirectory
from skws_windows.window import MICROSECOND

AHEAD: Final = 16
"""Batches that wait for the sinks; the job waits with the next one."""
TICK: Final = 0.1  # seconds


class OutputCommitter:
    """Gives the sinks at once what an earlier process has left. Raises SinkError, StateError.

    ``held``: the last batch that some sink had when it was opened. Nobody waits for a place in the queue once
    ``clock`` is stopping.
    """

    def __init__(self, place: RunDirectory, merger: OutputMerger, clock: StoppableClock, held: int) -> None:
        self._checkpoint: Final = place.checkpoint
        self._merger = merger
        self._clock = clock
        self._outbox = place.outbox()
        self._queue: Queue[Output] = Queue(AHEAD)
        self._closing = Event()
        self._flushed = clock.now()
        committed = merger.delivered = self._checkpoint.committed()
        for output in self._left(committed):
            merger.take(output, again=True)
        if self.last < held:
            raise damaged(self._outbox.folder, f" (of {held:,} micro-batches it knows {self.last:,})")

    @property
    def last(self) -> int:
        """The number of the last batch that came from the job; 0 if none has."""
        return self._outbox.last

    def put(self, output: Output) -> None:
        """From the job's thread: what a batch came to. Raises StateError, also if it is not the next one."""
        if output.number == self._outbox.last:
            return  # Spark did not know it to be done
        self._outbox.put(output)
        while not (self._closing.is_set() or self._clock.stopping.is_set()):
            with suppress(Full):
                self._queue.put(output, timeout=TICK)
                return

    def deliver(self) -> bool:
        """One batch, if it comes within a tick."""
        with suppress(Empty):
            self._merger.take(self._queue.get(timeout=TICK))
            return True
        return False

    def deliver_rest(self) -> None:
        """All that is there now, up to the limit of results."""
        with suppress(Empty):
            while not self._merger.full:
                self._merger.take(self._queue.get_nowait())

    def commit_if_due(self) -> None:
        """As often as flushing suits the sinks."""
        if self._clock.now() - self._flushed >= self._merger.delivery.every * MICROSECOND:
            self.commit()

    def commit(self) -> None:
        """All sinks have for good what was delivered."""
        self._merger.delivery.flush()
        self._checkpoint.commit(self._merger.delivered, {})
        self._outbox.trim(self._merger.delivered)
        self._flushed = self._clock.now()

    def stop_waiting(self) -> None:
        """The job's thread waits for nobody from now on."""
        self._closing.set()

    def close(self) -> None:
        self._outbox.close()

    def _left(self, committed: int) -> Iterator[Output]:
        """What an earlier process left for the sinks; to be read to the end first of all."""
        first = committed + 1
        for output in self._outbox.open():
            if output.number > first:
                raise damaged(self._outbox.folder, f" (micro-batch {first:,} is missing)")
            if output.number == first:
                first += 1
                yield output
        self._outbox.last = max(self._outbox.last, committed)
