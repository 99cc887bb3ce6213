"""The windows of a query over an expression, drawn on a line of time up to now."""

from __future__ import annotations

from rich.text import Text

from skws.results.writers.text import fitted, instant
from skws.windowing.timeline import LABEL, Stretch, timeline
from skws.wording import counted
from tui.services.drawing import Palette
from tui.services.view import View
from windows.window import MICROSECOND, ExpressionWindow

_ROWS = 5


def windows_drawn(view: View, asked: str | None, palette: Palette, width: int) -> Text | None:
    """A line a key, open windows first; None where a query has no windows of its own, or they cannot be seen.

    ``asked``: None for all queries, if the windows are those of the schema, or only one has any.
    """
    stretches = _stretches(view, asked)
    if stretches is None:
        return None
    if not stretches or view.event_time is None:
        return Text("windows  none so far", palette.dim)
    now = round(view.event_time * MICROSECOND)
    since = min(stretch.start for stretch in stretches)
    open_now = sum(stretch.end is None for stretch in stretches)
    lines = [_heading(since, now, open_now, len(stretches) - open_now, palette, width)]
    rows = timeline(stretches, now, max(width - LABEL - 1, 1), _ROWS)
    lines += [Text.assemble((fitted(row.label, LABEL), palette.relation), " ", row.cells) for row in rows]
    keys = len({stretch.key for stretch in stretches})
    if keys > _ROWS:
        lines.append(Text(f"... {counted(keys - _ROWS, 'more key')}", palette.dim))
    return Text("\n").join(lines)


def _stretches(view: View, asked: str | None) -> list[Stretch] | None:
    if asked is None and (len(view.stretches) == 1 or isinstance(view.request.plan_window, ExpressionWindow)):
        asked = next(iter(view.stretches), None)  # which has looked longest
    return None if asked is None or asked not in view.stretches else list(view.stretches[asked])


def _heading(since: int, now: int, open_now: int, ended: int, palette: Palette, width: int) -> Text:
    """The counts, and what the left and the right edge of the line are."""
    left, right = instant(since // MICROSECOND), instant(now // MICROSECOND)
    told = f"windows  {open_now:,} open, {ended:,} ended lately"
    room = max(width - len(told) - len(left) - len(right) - 2, 1)
    return Text(f"{told}  {left} {'─' * (room - 1)} {right}"[:width], palette.dim)
