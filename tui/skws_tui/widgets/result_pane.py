"""The list of results with the details of the selected one, or the reason why it is empty."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Static

from skws.jobs.metrics import Metrics
from skws.sinks.text import visible_lines
from skws_schema.plural import counted
from skws_tui.services.drawing import Drawer
from skws_tui.services.results import ListedResult
from skws_tui.services.view import View
from skws_tui.widgets.result_list import ResultList


class ResultPane(Horizontal):
    """``detailed``: whole rows are shown, beside the list or, in a narrow terminal, below it."""

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

    def __init__(self, drawer: Drawer) -> None:
        super().__init__(id="body")
        self._drawer = drawer
        self._drawn: tuple[ListedResult | None, Text] = None, Text()

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
        return self.has_class("with-detail")

    def show_detail(self, *, shown: bool) -> None:
        self.set_class(shown, "with-detail")
        self.draw_detail()

    def explain(self, why: str | None) -> None:
        """Show a text instead of the list; None shows the list."""
        empty = self.query_one("#empty", Static)
        empty.display = why is not None
        self.results.display = why is None
        if why is not None:
            empty.update(visible_lines(why))

    def draw_detail(self) -> None:
        """Draw the selected result as it is now."""
        if not self.detailed:
            return
        shown = self.results.selected
        text = self.results.drawer.detail(shown) if shown else Text("No result is selected.")
        if (shown, text) != self._drawn:
            # For the same result only the lifespan changes, which does not change the height.
            layout = shown is not self._drawn[0]
            self._drawn = shown, text
            self.query_one("#detail-text", Static).update(text, layout=layout)


def why_empty(view: View, query: str | None, *, filtered: bool, has_source: bool) -> str:
    """Why the list is empty and what to do next, in a line or two."""
    if not has_source:
        return (
            "No source: start with --source or --replay.\n"
            "The schema can be edited with F3, the command line searches replays."
        )
    if view.failure:
        return f"The run has ended: {view.failure}\nMend that and start again; F6 shows the log."
    if filtered and len(view.results):
        return "Nothing that is listed matches the filter.\nEsc clears it."
    if view.metrics is None:
        step = f": {view.log[-1].text}" if view.log else ""
        return f"The engine is starting{step}.\nKeywords can be typed meanwhile; F6 shows the log."
    if not view.queries:
        return f"No query stands.\nType keywords above and press Enter, for example: {_example(view)}"
    name = "these queries" if query is None else repr(query)
    found = view.found(query)
    return _all_ended(view.metrics, found, name) if found else _no_result(view.metrics, name)


def _all_ended(metrics: Metrics, found: int, name: str) -> str:
    results = f"All {found:,} results of {name} have" if found > 1 else f"The one result of {name} has"
    then = "New ones appear" if metrics.state != "ended" else "With a longer --window they live longer"
    return f"{results} ended ({_so_far(metrics)}).\n{then}; e keeps ended results in the list."


def _no_result(metrics: Metrics, name: str) -> str:
    so_far = _so_far(metrics)
    if metrics.state != "ended":
        return f"No result for {name} yet ({so_far}).\nF4 shows which networks are waited for."
    if not metrics.tuples:
        return "The source gave nothing.\nF6 shows the log."
    return (
        f"No joined tuples contain all keywords ({so_far}).\n"
        "Type other keywords, or start with a longer --window or a larger --max-size."
    )


def _so_far(metrics: Metrics) -> str:
    return f"{counted(metrics.tuples, 'tuple')} so far"


def _example(view: View) -> str:
    if view.schema.name == "movies":
        return "tarantino travolta"
    searched = [relation.name for relation in view.schema.relations if relation.search]
    return f"{searched[0]}:word" if searched else "a word"
