"""Keeps the app usable: errors become messages, control characters are not drawn, long work runs in threads.

Textual ends the app with a traceback when a handler, a timer, a worker or a drawing raises. For a
handler it also ends the widget, before the app is notified; so messages are dispatched inside a boundary.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Any, Final, TypeAlias, TypeVar

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter, Monochrome, NoColor
from textual.message import Message
from textual.message_pump import MessagePump
from textual.worker import WorkerFailed

from skws.sinks.text import UNSAFE
from skws_schema.errors import SkwsError
from skws_tui.services.user_files import Faults

_Dispatch: TypeAlias = Callable[[MessagePump, Message], Awaitable[None]]
_REMOVED: Final = dict.fromkeys(UNSAFE)


class _Coalescing(Message):
    """Replaces an earlier message of its type that still waits for the same receiver."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


class EventsReady(_Coalescing):
    """The queue holds events of the job."""


class ViewChanged(_Coalescing):
    """The view has changed; the current screen draws it."""


class WorkFailed(Message):
    """An action has failed: shown as a message, and as a line in the log."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__()


class Printable(LineFilter):
    """Removes control characters from everything that widgets draw, so that none moves the cursor.

    They have no width, so no cell moves. Widgets make them visible in data; editors cannot.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - the name is Textual's
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [
            Segment(text if control else text.translate(_REMOVED), style, control)
            for text, style, control in segments
        ]


_PRINTABLE: Final = Printable()
_COLOURLESS: Final = NoColor()


class ResilientApp(App[None]):
    """An app that survives errors. Subclasses show ``WorkFailed`` as a message.

    ``broken``: why the app ended by itself. ``few_colours``: True if the terminal has 16 colours.
    """

    def __init__(self, *, few_colours: bool = False) -> None:
        super().__init__()
        self._few_colours = few_colours
        self.faults = Faults()
        self.broken = ""
        self._is_ready = False

    def on_ready(self) -> None:
        self._is_ready = True
        if self.broken:
            self.post_message(WorkFailed(self.broken))
            self.broken = ""
        asyncio.get_running_loop().set_exception_handler(self._of_loop)

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        if self._few_colours:  # Under NO_COLOR, Textual uses greys; these terminals only have black and white
            filters = [
                _COLOURLESS if isinstance(line_filter, Monochrome) else line_filter for line_filter in filters
            ]
        return [*filters, _PRINTABLE]

    def _handle_exception(self, error: Exception) -> None:
        """Replaces Textual's method, which ends the app."""
        self.report_fault(error.error if isinstance(error, WorkerFailed) else error)

    def report_fault(self, error: BaseException) -> None:
        """Report a fault. Any thread may call it."""
        line = self.faults.line(error)
        if not self._is_ready:
            self.broken = self.broken or line
        elif self.faults.too_many and not self.broken:
            self.broken = f"the terminal UI could not continue: {self.faults.last}"
            self.call_later(self.exit, return_code=1)
        elif line:
            self.post_message(WorkFailed(line))

    def _of_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an error of a task that nothing awaits."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.report_fault(error)


@contextmanager
def hooks(app: ResilientApp) -> Iterator[None]:
    """Inside the block, the app also reports errors of threads and finalisers."""
    former_hooks = threading.excepthook, sys.unraisablehook

    def of_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not isinstance(arguments.exc_value, SystemExit):
            app.report_fault(arguments.exc_value)

    def of_finaliser(arguments: sys.UnraisableHookArgs) -> None:
        if arguments.exc_value is not None:
            app.report_fault(arguments.exc_value)

    threading.excepthook, sys.unraisablehook = of_thread, of_finaliser
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = former_hooks


def _with_error_boundary(dispatch: _Dispatch) -> _Dispatch:
    async def dispatch_safely(pump: MessagePump, message: Message) -> None:
        try:
            await dispatch(pump, message)
        except Exception as error:
            pump.app._handle_exception(error)  # noqa: SLF001 - Textual calls it there

    return dispatch_safely


_dispatch = MessagePump._dispatch_message  # noqa: SLF001 - Textual has no hook there
MessagePump._dispatch_message = _with_error_boundary(_dispatch)  # type: ignore[method-assign,assignment]  # noqa: SLF001


SECONDS: Final = 10.0
_MOST_STRAYS: Final = 3

T = TypeVar("T")


class TooLongError(SkwsError):
    """Work has exceeded its time limit."""

    @classmethod
    def over(cls, seconds: float) -> TooLongError:
        return cls(f"the check was stopped after {seconds:g} s; make the text shorter or simpler")


class OffThread:
    """Runs one piece of work at a time, without blocking the event loop.

    A thread cannot be ended from outside. One that exceeds the limit is left running as a stray, and the next
    work begins; with too many strays none does. Threads are daemons, so none delays the end of the process.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._busy: Future[Any] | None = None
        self._deadline = 0.0
        self._strays: list[Future[Any]] = []

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, or its error. Raises TooLongError. If cancelled, the work continues."""
        await self._turn()
        future = _in_thread(work)
        self._busy, self._deadline = future, _now() + self._seconds
        if not await _wait_until_done(future, self._seconds):
            raise TooLongError.over(self._seconds)
        return future.result()

    async def _turn(self) -> None:
        """Wait until the previous work has ended or exceeded its limit."""
        while (previous := self._busy) is not None:
            is_done = await _wait_until_done(previous, self._deadline - _now())
            if previous is self._busy:
                self._busy = None
                self._strays += [] if is_done else [previous]
        self._strays = [stray for stray in self._strays if not stray.done()]
        if len(self._strays) >= _MOST_STRAYS:
            raise TooLongError("earlier checks are still running; try again later")


def _in_thread(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it can no longer be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again in the awaiting task
            future.set_exception(error)

    Thread(target=run, name="skws check", daemon=True).start()
    return future


async def _wait_until_done(future: Future[Any], seconds: float) -> bool:
    if not future.done() and seconds > 0:
        waiter = asyncio.wrap_future(future)
        waiter.add_done_callback(_ignore_error)
        await asyncio.wait([waiter], timeout=seconds)
    return future.done()


def _ignore_error(waiter: asyncio.Future[Any]) -> None:
    """Mark the error as retrieved, since ``run`` raises it."""
    if not waiter.cancelled():
        waiter.exception()


def _now() -> float:
    return asyncio.get_running_loop().time()
