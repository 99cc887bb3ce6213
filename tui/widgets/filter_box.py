"""The line of words that narrows down what a screen lists: there from ``/`` until Escape."""

from __future__ import annotations

from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input

from tui.widgets.line_input import LineInput


class FilterBox(LineInput):
    """Hidden at first. ``/`` and Escape are the screen's: they call ``open`` and ``clear``."""

    DEFAULT_CSS = """
    FilterBox { height: 1; border: none; padding: 0 1; display: none; }
    FilterBox:focus { border: none; }
    """
    SLASH = Binding("slash", "filter", "Filter", id="filter")

    class Narrowed(Message):
        """Other words."""

    class Done(Message):
        """On to what is listed."""

    def __init__(self, what: str) -> None:
        super().__init__(placeholder=f"filter {what}", compact=True)

    @property
    def words(self) -> str:
        return self.value

    def open(self) -> None:
        self.display = True
        self.focus()

    def clear_words(self) -> bool:
        """Away with it; False if it was not there."""
        shown = self.display
        self.value, self.display = "", False
        return shown

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Narrowed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())
