"""Long work in threads, so that the app's thread stays responsive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, TypeVar

from skws_schema.errors import SkwsError

SECONDS: Final = 10.0
_MOST_STRAYS: Final = 3

T = TypeVar("T")


class TooLongError(SkwsError):
    """Work has passed its time limit."""

    @classmethod
    def over(cls, seconds: float) -> TooLongError:
        return cls(f"given up after {seconds:g} s: it takes too long to check; make it shorter or simpler")


class OffThread:
    """Runs one piece of work at a time, without holding up the event loop.

    A thread cannot be ended from outside. One that passes the limit is left running as a stray, and the next
    work begins; with too many strays none does. Threads are daemons: none delays the end of the process.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._busy: Future[Any] | None = None
        self._due = 0.0
        self._strays: list[Future[Any]] = []

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, or its error. Raises TooLongError. If cancelled, the work continues."""
        await self._turn()
        future = _in_thread(work)
        self._busy, self._due = future, _now() + self._seconds
        if not await _done_within(future, self._seconds):
            raise TooLongError.over(self._seconds)
        return future.result()

    async def _turn(self) -> None:
        """Wait until the work before has ended or passed its limit."""
        while (before := self._busy) is not None:
            done = await _done_within(before, self._due - _now())
            if before is self._busy:
                self._busy = None
                self._strays += [] if done else [before]
        self._strays = [stray for stray in self._strays if not stray.done()]
        if len(self._strays) >= _MOST_STRAYS:
            raise TooLongError("earlier checks that took too long have not ended yet; try again later")


def _in_thread(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again where the result is taken
            future.set_exception(error)

    Thread(target=run, name="skws check", daemon=True).start()
    return future


async def _done_within(future: Future[Any], seconds: float) -> bool:
    if not future.done() and seconds > 0:
        waiter = asyncio.wrap_future(future)
        waiter.add_done_callback(_ignore_error)
        await asyncio.wait([waiter], timeout=seconds)
    return future.done()


def _ignore_error(waiter: asyncio.Future[Any]) -> None:
    """The error is raised by ``run``: asyncio need not report it as never retrieved."""
    if not waiter.cancelled():
        waiter.exception()


def _now() -> float:
    return asyncio.get_running_loop().time()
