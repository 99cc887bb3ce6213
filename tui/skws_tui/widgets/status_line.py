"""The first line of every screen: the schema and the screen; at the right, how the job stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.widget import Widget

from skws.sinks.text import visible
from skws_tui.services.drawing import day_or_time
from skws_tui.services.view import View

if TYPE_CHECKING:
    from skws_tui.services.job import LiveJob

_MARKS: Final = {"starting": "◌", "running": "●", "paused": "‖", "ended": "■"}


class StatusLine(Widget):
    """State, event time, rate, standing queries; speed, bad and late records where there are any."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; }"

    def __init__(self, title: str, view: View, job: LiveJob | None) -> None:
        super().__init__()
        self._title = title
        self._view = view
        self._job = job

    def render(self) -> Text:
        line = Text.assemble(("skws", "bold"), f"  {visible(self._view.schema.name)}", no_wrap=True)
        line.append(f" › {self._title}" if self._title else "")
        state = Text("   ".join(self._state()))
        line.append(" " * max(self.size.width - line.cell_len - state.cell_len, 3))
        return line.append_text(state)

    def _state(self) -> list[str]:
        view, metrics = self._view, self._view.metrics
        if self._job is None:
            return ["no source"]
        if view.failure:
            return ["✗ failed: l shows the log"]
        if metrics is None:
            return ["◌ starting the engine" + (f" {view.waited:.0f} s" if view.waited >= 1 else "")]
        status = self._job.control.status()
        all_read = metrics.state == "ended" and not status.ended  # what was read is still searched
        parts = [f"{_MARKS[metrics.state]} {'all read' if all_read else metrics.state}"]
        speed = status.speed
        if speed != 1:
            parts.append(f"×{speed:g}")
        if metrics.event_time is not None:
            parts.append(day_or_time(int(metrics.event_time)))
        if not all_read:
            parts.append(f"{metrics.rate:,.0f} tuples/s")
        parts += [f"{n:,} {what}" for n, what in ((metrics.bad, "bad"), (metrics.late, "late")) if n]
        one = "1 query" if len(view.queries) == 1 else f"{len(view.queries):,} queries"
        return [*parts, one]
