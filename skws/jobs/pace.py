"""Clocks of live searches: one that an end of the run cuts short, one that replays go by."""

from __future__ import annotations

import time
from threading import Event
from typing import Final

from skws.sources.feed import Clock
from skws.spec.job import Job
from skws_schema.errors import UsageError


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


_REPLAY: Final = "replay:"
_LEAST_REST: Final = 2_000  # microseconds
_MOST_REST: Final = 50_000


def replay_rate(request: Job) -> float:
    """What a replay's own speed is multiplied by. Raises UsageError where that makes no sense."""
    if request.speed is None:
        return 1.0
    if not request.source.startswith(_REPLAY):
        raise UsageError("--speed needs a source replay:PATH: others go at their own speed")
    if "speed=" in request.source.partition("?")[2]:
        raise UsageError("--speed and speed= in the source are two ways to say one thing: leave one out")
    return request.speed


def paced(source: str, request: Job) -> str:
    """The name of a source for the note that a run begins; of a replay with its pace."""
    if not request.source.startswith(_REPLAY) or "speed=" in request.source.partition("?")[2]:
        return source
    name = source.rpartition("?")[0]
    if request.speed in (None, 1):
        return f"{name} at the pace at which it happened (--speed N goes N times as fast)"
    return f"{name} {request.speed:g} times as fast as it happened"


class Rest:
    """Rests between polls that gave nothing, each twice as long as the one before, up to 50 ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._micros = _LEAST_REST

    def after(self, *, busy: bool) -> None:
        """Rest, if the last poll gave nothing."""
        if busy:
            self._micros = _LEAST_REST
            return
        self._clock.sleep(self._micros)
        self._micros = min(2 * self._micros, _MOST_REST)
