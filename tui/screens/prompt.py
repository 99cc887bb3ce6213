"""Asking for a line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from skws.results.writers.text import visible
from tui.widgets.line_input import LineInput


class PromptScreen(ModalScreen[str | None]):
    """Gives the text, None if it was called off."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss_none", "Back")]
    CSS = """
    PromptScreen { align: center middle; }
    #prompt {
        width: 70; max-width: 90%; height: auto;
        border: round $primary;
        padding: 0 1;
        background: $surface;
    }
    """

    def __init__(self, asked: str, given: str) -> None:
        super().__init__()
        self._asked = asked
        self._given = given

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt"):
            yield Static(visible(self._asked), markup=False)
            yield LineInput(self._given, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_dismiss_none(self) -> None:
        self.dismiss(None)
