"""The first line of every screen: where one is, what the run is doing."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from skws.results.writers.text import instant, visible
from tui.services.run import Run
from tui.services.view import View

_MARKS = {"starting": "◌", "running": "●", "paused": "‖", "ended": "■"}


class StatusLine(Widget):
    """Name of the schema, state, rate, event time, speed."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; background: $primary-background; text-style: bold; }"

    def __init__(self, title: str, view: View, run: Run | None) -> None:
        super().__init__()
        self._title = title
        self._view = view
        self._run = run

    def render(self) -> Text:
        view, metrics = self._view, self._view.metrics
        parts = [f"skws · {self._title} · {visible(view.schema.name)}"]
        if self._run is None:
            parts.append("no source")
        elif view.failure:
            parts.append("✗ failed, see F6")
        elif metrics is None:
            parts.append("◌ starting the engine" + (f" {view.waited:.0f} s" if view.waited >= 1 else ""))
        else:
            parts.append(f"{_MARKS[metrics.state]} {metrics.state}")
            parts.append(f"{metrics.rate:,.0f} tuples/s")
            if metrics.event_time is not None:
                parts.append(instant(int(metrics.event_time)))
            if self._run.speed != 1:
                parts.append(f"speed ×{self._run.speed:g}")
            if metrics.bad:
                parts.append(f"{metrics.bad:,} bad")
            if metrics.late:
                parts.append(f"{metrics.late:,} late")
        return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")
