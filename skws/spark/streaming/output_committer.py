"""What the job gives, on its way to the sinks: kept in the outbox, delivered, committed once it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from skws.jobs.clock import StoppableClock
from skws.spark.streaming.output_log import Told
from skws.spark.streaming.output_merger import OutputMerger
from skws.spark.streaming.output_queue import OutputQueue
from skws.spark.streaming.run_directory import RunDirectory
from skws_windows.window import MICROSECOND


class OutputCommitter:
    """Gives the sinks at once what an earlier process has left. Raises SinkError, StateError.

    ``held``: the last micro-batch that some sink had when it was opened.
    """

    def __init__(
        self, place: RunDirectory, delivering: OutputMerger, clock: StoppableClock, held: int
    ) -> None:
        self._checkpoint: Final = place.checkpoint
        self._delivering = delivering
        self._clock = clock
        self._handover = OutputQueue(place.outbox(), clock.stopping)
        self._flushed = clock.now()
        committed = delivering.delivered = self._checkpoint.committed()
        for told in self._handover.left(committed):
            delivering.take(told, again=True)
        self._handover.check(held)

    @property
    def last(self) -> int:
        """The number of the last micro-batch that came from the job; 0 if none has."""
        return self._handover.last

    @property
    def put(self) -> Callable[[Told], None]:
        """For the job's thread: what a micro-batch came to."""
        return self._handover.put

    def deliver(self) -> bool:
        """One micro-batch, if it comes within a tick."""
        told = self._handover.next()
        if told is not None:
            self._delivering.take(told)
        return told is not None

    def deliver_rest(self) -> None:
        """All that is there now, up to the limit of results."""
        for told in self._handover.rest():
            if self._delivering.full:
                return
            self._delivering.take(told)

    def commit_if_due(self) -> None:
        """As often as flushing suits the sinks."""
        if self._clock.now() - self._flushed >= self._delivering.delivery.every * MICROSECOND:
            self.commit()

    def commit(self) -> None:
        self._delivering.delivery.flush()
        self._checkpoint.commit(self._delivering.delivered, {})
        self._handover.trim(self._delivering.delivered)
        self._flushed = self._clock.now()

    def stop_waiting(self) -> None:
        """The job's thread waits for nobody from now on."""
        self._handover.stop_waiting()

    def close(self) -> None:
        self._handover.close()
