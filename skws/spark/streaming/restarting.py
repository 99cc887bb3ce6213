"""The streaming query as long as it lasts: started again from its checkpoint when what it runs on failed.

Spark runs a task again when its process has died, but not for ever, and it
gives a Python process ten seconds to start, whatever the machine has to do.
Such a failure says nothing about the stream, so that the query may go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from skws.jobs.clock import StoppableClock
from skws.jobs.log import Log
from skws.spark.faults import (
    PassingError,
    SparkFailedError,
    java_gone,
    passing,
    streaming_fault,
    without_java,
)
from skws.spark.session import stopped
from skws_schema.errors import SkwsError
from skws_windows.window import MICROSECOND

ATTEMPTS: Final = 12  # more than five minutes, as sources wait for their servers
"""So many failures, with nothing done between them, are for good."""
_PAUSE: Final = MICROSECOND  # doubled from failure to failure
_LONGEST_PAUSE: Final = 30 * MICROSECOND
_JAVA_GONE: Final = MICROSECOND  # how long a signal may be on its way


class RestartingQuery:
    """``start`` starts the query; ``done`` counts its micro-batches. Nothing here waits for a new start.

    ``unheard``: entered from each start until something is done.
    ``restarts``: how often it was started again.
    """

    def __init__(
        self,
        start: Callable[[], StreamingQuery],
        done: Callable[[], int],
        unheard: Callable[[], AbstractContextManager[None]],
        clock: StoppableClock,
        log: Log,
    ) -> None:
        self._start = start
        self._done = done
        self._unheard = unheard
        self._starting = ExitStack()
        self._clock = clock
        self._log = log
        self._query: StreamingQuery | None = None
        self._due = clock.now()
        self._failures = 0
        self._done_before = done()
        self.restarts = 0

    def goes_on(self) -> bool:
        """To be asked often, since that starts it. False: it was asked to end. Raises SkwsError."""
        if self._query is None:
            return self._started_if_due()
        if self._done() > self._done_before:
            self._starting.close()
        try:
            if self._query.isActive:
                return True
            error = self._query.exception()
        except (Py4JError, OSError):
            return self._without_java()
        if error is not None:
            self._failed(streaming_fault(error))
            return True
        if self._asked_to_end():
            return False
        raise SparkFailedError("Spark failed: it ended the query, and did not say why")

    def again(self) -> None:
        """Behind ``stop``: the next question starts it."""
        self._query, self._due = None, self._clock.now()

    def stop(self) -> None:
        if self._query is not None:
            stopped(self._query)
        self._starting.close()

    def _started_if_due(self) -> bool:
        if self._clock.now() < self._due:
            return True
        self._starting.close()
        try:
            self._starting.enter_context(self._unheard())
            self._query = self._start()
        except Exception as error:
            if without_java(error):
                return self._without_java()
            fault = passing(error)
            if fault is None:
                raise
            self._failed(fault)
        return True

    def _without_java(self) -> bool:
        """False: by a signal that Java got first, and that is for this process, too."""
        if self._asked_to_end():
            return False
        raise java_gone() from None

    def _failed(self, error: SkwsError) -> None:
        """Wait for the next start, if that may help. Raises the error otherwise."""
        if not isinstance(error, PassingError):
            raise error
        self._query = None
        self._failures = 1 if self._done() > self._done_before else self._failures + 1
        self._done_before = self._done()
        if self._failures == ATTEMPTS:
            raise SparkFailedError(f"{error} ({ATTEMPTS} times, with nothing done between)")
        pause = min(_PAUSE << self._failures - 1, _LONGEST_PAUSE)
        self._due = self._clock.now() + pause
        self.restarts += 1
        seconds = pause // MICROSECOND
        self._log.warning("restart", f"{error}; starting again in {seconds} s", restarts=self.restarts)

    def _asked_to_end(self) -> bool:
        self._clock.sleep(_JAVA_GONE)
        return self._clock.stopping.is_set()
