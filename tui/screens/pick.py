"""Choosing a query from those that were saved or asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from skws.results.writers.text import visible
from tui.widgets.line_input import LineInput


class PickScreen(ModalScreen[str | None]):
    """Gives the text of the chosen query, None if none was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss_none", "Back"),
        Binding("down", "to_list", "Down", show=False),
    ]
    CSS = """
    PickScreen { align: center middle; }
    #picker {
        width: 70; max-width: 90%; height: 18; max-height: 80%;
        border: round $primary;
        padding: 0 1;
        background: $surface;
    }
    """

    def __init__(self, saved: Sequence[str], history: Sequence[str]) -> None:
        super().__init__()
        self._choices = [(text, "★ ") for text in saved]
        self._choices += [(text, "  ") for text in history if text not in saved]
        self._found = self._choices

    def compose(self) -> ComposeResult:
        with Vertical(id="picker"):
            yield Static("Saved and earlier queries")
            yield LineInput(placeholder="narrow down", compact=True)
            yield OptionList()

    def on_mount(self) -> None:
        self._fill("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        self.dismiss(self._found[0][0] if self._found else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._found[event.option_index][0])

    def action_to_list(self) -> None:
        self.query_one(OptionList).focus()

    def action_dismiss_none(self) -> None:
        self.dismiss(None)

    def _matching(self, words: str) -> list[tuple[str, str]]:
        return [
            pair for pair in self._choices if all(w in pair[0].casefold() for w in words.casefold().split())
        ]

    def _fill(self, words: str) -> None:
        self._found = self._matching(words)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(Content(mark + visible(text))) for text, mark in self._found])
        if not self._found:
            options.add_option(Option("No query yet: ask one first.", disabled=True))
