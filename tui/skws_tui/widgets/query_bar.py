"""The standing queries side by side, each with its number of listed results; and the windows of one query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from skws.queries.windowed.stream_windows import LABEL, timeline
from skws.sinks.text import fitted, instant, shortened, visible
from skws_schema.errors import quantity
from skws_tui.services.result_buffer import ListOrder
from skws_tui.services.result_drawing import Palette
from skws_tui.services.view import View
from skws_windows.window import MICROSECOND, ExpressionWindow

if TYPE_CHECKING:
    from skws.queries.windowed.stream_windows import WindowSpan

_WIDTH: Final = 32
"""The maximum width of a query's name, in cells."""
_GAP: Final = "   "


class QueryBar(Widget):
    """``selected``: the name of a query, None for all. ``counts``: rows of the list by query."""

    DEFAULT_CSS = "QueryBar { height: 1; padding: 0 2; }"

    class Selected(Message):
        """Another query, or all, was selected."""

    class ListClicked(Message):
        """The user asked for the list of all queries."""

    class SortClicked(Message):
        """The order of the list was clicked."""

    def __init__(self, view: View, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.selected: str | None = None
        self.counts: Mapping[str, int] = {}
        self.sort = ListOrder.NEWEST
        self._view = view
        self._tab_spans: list[tuple[int, int, str | None]] = []
        self._list_link: int | None = None  # the start of the link to the list of queries

    def select(self, query: str | None) -> None:
        self.selected = query
        self.refresh()
        self.post_message(self.Selected())

    def move(self, step: int) -> None:
        """Select the next query; after the last one, all."""
        choices = [None, *self._view.queries]
        index = choices.index(self.selected) if self.selected in choices else 0
        self.select(choices[(index + step) % len(choices)])

    def on_click(self, event: events.Click) -> None:
        if event.x >= self.size.width - len(self._order):
            self.post_message(self.SortClicked())
            return
        for start, end, query in self._tab_spans:
            if start <= event.x < end:
                self.select(query)
        if self._list_link is not None and event.x >= self._list_link:
            self.post_message(self.ListClicked())

    @property
    def _order(self) -> str:
        return f"sort: {self.sort}" if self._view.queries else ""

    def render(self) -> Text:
        cards: list[tuple[str | None, str]] = [(None, f"all {sum(self.counts.values()):,}")]
        for name in self._view.queries:
            short = shortened(visible(name), (), _WIDTH)[0]
            cards.append((name, f"{short} {self.counts.get(name, 0):,}"))
        room = max(self.size.width - len(self._order) - 2, 10)
        line = self._tabs(cards, room)
        line.truncate(room, overflow="ellipsis")
        line.append(" " * (room - line.cell_len) + f"  {self._order}", self.palette.dim)
        return line

    def _tabs(self, cards: list[tuple[str | None, str]], room: int) -> Text:
        """The cards in a row; if they do not fit, the selected card and the link to the list of all."""
        self._list_link = None
        if sum(cell_len(text) + len(_GAP) + 2 for _, text in cards) > room:
            selected_cards = [card for card in cards if card[0] == self.selected]
            line = self._row(selected_cards or cards[:1])
            self._list_link = line.cell_len + 2
            return line.append(f"w lists {len(cards) - 1:,} queries", self.palette.dim)
        return self._row(cards)

    def _row(self, cards: list[tuple[str | None, str]]) -> Text:
        line = Text(no_wrap=True)
        self._tab_spans = []
        for query, text in cards:
            start, on = line.cell_len + 2, query == self.selected
            line.append("▸ " if on else "", self.palette.accent)
            line.append(text, "bold" if on else self.palette.dim).append(_GAP)
            self._tab_spans.append((start, line.cell_len + 2, query))
        return line


_ROWS: Final = 5


class WindowDrawing(Static):
    """Hidden if there are no windows to show."""

    DEFAULT_CSS = """
    WindowDrawing {
        height: auto; max-height: 8; padding: 0 1; display: none;
        border-top: solid $border-blurred;
    }
    """

    def show(self, view: View, query: str | None, palette: Palette) -> None:
        """Show windows; ``query``: None for all queries."""
        drawing = draw_windows(view, query, palette, self.screen.size.width - 2) if view.windows else None
        self.display = drawing is not None
        if drawing is not None:
            self.update(drawing)


def draw_windows(view: View, query: str | None, palette: Palette, width: int) -> Text | None:
    """A line for each key, open windows first; None if the query has no windows of its own.

    ``query``: None for all queries, if they share the windows of the schema or only one has any.
    """
    if query is None and (
        len(view.windows) == 1 or isinstance(view.request.job.plan_window, ExpressionWindow)
    ):
        query = next(iter(view.windows), None)  # the oldest query has the most windows
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
        lines.append(Text(f"... {quantity(keys - _ROWS, 'more key')}", palette.dim))
    return Text("\n").join(lines)


def _heading(windows: list[WindowSpan], now: int, palette: Palette, width: int) -> Text:
    """The counts, and the times at the left and the right edge of the line."""
    open_now = sum(window.end is None for window in windows)
    start_text = instant(min(window.start for window in windows) // MICROSECOND)
    end_text = instant(now // MICROSECOND)
    counts = f"windows  {open_now:,} open, {len(windows) - open_now:,} ended lately"
    room = max(width - len(counts) - len(start_text) - len(end_text) - 2, 1)
    return Text(f"{counts}  {start_text} {'─' * (room - 1)} {end_text}"[:width], palette.dim)
