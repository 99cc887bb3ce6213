"""The list of results with the details of the selected one, why it is empty, and the windows of the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Static

from skws.jobs.metrics import Metrics
from skws.sinks.text import fitted, instant, visible_lines
from skws_schema.plural import counted
from skws_tui.services.drawing import Drawer, Palette
from skws_tui.services.results import ListedResult
from skws_tui.services.view import View
from skws_tui.widgets.result_list import ResultList
from skws_windows.window import MICROSECOND, ExpressionWindow

if TYPE_CHECKING:
    from skws.queries.windowed.window_span import WindowSpan


_ROWS: Final = 5


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
    """The reason for an empty list and the next step, in a line or two."""
    if not has_source:
        return (
            "No source: start with --source or --replay.\n"
            "F3 edits the schema; the command line searches replays."
        )
    if view.failure:
        return f"The run has ended: {view.failure}\nFix the cause and start again; F6 shows the log."
    if filtered and len(view.results):
        return "No result matches the filter.\nEsc clears it."
    if view.metrics is None:
        step = f": {view.log[-1].text}" if view.log else ""
        return f"The engine is starting{step}.\nYou can already type keywords; F6 shows the log."
    if not view.queries:
        return f"No query yet.\nType keywords above and press Enter, for example: {_example(view)}"
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
        return f"No result for {name} yet ({so_far}).\nF4 shows the networks and their partial results."
    if not metrics.tuples:
        return "The source has no records.\nF6 shows the log."
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


class WindowLines(Static):
    """Hidden if there are no windows to show."""

    DEFAULT_CSS = """
    WindowLines {
        height: auto; max-height: 8; padding: 0 1; display: none;
        border-top: solid $primary-background;
    }
    """

    def show(self, view: View, query: str | None, palette: Palette) -> None:
        """``query``: None for all of them."""
        drawn = draw_windows(view, query, palette, self.screen.size.width - 2) if view.windows else None
        self.display = drawn is not None
        if drawn is not None:
            self.update(drawn)


def draw_windows(view: View, query: str | None, palette: Palette, width: int) -> Text | None:
    """A line per key, open windows first; None if the query has no windows of its own.

    ``query``: None for all of them, which share the windows of the schema, or of which one only has any.
    """
    from skws.queries.windowed.window_span import LABEL, timeline  # noqa: PLC0415 - loads only for an expression

    if query is None and (
        len(view.windows) == 1 or isinstance(view.request.job.plan_window, ExpressionWindow)
    ):
        query = next(iter(view.windows), None)  # the oldest one, which has seen the most
    if query is None or query not in view.windows:
        return None
    windows = list(view.windows[query])
    if not windows or view.event_time is None:
        return Text("windows  none so far", palette.dim)
    now = round(view.event_time * MICROSECOND)
    lines = [_heading(windows, now, palette, width)]
    rows = timeline(windows, now, max(width - LABEL - 1, 1), _ROWS)
    lines += [Text.assemble((fitted(row.label, LABEL), palette.relation), " ", row.cells) for row in rows]
    keys = len({window.key for window in windows})
    if keys > _ROWS:
        lines.append(Text(f"... {counted(keys - _ROWS, 'more key')}", palette.dim))
    return Text("\n").join(lines)


def _heading(windows: list[WindowSpan], now: int, palette: Palette, width: int) -> Text:
    """Counts, and the times at the left and the right edge of the line."""
    open_now = sum(window.end is None for window in windows)
    left = instant(min(window.start for window in windows) // MICROSECOND)
    right = instant(now // MICROSECOND)
    counts = f"windows  {open_now:,} open, {len(windows) - open_now:,} ended lately"
    room = max(width - len(counts) - len(left) - len(right) - 2, 1)
    return Text(f"{counts}  {left} {'─' * (room - 1)} {right}"[:width], palette.dim)
