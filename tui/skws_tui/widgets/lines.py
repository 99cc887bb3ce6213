"""Single lines: to type in, the status of the job, a notice about the results, hints for a first run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.binding import Binding
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from skws.sinks.text import instant, visible
from skws_tui.services.view import View

if TYPE_CHECKING:
    from skws_tui.services.job import LiveJob

_MARKS: Final = {"starting": "◌", "running": "●", "paused": "‖", "ended": "■"}
HINTS: Final = (
    "Type keywords and press Enter: results arrive as soon as their last tuple does.",
    "Esc or Tab goes to the results: j and k walk them, y copies one, / filters, g follows the newest.",
    "F2 to F6 are the screens, F1 is help, Ctrl+P finds every command.",
)


class LineInput(Input):
    """Shows control characters, and line ends as spaces, whether typed, pasted or from the history."""

    def validate_value(self, value: str) -> str:
        return visible(value)


class FilterBox(LineInput):
    """Narrows down a screen's list; shown from ``/`` until Escape, which the screen handles."""

    DEFAULT_CSS = """
    FilterBox { height: 1; border: none; padding: 0 1; display: none; }
    FilterBox:focus { border: none; }
    """
    SLASH = Binding("slash", "filter", "Filter", id="filter")

    class Narrowed(Message):
        """The words have changed."""

    class Done(Message):
        """The list takes the focus."""

    def __init__(self, what: str) -> None:
        super().__init__(placeholder=f"filter {what}", compact=True)

    @property
    def words(self) -> str:
        return self.value

    def open(self) -> None:
        self.display = True
        self.focus()

    def close(self) -> bool:
        """Clear and hide it; False if it was hidden."""
        shown = self.display
        self.value, self.display = "", False
        return shown

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Narrowed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())


class StatusLine(Widget):
    """The first line of every screen: name of the schema, state of the job, rate, event time, speed."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; background: $primary-background; text-style: bold; }"

    def __init__(self, title: str, view: View, job: LiveJob | None) -> None:
        super().__init__()
        self._title = title
        self._view = view
        self._job = job

    def render(self) -> Text:
        view, metrics = self._view, self._view.metrics
        parts = [f"skws · {self._title} · {visible(view.schema.name)}"]
        if self._job is None:
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
            speed = self._job.control.status().speed
            if speed != 1:
                parts.append(f"speed ×{speed:g}")
            if metrics.bad:
                parts.append(f"{metrics.bad:,} bad")
            if metrics.late:
                parts.append(f"{metrics.late:,} late")
        return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")


class Notice(Static):
    """The results that the list leaves out; hidden if there are none.

    Updates skip the layout, which would draw the whole screen.
    """

    DEFAULT_CSS = "Notice { height: 1; padding: 0 1; display: none; color: $text-muted; }"

    def __init__(self, view: View) -> None:
        super().__init__(id="notice", markup=False)
        self._view = view
        self._shown = ""

    def show(self, unseen: int, network: str | None, filtered: int | None) -> None:
        """``filtered``: the number of results that match the filter, None without one."""
        parts = [f"▲ {unseen:,} new (g)"] if unseen else []
        if network is not None:
            parts.append(f"network {network} (esc)")
        if filtered is not None:
            parts.append(f"{filtered:,} match the filter (esc)")
        results = self._view.results
        if results.dropped:
            parts.append(f"{results.dropped:,} older ones dropped: the list holds {results.capacity:,}")
        if self._view.skipped:
            parts.append(f"{self._view.skipped:,} not shown: they came too fast")
        text = "  ".join(parts)
        if text != self._shown:
            self._shown = text
            self.display = bool(text)
            self.update(visible(text), layout=False)


class Hint(Static):
    """The hints of a first run, each shown until it is followed. ``at``: the index of the current one."""

    DEFAULT_CSS = """
    Hint { height: auto; padding: 0 1; background: $warning 20%; color: $text; display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = len(HINTS)

    @property
    def over(self) -> bool:
        return self.at >= len(HINTS)

    def begin(self) -> None:
        self._show(0)

    def done(self, number: int) -> None:
        """The user has followed hint ``number``, or skipped it."""
        if not self.over and number >= self.at:
            self._show(number + 1)

    def _show(self, at: int) -> None:
        self.at = at
        self.display = not self.over
        if not self.over:
            self.update(f"{at + 1}/{len(HINTS)}  {HINTS[at]}  (ctrl+n: next)")
