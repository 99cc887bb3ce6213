"""What was told: notices of the source, refusals, errors. Toasts land here too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from skws.results.writers.text import visible
from tui.screens.live import LiveScreen
from tui.services.news import LogLine
from tui.widgets.filter_box import FilterBox

_STYLES = {"info": "", "warning": "yellow", "error": "red bold"}


class LogScreen(LiveScreen):
    """Newest last; ``/`` filters."""

    name_shown = "log"
    BINDINGS: ClassVar[list[BindingType]] = [
        FilterBox.SLASH,
        Binding("y", "copy", "Copy"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]
    CSS = """
    #log-lines { padding: 0 1; }
    """

    def compose_body(self) -> ComposeResult:
        yield FilterBox("the log")
        with VerticalScroll(id="log-scroll"):
            yield Static(id="log-lines")

    def on_mount(self) -> None:
        super().on_mount()
        self._drawn: tuple[int, str] | None = None
        self.query_one("#log-scroll").anchor()
        self.query_one("#log-scroll").focus()

    def refresh_view(self) -> None:
        words = self.query_one(FilterBox).words
        state = (self.skws.view.logged, words)
        if state == self._drawn:
            return
        self._drawn = state
        lines = self._lines()
        shown = (
            Text("\n").join([_styled(line) for line in lines]) if lines else Text("Nothing was told so far.")
        )
        self.query_one("#log-lines", Static).update(shown)

    def on_filter_box_narrowed(self) -> None:
        self.refresh_view()

    def on_filter_box_done(self) -> None:
        self.query_one("#log-scroll").focus()

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def action_clear_filter(self) -> None:
        self.query_one(FilterBox).clear_words()
        self.query_one("#log-scroll").focus()

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(_styled(line).plain for line in self._lines()))
        self.notify("log copied")

    def _lines(self) -> list[LogLine]:
        words = self.query_one(FilterBox).words.casefold().split()
        return [line for line in self.skws.view.log if all(word in line.text.casefold() for word in words)]


def _styled(line: LogLine) -> Text:
    when = datetime.fromtimestamp(line.at, UTC).strftime("%H:%M:%S")
    text = " ⏎ ".join(visible(part) for part in line.text.splitlines())
    return Text.assemble((f"{when} ", "dim"), (f"{line.level:<8}", _STYLES[line.level]), text)
