"""The table of results, and beside or below it the selected one; or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from skws.jobs.metrics import Metrics
from skws.sinks.text import visible, visible_lines
from skws_schema.errors import counted
from skws_tui.services.drawing import Columns, Drawer
from skws_tui.services.results import ListedResult, Selection
from skws_tui.services.typed import text_of
from skws_tui.services.view import View
from skws_tui.widgets.result_list import ResultList
from skws_tui.widgets.search_box import searched

if TYPE_CHECKING:  # it loads behind the first picture
    from skws_tui.services.job import LiveJob

_NAMED: Final = 12
"""Attributes that are named while there is no query."""
WIDE: Final = 120
"""Columns from which on the result stands beside the table; below them its texts would be cut to a word."""


class ResultDetail(VerticalScroll):
    """The selected result: its tree, or every value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,escape", "close", "back", key_display="esc"),
        Binding("down,j", "scroll_down", "scroll", key_display="↑↓"),
        Binding("up,k", "scroll_up", "Up", show=False),
    ]
    DEFAULT_CSS = "ResultDetail { scrollbar-size-vertical: 1; background: $background; }"

    class Closed(Message):
        """The table takes the focus again."""

    class Resized(Message):
        """Lines have another width."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def action_close(self) -> None:
        self.post_message(self.Closed())


class ResultPane(Horizontal):
    """``whole``: the selected result is shown with every value, in more room."""

    DEFAULT_CSS = """
    ResultPane { height: 1fr; }
    ResultPane > * { border: round $border-blurred; height: 1fr; }
    ResultPane > * { border-title-color: $text-muted; border-subtitle-color: $text-muted; }
    ResultPane > *:focus-within, ResultPane > *:focus { border: round $border; border-title-color: $border; }
    ResultPane #table { width: 3fr; min-height: 4; }
    ResultPane #detail { width: 2fr; padding: 0 1; }
    ResultPane.whole #detail { width: 4fr; }
    ResultPane.below { layout: vertical; }
    ResultPane.below #table { width: 1fr; height: 3fr; }
    ResultPane.below #detail { width: 1fr; height: 2fr; }
    ResultPane.whole.below #table { display: none; }
    ResultPane.none #detail, ResultPane.short #detail { display: none; }
    ResultPane.short.whole #detail { display: block; }
    ResultPane.short.whole #table { display: none; }
    ResultPane #columns { height: 1; padding: 0 0 0 2; color: $text-muted; }
    ResultPane #empty { height: 1fr; padding: 1 2; content-align: center middle; }
    ResultPane #empty { color: $text-muted; display: none; }
    """

    def __init__(self, drawer: Drawer) -> None:
        super().__init__(id="body")
        self._drawer = drawer
        self._drawn: tuple[ListedResult | None, Text] = None, Text()
        self._notice = ""
        self._why: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="table") as table:
            table.border_title = "results"
            yield Static(id="columns", markup=False)
            yield ResultList(self._drawer, id="results")
            yield Static(id="empty", markup=False)
        with ResultDetail(id="detail") as detail:
            detail.border_title = "result"
            yield Static(id="detail-text")

    @property
    def results(self) -> ResultList:
        return self.query_one(ResultList)

    @property
    def detail(self) -> ResultDetail:
        return self.query_one(ResultDetail)

    @property
    def whole(self) -> bool:
        return self.has_class("whole")

    def show_whole(self, *, whole: bool) -> None:
        self.set_class(whole, "whole")
        self.draw_detail()
        (self.detail if whole and self.results.selected else self.results).focus()

    def name_columns(self, columns: Columns) -> None:
        self.query_one("#columns", Static).update(columns.heading, layout=False)

    def note(self, parts: list[str]) -> None:
        """Say in the border what the list leaves out."""
        notice = " · ".join(parts)
        if notice != self._notice:
            self._notice = notice
            self.query_one("#table").border_subtitle = Text(visible(notice))

    def explain(self, why: str | None) -> None:
        """Show a text instead of the list; None shows the list."""
        if why == self._why:
            return  # a new text would be laid out with the whole screen, once a second
        self._why = why
        self.set_class(why is not None, "none")
        empty = self.query_one("#empty", Static)
        empty.display = why is not None
        self.results.display = self.query_one("#columns").display = why is None
        if why is not None:
            empty.update(visible_lines(why))

    def on_result_detail_resized(self) -> None:
        self.draw_detail()

    def draw_detail(self) -> None:
        """Draw the selected result as it is now."""
        row = self.results.selected
        width = self.detail.scrollable_content_region.width
        if not width:
            return  # it was hidden, and is drawn once it has its size
        text = self.results.drawer.detail(row, width, whole=self.whole) if row else Text()
        if (row, text) != self._drawn:
            # Of the same result most often only the lifespan changes, and the height stays.
            layout = row is not self._drawn[0] or text.plain.count("\n") != self._drawn[1].plain.count("\n")
            self._drawn = row, text
            self.query_one("#detail-text", Static).update(text, layout=layout)
            if layout:
                self.detail.scroll_home(animate=False)


def why_empty(
    view: View, query: str | None, selection: Selection, reasons: Sequence[str], job: LiveJob | None
) -> str:
    """The reason for an empty list and the next step, in a few lines.

    ``query``: a name, None for all. ``reasons``: why there are no results, where it is known.
    """
    if job is None:
        return "No source: start with --source or --replay.\ns edits the schema."
    if view.failure:
        return f"The search has failed: {view.failure}\nFix the cause and start again; l shows the log."
    if view.metrics is None:
        step = f": {view.log[-1].text}" if view.log else ""
        return f"The engine is starting{step}.\nYou can already type keywords."
    if not view.queries:
        names = searched(view.schema)
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        return (
            "No query yet.\nType keywords above and press Enter."
            f"\nSearched: {', '.join(names[:_NAMED])}{more}.\nF3 shows the schema."
        )
    asked = view.queries if query is None else (query,)
    searching = [name for name in asked if name in job.unanswered]
    if searching:
        tuples = counted(view.metrics.tuples or view.metrics.live_tuples, "tuple")
        return f"Searching {tuples} for {', '.join(map(repr, searching))}."
    return _nothing_of(view, view.metrics, query, selection, reasons)


def _nothing_of(
    view: View, metrics: Metrics, query: str | None, selection: Selection, reasons: Sequence[str]
) -> str:
    """Why standing queries have no result to list."""
    if selection.filtered and len(view.results):
        return "No result matches the filter.\nEscape clears it."
    only = view.queries[0] if len(view.queries) == 1 else query
    name = "these queries" if only is None else repr(only)
    counts = view.results.counts(live=False)
    ended = sum(counts.values()) if query is None else counts.get(text_of(query), 0)
    if ended:
        return f"All {counted(ended, 'result')} of {name} have ended.\ne lists them, too."
    tuples = metrics.tuples or metrics.live_tuples  # a database file has static tables alone
    if metrics.state == "ended" and not tuples:
        return "The source has no records.\nl shows the log."
    yet = "" if metrics.state == "ended" else " yet"
    lines = [f"No result for {name}{yet} ({counted(tuples, 'tuple')} so far).", *reasons]
    lines.append("F4 shows the networks.")
    return "\n".join(lines)
