"""Live searches on the tests' Spark session, run in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

from skws.spark.streaming.layout import LayoutRequest
from skws.spark.streaming.spark_watch import SparkWatch
from skws.spec.enums import EngineName
from skws.spec.job import Job
from tests.jobs.watching import Collected, Notes
from tests.waiting import PATIENCE, until


class Running:
    """A run in its thread; ``error`` is the exception that it raised, if any."""

    def __init__(self, job: Job, layout: LayoutRequest | None) -> None:
        self.sink = Collected()
        self.notes = Notes()
        self.error: BaseException | None = None
        job = replace(job, engine=EngineName.SPARK)
        self.watch = SparkWatch(job, self.notes.log, sinks=[self.sink], layout_request=layout)
        self.thread = Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.watch.run()
        except BaseException as error:
            self.error = error

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raises the run's own error."""

        def ready() -> bool:
            if self.error is not None:
                raise self.error
            return condition()

        until(ready, state=lambda: (self.notes.lines, self.sink.told()))

    def results(self, count: int) -> None:
        self.until(lambda: len(self.sink.results) >= count)

    def end(self) -> None:
        """Wait for the end of the run; raises its error."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error


@contextmanager
def running(job: Job, wanted: int | LayoutRequest | None = None) -> Iterator[Running]:
    """A run, which is stopped at the end of the block. ``wanted``: a layout, or the number of shards."""
    run = Running(job, LayoutRequest(wanted) if isinstance(wanted, int) else wanted)
    run.thread.start()
    try:
        yield run
        run.watch.control.stop()
        run.end()
    finally:
        run.watch.control.stop()
        run.thread.join(PATIENCE)
