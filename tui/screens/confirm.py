"""Asking before something is lost."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static


class ConfirmScreen(ModalScreen[bool]):
    """Gives True only for yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]
    CSS = """
    ConfirmScreen { align: center middle; }
    #confirm {
        width: 60; max-width: 90%; height: auto;
        border: round $warning;
        padding: 0 1;
        background: $surface;
    }
    """

    def __init__(self, asked: str) -> None:
        super().__init__()
        self._asked = asked

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm"):
            yield Static(f"{self._asked}\n\n(y) yes   (n) no", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
