"""The log: notices of the source, refused commands, errors. It repeats every message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from skws.sinks.text import visible
from skws_tui.screens.live_screen import FilteredScreen
from skws_tui.services.view import LogLine
from skws_tui.widgets.search_box import FilterBox

_STYLES = {"info": "", "warning": "yellow", "error": "red bold"}


class LogScreen(FilteredScreen):
    """Newest last; ``/`` filters."""

    heading = "log"
    BINDINGS: ClassVar[list[BindingType]] = [
        FilterBox.SLASH,
        Binding("y", "copy", "copy"),
    ]
    CSS = """
    #log-lines { padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn_state: tuple[int, str] | None = None

    def compose_body(self) -> ComposeResult:
        yield FilterBox("the log")
        with VerticalScroll(id="log-scroll"):
            yield Static(id="log-lines")

    def on_mount(self) -> None:
        super().on_mount()
        self.listing.anchor()
        self.listing.focus()

    @property
    def listing(self) -> Widget:
        return self.query_one("#log-scroll")

    def refresh_view(self) -> None:
        state = (self.skws.view.logged, self.filter_box.words)
        if state == self._drawn_state:
            return
        self._drawn_state = state
        lines = self._lines()
        text = Text("\n").join([_styled_line(line) for line in lines]) if lines else Text("The log is empty.")
        self.query_one("#log-lines", Static).update(text)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(_styled_line(line).plain for line in self._lines()))
        self.notify("log copied")

    def _lines(self) -> list[LogLine]:
        words = self.filter_box.words.casefold().split()
        return [line for line in self.skws.view.log if all(word in line.text.casefold() for word in words)]


def _styled_line(line: LogLine) -> Text:
    clock_time = datetime.fromtimestamp(line.at, UTC).strftime("%H:%M:%S")
    text = " ⏎ ".join(visible(part) for part in line.text.splitlines())
    return Text.assemble((f"{clock_time} ", "dim"), (f"{line.level:<8}", _STYLES[line.level]), text)
