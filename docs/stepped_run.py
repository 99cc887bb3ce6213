"""A run of the UI that advances only on request, on a manual clock; for pictures and tests."""

from __future__ import annotations

from typing import Final

from skws.jobs.clock import StoppableClock
from skws.jobs.local import LocalWatch
from skws.jobs.metrics import Metrics
from skws_tui.services.live_job import LiveJob
from skws_tui.services.request import UiRequest
from skws_tui.services.view import EventQueue

_SECOND: Final = 1_000_000


class SteppedClock(StoppableClock):
    """A clock that only ``pass_time`` advances."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0

    def now(self) -> int:
        return self._now

    def seconds(self) -> float:
        return self._now / _SECOND

    def sleep(self, micros: int) -> None:
        """Does nothing: the next step is run on request."""

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * _SECOND)


class SteppedRun(LiveJob):
    """``start`` opens the job; ``advance`` lets time pass and processes the records that are due."""

    def __init__(self, request: UiRequest, events: EventQueue) -> None:
        self.hand = SteppedClock()
        super().__init__(request, events, None, self.hand, self.hand.seconds)

    def start(self) -> None:
        host = self.open()
        assert isinstance(host, LocalWatch)
        self.watch = host
        self.watch.open()
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Let time pass, and run steps until there is no more work at the new time."""
        self.hand.pass_time(seconds)
        while self.watch.step():
            pass
        self.report_metrics()

    def metrics(self) -> Metrics:
        return self.watch.metrics()

    def stop(self) -> None:
        self.watch.close()
