"""Work that may take long, in threads of its own, so that the app's thread answers keys meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, Generic, TypeVar

from schema.errors import SkwsError

SECONDS: Final = 10.0
_MOST_STRAYS: Final = 3

T = TypeVar("T")


class TooLongError(SkwsError):
    """A piece of work has passed its time limit."""

    @classmethod
    def over(cls, seconds: float) -> TooLongError:
        return cls(f"given up after {seconds:g} s: it takes too long to check; make it shorter or simpler")


class _Job(Generic[T]):
    """A piece of work in a thread. Its future says no more than that it has ended."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        Thread(target=self._run, name="skws check", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended.done()

    async def ends_within(self, seconds: float) -> bool:
        if not self.ended and seconds > 0:
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=seconds)
        return self.ended

    def result(self) -> T:
        """Of one that has ended: what it gave or raised."""
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:  # raised again where the result is taken
            self._error = error
        finally:
            self._ended.set_result(None)


class OffThread:
    """Runs one piece of work at a time; who asks waits for it without holding up the event loop.

    No thread can be ended from outside. What passes the limit is left to
    itself as a stray, and the next one begins; with too many strays none does.
    Threads are daemons: none holds up the end of the process.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._busy: _Job[Any] | None = None
        self._due = 0.0
        self._strays: list[_Job[Any]] = []

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` gives or raises. Raises TooLongError. Cancelled, it leaves the work to itself."""
        await self._turn()
        job = _Job(work)
        self._busy, self._due = job, _now() + self._seconds
        if not await job.ends_within(self._seconds):
            raise TooLongError.over(self._seconds)
        return job.result()

    async def _turn(self) -> None:
        """Until the work before has ended, or passed its limit."""
        while (before := self._busy) is not None:
            ended = await before.ends_within(self._due - _now())
            if before is self._busy:
                self._busy = None
                self._strays += [] if ended else [before]
        self._strays = [stray for stray in self._strays if not stray.ended]
        if len(self._strays) >= _MOST_STRAYS:
            raise TooLongError("earlier checks that took too long have not ended yet; try again later")


def _now() -> float:
    return asyncio.get_running_loop().time()
