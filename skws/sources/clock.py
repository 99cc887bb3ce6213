"""The time of day, given to the sources that need one, so that tests can make their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> int:
        """Microseconds since some fixed instant, never going back."""

    def sleep(self, micros: int) -> None: ...


class SystemClock:
    """The machine's clock; steps of the calendar time do not touch it."""

    def now(self) -> int:
        return time.monotonic_ns() // 1000

    def sleep(self, micros: int) -> None:
        time.sleep(micros / 1_000_000)
