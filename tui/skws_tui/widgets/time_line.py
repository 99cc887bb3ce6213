"""The time line: the numbers of arriving tuples and of results over time, and the position of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from skws.sinks.text import instant
from skws_tui.services.result_drawing import Palette
from skws_windows.window import MICROSECOND

if TYPE_CHECKING:
    from skws_tui.services.live_job import LiveJob

_LEFT: Final = 9
_RIGHT: Final = 16
BARS: Final = "▁▂▃▄▅▆▇█"


class TimeLine(Widget):
    """Two rows of bars, each on its own scale; over a replay a click moves to its time.

    ``query_name``: that of the query whose results are shown, None for all. ``position``: the position of the
    job, in microseconds.
    """

    DEFAULT_CSS = "TimeLine { height: 2; padding: 0 1; }"

    class Sought(Message):
        """A time was clicked, in microseconds."""

        def __init__(self, instant: int) -> None:
            self.instant = instant
            super().__init__()

    def __init__(self, job: LiveJob | None, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.query_name: str | None = None
        self.position: int | None = None
        self._job = job

    @property
    def span(self) -> tuple[int, int] | None:
        """The times at both ends, in microseconds; None before the first record."""
        arrivals = None if self._job is None else self._job.arrivals
        if arrivals is None or arrivals.first is None or arrivals.last is None:
            return None
        return arrivals.first, arrivals.last

    @property
    def timeless(self) -> bool:
        """True if there are rows, and none has a time."""
        return self.span is None and self._job is not None and self._job.static_rows > 0

    @property
    def step(self) -> int:
        """The length of a column in microseconds."""
        begin, end = self.span or (0, 0)
        return max((end - begin) // self._columns, 1)

    @property
    def _columns(self) -> int:
        return max(self.size.width - _LEFT - _RIGHT, 1)

    def on_click(self, event: events.Click) -> None:
        column = event.x - 1 - _LEFT
        if self.span is not None and 0 <= column < self._columns:
            self.post_message(self.Sought(self.span[0] + column * self.step + self.step // 2))

    def render(self) -> Text:
        job, span = self._job, self.span
        if job is None or span is None:
            return Text("no records yet", self.palette.dim)
        begin, end = span
        cursor = self._cursor(begin, end)
        arrivals = bars(job.arrivals.columns(self._columns, begin, end))
        results = self._results(job, begin, end)
        begin_text, end_text = edges(begin, end)
        lines = [
            self._row("rows", arrivals, f"from {begin_text}", cursor),
            self._row("results", results, f"to   {end_text}", cursor),
        ]
        return Text("\n").join(lines)

    def _results(self, job: LiveJob, begin: int, end: int) -> str:
        names = list(job.result_times) if self.query_name is None else [self.query_name]
        counts = [
            job.result_times[name].columns(self._columns, begin, end)
            for name in names
            if name in job.result_times
        ]
        return bars(
            [sum(column_counts) for column_counts in zip(*counts, strict=True)] or [0] * self._columns
        )

    def _cursor(self, begin: int, end: int) -> int:
        """The column of the position."""
        if self.position is None:
            return 0
        column = (self.position - begin) * self._columns // max(end - begin, 1)
        return min(max(column, 0), self._columns - 1)

    def _row(self, label: str, bars: str, note: str, cursor: int) -> Text:
        dim = self.palette.dim
        row = Text(no_wrap=True).append(f"{label:<{_LEFT}}", dim).append(bars[:cursor])
        row.append("│", self.palette.accent).append(bars[cursor + 1 :], dim)
        return row.append(f" {note}", dim)


def edges(begin: int, end: int) -> tuple[str, str]:
    """The ends of the line, in microseconds, as days; as times if they are on the same day."""
    days, times = zip(*(instant(time // MICROSECOND)[:19].split("T") for time in (begin, end)), strict=True)
    return days if days[0] != days[1] else times


def bars(counts: Sequence[float], most: float | None = None) -> str:
    """A bar for each count, from empty for 0 to full for the largest, or for ``most``."""
    largest = most or max(counts, default=0)
    return "".join(
        BARS[min(int(count / largest * len(BARS)), len(BARS) - 1)] if count else " " for count in counts
    )
