"""Time and turns of a job: a clock that can be stopped, the pace of a replay, rests, signals, a fair lock."""

from __future__ import annotations

import signal
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Lock, current_thread, main_thread
from types import FrameType
from typing import Final

from skws.sources.feed import REPLAY, Clock, SystemClock, replay_path
from skws.spec.job import Job
from skws_schema.budgets import TimeLimitError, within
from skws_schema.errors import UsageError


class StoppableClock(SystemClock):
    """The machine's clock; setting ``stopping`` ends every sleep."""

    def __init__(self) -> None:
        self.stopping = Event()

    def sleep(self, micros: int) -> None:
        self.stopping.wait(micros / 1_000_000)


class Pace:
    """Time that runs ``rate`` times as fast as ``clock``, and stops while ``paused``."""

    def __init__(self, clock: Clock, rate: float = 1.0) -> None:
        self._clock = clock
        self._rate = rate
        self.paused = False
        self._clock_time = clock.now()
        self._pace_time = float(self._clock_time)

    @property
    def rate(self) -> float:
        return self._rate

    def now(self) -> int:
        return int(self._now())

    def sleep(self, micros: int) -> None:
        """Sleep on ``clock``, whatever the rate."""
        self._clock.sleep(micros)

    def set_rate(self, rate: float) -> None:
        self._anchor()
        self._rate = rate

    def pause(self) -> None:
        self._anchor()
        self.paused = True

    def resume(self) -> None:
        self._anchor()
        self.paused = False

    def _now(self) -> float:
        if self.paused:
            return self._pace_time
        return self._pace_time + (self._clock.now() - self._clock_time) * self._rate

    def _anchor(self) -> None:
        self._pace_time, self._clock_time = self._now(), self._clock.now()


_LEAST_REST: Final = 2_000  # microseconds
_MOST_REST: Final = 50_000


def replay_rate(request: Job) -> float:
    """The factor on a replay's own speed. Raises UsageError for a source that is no replay."""
    if request.speed is None:
        return 1.0
    if not request.source.startswith(REPLAY):
        raise UsageError("--speed needs a source replay:PATH: other sources have their own speed")
    if "speed=" in replay_path(request.source)[1]:
        raise UsageError("--speed and speed= in the source mean the same: give only one of them")
    return request.speed


def name_at_rate(source: str, rate: float) -> str:
    """The name of a source; a replay's with ``rate`` times its own speed."""
    name, separator, speed = source.rpartition("?speed=")
    return (
        f"{name}{separator}{float(speed) * rate:.10g}" if separator and source.startswith(REPLAY) else source
    )


def name_with_pace(source: str, request: Job) -> str:
    """The name of a source for the log; a replay's includes its pace."""
    if not request.source.startswith(REPLAY) or "speed=" in replay_path(request.source)[1]:
        return source
    name = source.rpartition("?")[0]
    if request.speed in (None, 1):
        return f"{name} at its original speed (--speed N is N times as fast)"
    return f"{name} at {request.speed:g} times its original speed"


class Rest:
    """Rests between empty polls: for 2 ms, then twice as long each time, up to 50 ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._micros = _LEAST_REST

    def after(self, *, busy: bool) -> None:
        """Rest unless the last poll was ``busy``."""
        if busy:
            self._micros = _LEAST_REST
            return
        self._clock.sleep(self._micros)
        self._micros = min(2 * self._micros, _MOST_REST)


@contextmanager
def ending_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Inside, Ctrl-C, SIGTERM and a closed terminal call ``stop``; a second one raises KeyboardInterrupt.

    ``stop`` is called in a thread of its own: it may need a lock that the interrupted code holds, such as
    that of the event that ends a sleep. Yields the list of signals received. Threads other than the main
    one receive none.
    """
    signals: list[int] = []
    if current_thread() is not main_thread():
        yield signals
        return

    def note(number: int, _: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt
        start_new_thread(stop, ())  # the only way to start a thread without taking a lock

    old_handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in old_handlers:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


class Turns:
    """A fair lock: one thread at a time is inside ``turn``, in the order of their requests.

    A job that always has work would take a plain lock again before another thread wakes up.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._is_taken = False
        self._waiting: deque[Lock] = deque()  # each locked until its thread has the turn

    @property
    def waiting_count(self) -> int:
        """The number of threads that wait for their turn."""
        return len(self._waiting)

    @contextmanager
    def turn(self, seconds: float | None = None) -> Iterator[None]:
        """Wait for the turn; ``seconds`` limits the wait and the work inside together.

        Raises TimeLimitError after the time limit.
        """
        with nullcontext() if seconds is None else within(seconds):
            self._acquire(-1 if seconds is None else max(0.0, seconds))
            try:
                yield
            finally:
                self._release()

    def _acquire(self, seconds: float) -> None:
        lock = Lock()
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            lock.acquire()
            self._waiting.append(lock)
        if lock.acquire(timeout=seconds):
            return
        with self._guard:
            if lock in self._waiting:
                self._waiting.remove(lock)
                raise TimeLimitError("the job is busy: no answer within the time limit")

    def _release(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False
