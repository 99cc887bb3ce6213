"""Keeps the app and its terminal usable: errors become messages, control characters are not drawn.

Textual ends the app with a traceback when a handler, a timer, a worker or a drawing raises. For a
handler it also ends the widget, before the app knows; so messages are dispatched inside a fence.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.message import Message
from textual.message_pump import MessagePump
from textual.worker import WorkerFailed

from skws.sinks.text import UNSAFE
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


class Failed(Message):
    """Something cannot be done: a toast, and a line in the log."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__()


class Printable(LineFilter):
    """Drops control characters from everything that widgets draw, so that none moves the cursor.

    They have no width, so no cell moves. Widgets show them visibly in data; editors cannot.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - the name is given
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [
            Segment(text if control else text.translate(_REMOVED), style, control)
            for text, style, control in segments
        ]


_PRINTABLE: Final = Printable()


class FencedApp(App[None]):
    """A subclass shows ``Failed`` as a toast. ``broken``: why the app ended by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults()
        self.broken = ""
        self._begun = False

    def on_ready(self) -> None:
        self._begun = True
        if self.broken:
            self.post_message(Failed(self.broken))
            self.broken = ""
        asyncio.get_running_loop().set_exception_handler(self._of_loop)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), _PRINTABLE]

    def _handle_exception(self, error: Exception) -> None:
        """Replaces Textual's method, which ends the app."""
        self.caught(error.error if isinstance(error, WorkerFailed) else error)

    def caught(self, error: BaseException) -> None:
        """Report a fault. Any thread may call it."""
        line = self.faults.line(error)
        if not self._begun:
            self.broken = self.broken or line
        elif self.faults.too_many and not self.broken:
            self.broken = f"the terminal UI could not go on: {self.faults.last}"
            self.call_later(self.exit, return_code=1)
        elif line:
            self.post_message(Failed(line))

    def _of_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Catch an error of a task without an awaiter."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.caught(error)


@contextmanager
def hooks(app: FencedApp) -> Iterator[None]:
    """Inside, the app also reports errors of threads and finalisers."""
    before = threading.excepthook, sys.unraisablehook

    def of_thread(raised: threading.ExceptHookArgs) -> None:
        if raised.exc_value is not None and not isinstance(raised.exc_value, SystemExit):
            app.caught(raised.exc_value)

    def of_finaliser(raised: sys.UnraisableHookArgs) -> None:
        if raised.exc_value is not None:
            app.caught(raised.exc_value)

    threading.excepthook, sys.unraisablehook = of_thread, of_finaliser
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before


def _fenced(dispatch: _Dispatch) -> _Dispatch:
    async def fenced(pump: MessagePump, message: Message) -> None:
        try:
            await dispatch(pump, message)
        except Exception as error:
            pump.app._handle_exception(error)  # noqa: SLF001 - Textual calls it there

    return fenced


_dispatch = MessagePump._dispatch_message  # noqa: SLF001 - Textual has no hook there
MessagePump._dispatch_message = _fenced(_dispatch)  # type: ignore[method-assign,assignment]  # noqa: SLF001
