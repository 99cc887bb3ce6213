"""Results with their details beside or below them, or what to do where there are none."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Static

from skws.results.writers.text import visible_lines
from tui.services.drawing import Drawer
from tui.services.results import Shown
from tui.widgets.result_list import ResultList


class ResultPane(Horizontal):
    """The list, and the details of what is selected in it."""

    DEFAULT_CSS = """
    ResultPane { height: 1fr; }
    ResultPane #detail { width: 42%; border-left: solid $primary-background; padding: 0 1; display: none; }
    ResultPane.with-detail #detail { display: block; }
    ResultPane.below { layout: vertical; }
    ResultPane.below #detail { width: 100%; height: 60%; border-left: none; }
    ResultPane.below #detail { border-top: solid $primary-background; }
    ResultPane #empty { height: 1fr; padding: 1 2; content-align: center middle; }
    ResultPane #empty { color: $text-muted; display: none; }
    """

    def __init__(self, drawer: Drawer, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._drawer = drawer
        self._detailed: tuple[Shown | None, Text] = None, Text()

    def compose(self) -> ComposeResult:
        yield ResultList(self._drawer, id="results")
        yield Static(id="empty", markup=False)
        with VerticalScroll(id="detail", can_focus=False):
            yield Static(id="detail-text")

    @property
    def results(self) -> ResultList:
        return self.query_one(ResultList)

    @property
    def detailed(self) -> bool:
        """True if whole rows are shown."""
        return self.has_class("with-detail")

    def detail(self, *, shown: bool) -> None:
        """Show whole rows, or do not."""
        self.set_class(shown, "with-detail")
        self.draw_detail()

    def explain(self, why: str | None) -> None:
        """In the place of an empty list; None where it has results."""
        empty = self.query_one("#empty", Static)
        empty.display = why is not None
        self.results.display = why is None
        if why is not None:
            empty.update(visible_lines(why))

    def draw_detail(self) -> None:
        """Of the selected result, as it is now."""
        if not self.detailed:
            return
        shown = self.results.selected
        text = self.results.drawer.detail(shown) if shown else Text("No result is selected.")
        if (shown, text) != self._detailed:
            # Of the same result only the lifespan changes, which is as high as before.
            layout = shown is not self._detailed[0]
            self._detailed = shown, text
            self.query_one("#detail-text", Static).update(text, layout=layout)
