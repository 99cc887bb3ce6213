"""Lines to type in."""

from __future__ import annotations

from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input

from skws.sinks.text import visible


class LineInput(Input):
    """Makes control characters visible and line ends spaces, whether typed, pasted or from a history."""

    def validate_value(self, value: str) -> str:
        return visible(value)


class FilterBox(LineInput):
    """Narrows down a screen's list; shown from ``/`` until Escape, which the screen handles."""

    DEFAULT_CSS = """
    FilterBox { height: 1; border: none; padding: 0 1; display: none; }
    FilterBox:focus { border: none; }
    """
    SLASH = Binding("slash", "filter", "Filter", id="filter")

    class Narrowed(Message):
        """The words have changed."""

    class Done(Message):
        """The list takes the focus."""

    def __init__(self, what: str) -> None:
        super().__init__(placeholder=f"filter {what}", compact=True)

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
