"""The windows of a query over an expression: a row a key, open ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.widgets import Static

from skws.queries.windowed.stream_windows import LABEL, timeline
from skws.sinks.text import fitted, instant
from skws_schema.errors import counted
from skws_tui.services.drawing import Palette
from skws_tui.services.view import View
from skws_windows.window import MICROSECOND, ExpressionWindow

if TYPE_CHECKING:
    from skws.queries.windowed.stream_windows import WindowSpan

_ROWS: Final = 5


class WindowLines(Static):
    """Hidden if there are no windows to show."""

    DEFAULT_CSS = """
    WindowLines {
        height: auto; max-height: 8; padding: 0 1; display: none;
        border-top: solid $border-blurred;
    }
    """

    def show(self, view: View, query: str | None, palette: Palette) -> None:
        """``query``: None for all of them."""
        drawn = draw_windows(view, query, palette, self.screen.size.width - 2) if view.windows else None
        self.display = drawn is not None
        if drawn is not None:
            self.update(drawn)


def draw_windows(view: View, query: str | None, palette: Palette, width: int) -> Text | None:
    """A line per key, open windows first; None if the query has no windows of its own.

    ``query``: None for all of them, which share the windows of the schema, or of which one only has any.
    """
    if query is None and (
        len(view.windows) == 1 or isinstance(view.request.job.plan_window, ExpressionWindow)
    ):
        query = next(iter(view.windows), None)  # the oldest one, which has seen the most
    if query is None or query not in view.windows:
        return None
    windows = list(view.windows[query])
    if not windows or view.event_time is None:
        return Text("windows  none so far", palette.dim)
    now = round(view.event_time * MICROSECOND)
    lines = [_heading(windows, now, palette, width)]
    rows = timeline(windows, now, max(width - LABEL - 1, 1), _ROWS)
    lines += [Text.assemble((fitted(row.label, LABEL), palette.accent), " ", row.cells) for row in rows]
    keys = len({window.key for window in windows})
    if keys > _ROWS:
        lines.append(Text(f"... {counted(keys - _ROWS, 'more key')}", palette.dim))
    return Text("\n").join(lines)


def _heading(windows: list[WindowSpan], now: int, palette: Palette, width: int) -> Text:
    """Counts, and the times at the left and the right edge of the line."""
    open_now = sum(window.end is None for window in windows)
    left = instant(min(window.start for window in windows) // MICROSECOND)
    right = instant(now // MICROSECOND)
    counts = f"windows  {open_now:,} open, {len(windows) - open_now:,} ended lately"
    room = max(width - len(counts) - len(left) - len(right) - 2, 1)
    return Text(f"{counts}  {left} {'─' * (room - 1)} {right}"[:width], palette.dim)
