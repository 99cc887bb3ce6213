"""The windows of the query that is looked at, under its results."""

from __future__ import annotations

from textual.widgets import Static

from tui.services.drawing import Palette
from tui.services.view import View


class TimeLine(Static):
    """Hidden where no windows can be seen."""

    DEFAULT_CSS = """
    TimeLine {
        height: auto; max-height: 8; padding: 0 1; display: none;
        border-top: solid $primary-background;
    }
    """

    def show(self, view: View, asked: str | None, palette: Palette) -> None:
        if not view.stretches:
            self.display = False
            return
        from tui.services.stretches import windows_drawn  # noqa: PLC0415 - for who has an expression

        drawn = windows_drawn(view, asked, palette, self.screen.size.width - 2)
        self.display = drawn is not None
        if drawn is not None:
            self.update(drawn)
