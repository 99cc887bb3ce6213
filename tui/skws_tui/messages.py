"""Messages between the job's thread and the screens. A signal to look again replaces an earlier one."""

from __future__ import annotations

from textual.message import Message


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
