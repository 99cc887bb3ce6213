"""A clock that tests advance."""

from __future__ import annotations

from skws.jobs.clock import StoppableClock


class HandClock(StoppableClock):
    """A clock that only tests and sleeping advance."""

    def __init__(self) -> None:
        super().__init__()
        self.micros = 1_000

    def now(self) -> int:
        return self.micros

    def sleep(self, micros: int) -> None:
        self.micros += micros
