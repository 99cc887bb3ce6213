"""What the job gives, on its way to the sinks: kept in the outbox, delivered, committed once it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from skws.jobs.clock import StoppableClock
from skws.spark.streaming.output_log import Output
from skws.spark.streaming.output_merger import OutputMerger
from skws.spark.streaming.output_queue import OutputQueue
from skws.spark.streaming.run_directory import RunDirectory
from skws_windows.window import MICROSECOND


class OutputCommitter:
    """Gives the sinks at once what an earlier process has left. Raises SinkError, StateError.

    ``held``: the last micro-batch that some sink had when it was opened.
    """

    def __init__(self, place: RunDirectory, merger: OutputMerger, clock: StoppableClock, held: int) -> None:
        self._checkpoint: Final = place.checkpoint
        self._merger = merger
        self._clock = clock
        self._queue = OutputQueue(place.outbox(), clock.stopping)
        self._flushed = clock.now()
        committed = merger.delivered = self._checkpoint.committed()
        for output in self._queue.left(committed):
            merger.take(output, again=True)
        self._queue.check(held)

    @property
    def last(self) -> int:
        """The number of the last micro-batch that came from the job; 0 if none has."""
        return self._queue.last

    @property
    def put(self) -> Callable[[Output], None]:
        """For the job's thread: what a micro-batch came to."""
        return self._queue.put

    def deliver(self) -> bool:
        """One micro-batch, if it comes within a tick."""
        output = self._queue.next()
        if output is not None:
            self._merger.take(output)
        return output is not None

    def deliver_rest(self) -> None:
        """All that is there now, up to the limit of results."""
        for output in self._queue.rest():
            if self._merger.full:
                return
            self._merger.take(output)

    def commit_if_due(self) -> None:
        """As often as flushing suits the sinks."""
        if self._clock.now() - self._flushed >= self._merger.delivery.every * MICROSECOND:
            self.commit()

    def commit(self) -> None:
        self._merger.delivery.flush()
        self._checkpoint.commit(self._merger.delivered, {})
        self._queue.trim(self._merger.delivered)
        self._flushed = self._clock.now()

    def stop_waiting(self) -> None:
        """The job's thread waits for nobody from now on."""
        self._queue.stop_waiting()

    def close(self) -> None:
        self._queue.close()
