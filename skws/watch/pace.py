"""Clocks of live searches: one that an end of the run cuts short, one that replays go by."""

from __future__ import annotations

import time
from threading import Event

from skws.sources.clock import Clock


class StoppableClock:
    """The machine's clock; ``stopping`` ends every sleep on it."""

    def __init__(self) -> None:
        self.stopping = Event()

    def now(self) -> int:
        return time.monotonic_ns() // 1000

    def sleep(self, micros: int) -> None:
        self.stopping.wait(micros / 1_000_000)


class Pace:
    """Time that runs ``rate`` times as fast as that of ``clock``, and stands still while paused."""

    def __init__(self, clock: Clock, rate: float = 1.0) -> None:
        self._clock = clock
        self._rate = rate
        self._paused = False
        self._since = clock.now()
        self._at = float(self._since)

    @property
    def rate(self) -> float:
        return self._rate

    def now(self) -> int:
        return int(self._now())

    def sleep(self, micros: int) -> None:
        """Of the clock's own time."""
        self._clock.sleep(micros)

    def set_rate(self, rate: float) -> None:
        """From now on."""
        self._anchor()
        self._rate = rate

    def pause(self) -> None:
        self._anchor()
        self._paused = True

    def resume(self) -> None:
        self._anchor()
        self._paused = False

    def _now(self) -> float:
        if self._paused:
            return self._at
        return self._at + (self._clock.now() - self._since) * self._rate

    def _anchor(self) -> None:
        self._at, self._since = self._now(), self._clock.now()
