"""A run of the UI that goes on only when it is told to, on a clock of its own: for pictures and for tests."""

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
    """Time passes by ``pass_time`` alone."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0

    def now(self) -> int:
        return self._now

    def seconds(self) -> float:
        return self._now / _SECOND

    def sleep(self, micros: int) -> None:
        """Nobody waits: the next step comes when it is asked for."""

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * _SECOND)


class SteppedRun(LiveJob):
    """``start`` makes it ready; ``advance`` lets time pass and takes in what is due by then."""

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
        """Work until nothing is left to do at the new time."""
        self.hand.pass_time(seconds)
        while self.watch.step():
            pass
        self.report_metrics()

    def metrics(self) -> Metrics:
        return self.watch.metrics()

    def stop(self) -> None:
        self.watch.close()
