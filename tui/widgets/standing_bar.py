"""The standing queries side by side, each with its results and their rate; one, or all, is looked at."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from skws.results.writers.text import shortened, visible
from tui.services.view import View

_WIDTH: Final = 32
"""Of the text of a query."""


class StandingBar(Widget, can_focus=True):
    """``selected`` is the text of a query, None for all. The counts are of results so far, also for all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "select(-1)", "Left", show=False),
        Binding("right,l", "select(1)", "Right", show=False),
    ]
    DEFAULT_CSS = """
    StandingBar { height: 1; padding: 0 1; background: $panel; }
    StandingBar:focus { text-style: bold; }
    """

    class Selected(Message):
        """Another query, or all, is looked at."""

        def __init__(self, query: str | None) -> None:
            self.query = query
            super().__init__()

    def __init__(self, view: View, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._view = view
        self.selected: str | None = None
        self._places: list[tuple[int, int, str | None]] = []

    def choose(self, query: str | None) -> None:
        self.selected = query
        self.refresh()
        self.post_message(self.Selected(query))

    def step(self, by: int) -> None:
        """On to the next one, round the end."""
        choices = [None, *self._view.queries]
        at = choices.index(self.selected) if self.selected in choices else 0
        self.choose(choices[(at + by) % len(choices)])

    def action_select(self, by: int) -> None:
        self.step(by)

    def on_click(self, event: events.Click) -> None:
        for start, end, query in self._places:
            if start <= event.x < end:
                self.choose(query)

    def render(self) -> Text:
        """All of them on a line, begun so that the selected one is in sight."""
        view = self._view
        rates = {q.name: q for q in view.metrics.queries} if view.metrics else {}
        cards: list[tuple[str | None, str]] = [(None, f"all {_told(view.found(None))}")]
        for text in view.queries:
            metrics = rates.get(text)
            told = f"{_told(metrics.results)}  {metrics.rate:.1f}/s" if metrics else _told(None)
            cards.append((text, f"{shortened(visible(text), (), _WIDTH)[0]}  {told}"))
        return self._line(cards)

    def _line(self, cards: list[tuple[str | None, str]]) -> Text:
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


def _told(results: int | None) -> str:
    return "…" if results is None else f"{results:,}"
