"""Messages between the run's thread, workers and screens. What only says "look again" replaces its like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from tui.services.typed import Reading

if TYPE_CHECKING:
    from tui.services.editing import Draft
    from tui.services.networks import NetworksView


class _Coalescing(Message):
    """Of several that wait for one receiver, one is enough."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


class NewsReady(_Coalescing):
    """The run has left news in the outbox."""


class ViewChanged(_Coalescing):
    """The view was brought up to date; the screen that is shown draws it."""


class TypedRead(_Coalescing):
    """A worker has analysed what is in the query box."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        super().__init__()


class DraftRead(_Coalescing):
    """A worker has checked the text of the schema editor."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        super().__init__()


class NetworksRead(_Coalescing):
    """A worker has drawn up the networks of a query."""

    def __init__(self, view: NetworksView) -> None:
        self.view = view
        super().__init__()


class Inferred(Message):
    """A worker has inferred a schema."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__()


class Failed(Message):
    """Something that was asked for cannot be done: a toast, and a line in the log."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__()
