"""A run of the UI that goes on only when it is told to, on a clock of its own: for pictures and for tests."""

from __future__ import annotations

from typing import Final

from skws.watch.metrics import Metrics
from skws.watch.pace import StoppableClock
from tui.services.local_search import LocalSearch
from tui.services.news import Outbox
from tui.services.request import UiRequest
from tui.services.watch_run import WatchRun

_SECOND: Final = 1_000_000


class HandClock(StoppableClock):
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


class SteppedRun(WatchRun):
    """``start`` makes it ready; ``advance`` lets time pass and takes in what is due by then."""

    def __init__(self, request: UiRequest, outbox: Outbox) -> None:
        self.hand = HandClock()
        super().__init__(request, outbox, self._stepped, self.hand.seconds, self.hand.seconds)

    def start(self) -> None:
        self.outbox.put(queries=self.request.queries)
        self.begin()
        self.search.open()
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Work until nothing is left to do at the new time."""
        self.hand.pass_time(seconds)
        while self.search.step():
            pass
        self.tell_metrics(at_once=True)

    def metrics(self) -> Metrics:
        return self.search.metrics()

    def stop(self) -> None:
        self.search.close()

    def _stepped(self, run: WatchRun) -> LocalSearch:
        self.search = LocalSearch(run, self.hand)
        return self.search
