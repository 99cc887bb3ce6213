"""A run that goes on only when it is told to, on a clock of its own: for pictures, and for tests."""

from __future__ import annotations

from typing import Final

from skws.watch.pace import StoppableClock
from tui.services.local_run import LocalRun
from tui.services.news import Outbox
from tui.services.request import UiRequest

_SECOND: Final = 1_000_000


class HandClock(StoppableClock):
    """Time passes by ``pass_time`` alone."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0

    def now(self) -> int:
        return self._now

    def sleep(self, micros: int) -> None:
        """Nobody waits: the next step comes when it is asked for."""

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * _SECOND)


class SteppedRun(LocalRun):
    """``start`` makes it ready; ``advance`` lets time pass and takes in what is due by then."""

    def __init__(self, request: UiRequest, outbox: Outbox) -> None:
        self.hand = HandClock()
        super().__init__(request, outbox, self.hand, calendar=lambda: self.hand.now() / _SECOND)

    def start(self) -> None:
        self.open()
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Work until nothing is left to do at the new time."""
        self.hand.pass_time(seconds)
        while self.step():
            pass
        self.outbox.put(metrics=self.metrics())

    def stop(self) -> None:
        self._feed.close()
