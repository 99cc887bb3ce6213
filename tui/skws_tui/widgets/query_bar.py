"""The standing queries side by side, each with its results and their rate; one, or all, is selected."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from skws.sinks.text import shortened, visible
from skws_tui.services.view import View

_WIDTH: Final = 32
"""Of a query's name."""


class QueryBar(Widget, can_focus=True):
    """``selected``: the name of a query, None for all. Counts are of results so far, ended ones included."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "select(-1)", "Left", show=False),
        Binding("right,l", "select(1)", "Right", show=False),
    ]
    DEFAULT_CSS = """
    QueryBar { height: 1; padding: 0 1; background: $panel; }
    QueryBar:focus { text-style: bold; }
    """

    class Selected(Message):
        """Another query, or all, was selected."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self.selected: str | None = None
        self._places: list[tuple[int, int, str | None]] = []

    def select(self, query: str | None) -> None:
        self.selected = query
        self.refresh()
        self.post_message(self.Selected())

    def action_select(self, step: int) -> None:
        """Select the next query, after the last one all."""
        choices = [None, *self._view.queries]
        at = choices.index(self.selected) if self.selected in choices else 0
        self.select(choices[(at + step) % len(choices)])

    def on_click(self, event: events.Click) -> None:
        for start, end, query in self._places:
            if start <= event.x < end:
                self.select(query)

    def render(self) -> Text:
        view = self._view
        metrics = {q.name: q for q in view.metrics.queries} if view.metrics else {}
        cards: list[tuple[str | None, str]] = [(None, f"all {_count(view.found(None))}")]
        for name in view.queries:
            query = metrics.get(name)
            numbers = f"{_count(query.results)}  {query.rate:.1f}/s" if query else _count(None)
            cards.append((name, f"{shortened(visible(name), (), _WIDTH)[0]}  {numbers}"))
        return self._line(cards)

    def _line(self, cards: list[tuple[str | None, str]]) -> Text:
        """The cards in a row, from the first one that leaves the selected one in sight."""
        chosen = next((n for n, (query, _) in enumerate(cards) if query == self.selected), 0)
        first, width = 0, max(self.size.width - 2, 1)
        while first < chosen and sum(cell_len(t) + 5 for _, t in cards[first : chosen + 1]) > width:
            first += 1
        line = Text(no_wrap=True, overflow="ellipsis")
        self._places = []
        if first:
            line.append("‹ ", "dim")
        for query, text in cards[first:]:
            start = line.cell_len + 1
            line.append(f" {text} ", "reverse" if query == self.selected else "")
            self._places.append((start, line.cell_len + 1, query))
            line.append(" ")
        return line


def _count(results: int | None) -> str:
    return "…" if results is None else f"{results:,}"
