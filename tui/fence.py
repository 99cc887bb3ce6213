"""A fence round all handlers, timers, workers and drawing of an app: what they raise is told, and it goes on.

Textual ends the app, with a traceback, when any of them raises. Of a handler
it ends the widget, too, before the app hears of it; so messages are
dispatched inside the fence.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.worker import WorkerFailed

from tui.messages import Failed
from tui.services.faults import Faults

_Dispatch: TypeAlias = Callable[[MessagePump, Message], Awaitable[None]]


class FencedApp(App[None]):
    """Its class tells a ``Failed`` by a toast. ``broken``: why the app ended by itself."""

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

    def _handle_exception(self, error: Exception) -> None:
        """In the place of Textual's, which ends the app."""
        self.caught(error.error if isinstance(error, WorkerFailed) else error)

    def caught(self, error: BaseException) -> None:
        """Tell a fault; any thread may call."""
        line = self.faults.told(error)
        if not self._begun:
            self.broken = self.broken or line
        elif self.faults.too_many and not self.broken:
            self.broken = f"the terminal UI could not go on: {self.faults.last}"
            self.call_later(self.exit, return_code=1)
        elif line:
            self.post_message(Failed(line))

    def _of_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a task raised that nobody waits for."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.caught(error)


@contextmanager
def hooks(app: FencedApp) -> Iterator[None]:
    """Inside, what threads and finalisers raise is told by the app, too."""
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
            pump.app._handle_exception(error)  # noqa: SLF001 - what Textual calls there

    return fenced


_dispatch = MessagePump._dispatch_message  # noqa: SLF001 - Textual has no hook there
MessagePump._dispatch_message = _fenced(_dispatch)  # type: ignore[method-assign,assignment]  # noqa: SLF001
