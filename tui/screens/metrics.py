"""Numbers of the run, with sparklines of the last minute."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from tui.screens.live import LiveScreen
from tui.services.figures import figures
from tui.services.memory import resident_bytes


class MetricsScreen(LiveScreen):
    """One line a number."""

    name_shown = "metrics"
    CSS = "MetricsScreen VerticalScroll { padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines = -1

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="figures")

    def refresh_view(self) -> None:
        width = self.query_one(VerticalScroll).scrollable_content_region.width or self.size.width - 4
        memory = resident_bytes() if self.skws.show_machine else None
        run = self.skws.live_run
        speed, stages = 1.0 if run is None else run.speed, self.skws.show_machine
        drawn = figures(self.skws.view, self.palette, width, memory, speed, stages=stages)
        lines = drawn.plain.count("\n")
        self.query_one("#figures", Static).update(drawn, layout=lines != self._lines)
        self._lines = lines
