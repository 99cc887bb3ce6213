"""A lock whose holders take turns: it is given in the order in which it was asked for.

A job that always has work would otherwise take a plain lock again before another thread wakes up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from skws_schema.memory import TimeLimitError


class Turns:
    """One thread at a time is inside ``turn``."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._taken = False
        self._waiting: deque[Lock] = deque()  # each locked until its thread has the turn

    @property
    def waiting(self) -> int:
        """How many threads wait for their turn."""
        return len(self._waiting)

    @contextmanager
    def turn(self, seconds: float | None = None) -> Iterator[None]:
        """Wait for the turn, at most so long. Raises TimeLimitError."""
        self._take(-1 if seconds is None else max(0.0, seconds))
        try:
            yield
        finally:
            self._give()

    def _take(self, seconds: float) -> None:
        mine = Lock()
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=seconds):
            return
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                raise TimeLimitError("the job is busy: no answer within the time limit")

    def _give(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
