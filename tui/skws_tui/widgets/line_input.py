"""Single lines to type in: any text, or the words by which a screen's list is filtered."""

from __future__ import annotations

from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input

from skws.sinks.text import visible


class LineInput(Input):
    """Shows control characters, and line ends as spaces, whether typed, pasted or from the history."""

    def validate_value(self, value: str) -> str:
        return visible(value)


class FilterBox(LineInput):
    """Narrows down a screen's list; shown from ``/`` until Escape, which the screen handles."""

    DEFAULT_CSS = """
    FilterBox { height: 1; border: none; padding: 0 1; display: none; background: $background; }
    FilterBox:focus { border: none; background: $background; }
    """
    SLASH = Binding("slash", "filter", "filter", id="filter")

    class Narrowed(Message):
        """The words have changed."""

    class Done(Message):
        """The list takes the focus."""

    def __init__(self, what: str) -> None:
        super().__init__(placeholder=f"filter {what} by words", compact=True)

    @property
    def words(self) -> str:
        return self.value

    def open(self) -> None:
        self.display = True
        self.focus()

    def close(self) -> bool:
        """Clear and hide it; False if it was hidden."""
        shown = self.display
        self.value, self.display = "", False
        return shown

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Narrowed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())
