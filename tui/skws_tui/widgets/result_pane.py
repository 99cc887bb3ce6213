"""The table of results, and the selected result beside or below it; or the reason for an empty list.

Only visible lines are drawn, so that a list of thousands costs no more than a short one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from skws.jobs.metrics import Metrics
from skws.sinks.text import visible, visible_lines
from skws_schema.errors import quantity
from skws_tui.services.result_buffer import ListedResult, ListSelection
from skws_tui.services.result_drawing import Drawer, TableColumns
from skws_tui.services.typed import parse_typed
from skws_tui.services.view import View
from skws_tui.widgets.start_menu import StartMenu

if TYPE_CHECKING:
    from skws_tui.services.live_job import LiveJob

_DRAWN: Final = 600
"""The number of drawn results in the cache, since a page is drawn again at every key."""
_MARGIN: Final = 2
"""The width of the margin before a line, for the mark of the cursor, in cells."""
_MARK: Final = Style(bold=True)
_SEEN: Final = 0.01
"""The smallest visible change of a scroll bar, as a share of its length."""
_State: TypeAlias = tuple[int, int, str | None, int | None, float | None, TableColumns, bool]
"""The inputs of a drawing: number, version, ending and rank of the row, day or time, columns, trees."""


class ResultList(ScrollView, can_focus=True):
    """``following``: the first row stays selected. ``unseen``: rows that arrived since it stopped.

    ``trees``: True to show the whole tree of each result below its line.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="Show every value of the result", id="detail"),
        Binding("down,j", "move(1)", "Next result", show=False, id="next-result"),
        Binding("up,k", "move(-1)", "Previous result", show=False, id="previous-result"),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("home,g", "follow", "Go to the newest result, and follow", show=False, id="follow"),
        Binding("end,G", "oldest", "Go to the oldest result", show=False, id="oldest-result"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"result--cursor"}
    DEFAULT_CSS = """
    ResultList { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; background: $background; }
    ResultList > .result--cursor { background: $block-cursor-blurred-background 60%; }
    ResultList:focus > .result--cursor { background: $block-cursor-background; }
    """

    class Selected(Message):
        """The user has moved."""

    class Opened(Message):
        """The selected result should be shown in full."""

    class Resized(Message):
        """The width of rows has changed."""

    def __init__(self, drawer: Drawer, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.drawer = drawer
        self.following = True
        self.unseen = 0
        self.trees = False
        self.listed: Sequence[ListedResult] = ()
        self._columns = TableColumns(0)
        self._tops: list[int] = [0]
        self._cursor: int | None = None  # the number of a result
        self._last_index = 0  # its last index
        self._newest = 0  # the greatest number that was listed while following
        self._sorted = False
        self._width = 0
        self._drawn_cursor: int | None = None  # the index at which the cursor is drawn
        self._strips: dict[tuple[_State, bool, int], list[Strip]] = {}

    @property
    def selected(self) -> ListedResult | None:
        """The result under the cursor; the newest while following."""
        index = self._cursor_index()
        return self.listed[index] if index is not None else None

    @property
    def row_width(self) -> int:
        """The width of a line in cells; before the first layout, as if the list filled its surroundings."""
        container = self.parent
        width = self.scrollable_content_region.width
        if not width and isinstance(container, Widget):
            width = container.scrollable_content_region.width
        return width - _MARGIN

    def show(self, rows: Sequence[ListedResult], columns: TableColumns, *, newest_first: bool = True) -> None:
        """List these results. Visible ones keep their position."""
        if not rows:
            self.following, self._cursor = True, None
        anchor = None if self.following else self._anchor()
        self._sorted = not newest_first
        self.listed, self._columns = rows, columns
        sizes = (1 + self.trees * len(row.result.tuples) for row in rows)
        self._tops = list(accumulate(sizes, initial=0))
        self._grow(self._tops[-1])
        if self.following:
            self._newest = max((row.number for row in rows), default=self._newest)
        self.unseen = sum(row.number > self._newest for row in rows)
        if anchor is not None:
            self._return_to(*anchor)
        self.refresh()

    def redraw(self, drawer: Drawer) -> None:
        """Draw everything again, after a change of theme or schema."""
        self.drawer = drawer
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        self._width = self.scrollable_content_region.width
        self._drawn_cursor = self._cursor_index()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        line, width, cursor_index = y + self.scroll_offset.y, self._width, self._drawn_cursor
        if not 0 <= line < self._tops[-1]:
            return Strip.blank(width, self.rich_style)
        index = bisect_right(self._tops, line) - 1
        row, at_cursor = self.listed[index], index == cursor_index
        key = (self._state(row), at_cursor, width)
        if key not in self._strips:
            if len(self._strips) >= _DRAWN:
                self._strips.clear()
            self._strips[key] = list(self._row_strips(row, width, at_cursor=at_cursor))
        return self._strips[key][line - self._tops[index]]

    def action_move(self, step: int) -> None:
        if not self.listed:
            return
        index = self._cursor_index() or 0
        self.following = False
        self._go(min(max(index + step, 0), len(self.listed) - 1))

    def action_page(self, step: int) -> None:
        if not self.listed:
            return
        self.following = False
        line = self._tops[self._cursor_index() or 0] + step * max(1, self.size.height - 1)
        self._go(min(max(bisect_right(self._tops, line) - 1, 0), len(self.listed) - 1))

    def action_follow(self) -> None:
        """Return to the newest result."""
        self.following, self.unseen, self._cursor = True, 0, None
        self._newest = max((row.number for row in self.listed), default=self._newest)
        self.scroll_to(y=0, animate=False)
        self.refresh()
        self.post_message(self.Selected())

    def action_open(self) -> None:
        self.post_message(self.Opened())

    def action_oldest(self) -> None:
        if self.listed:
            self.following = False
            self._go(len(self.listed) - 1)

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        line = event.y + self.scroll_offset.y
        if 0 <= line < self._tops[-1]:
            self.following = False
            self._go(bisect_right(self._tops, line) - 1)
            if event.chain > 1:
                self.post_message(self.Opened())

    def on_mouse_scroll_down(self) -> None:
        if self.following and self.listed:
            self.following, self._cursor = False, self.listed[0].number

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value > 0:
            self.on_mouse_scroll_down()

    def _grow(self, lines: int) -> None:
        """Change the height, without a layout of the whole screen at each update."""
        size = Size(self.size.width, lines)
        if self.show_vertical_scrollbar != (lines > self.size.height):
            self.virtual_size = size  # with a layout, which shows or hides the scroll bar
            return
        self.set_reactive(Widget.virtual_size, size)
        if (
            self.show_vertical_scrollbar
            and abs(self.vertical_scrollbar.window_virtual_size - lines) > lines * _SEEN
        ):
            self.vertical_scrollbar.window_virtual_size = lines
        if self.scroll_offset.y > self.max_scroll_y:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)

    def _cursor_index(self) -> int | None:
        """The index of the cursor, or of the nearest result if its own is gone."""
        if not self.listed:
            return None
        if self.following or self._cursor is None:
            return 0
        return self._find(self._cursor)

    def _find(self, number: int) -> int:
        """The index of a result; if it is gone, its former index, or the nearest."""
        if self._sorted:
            numbers = [row.number for row in self.listed]
            return numbers.index(number) if number in numbers else min(self._last_index, len(numbers) - 1)
        # Numbers decrease from the newest result on.
        return max(bisect_right(self.listed, -number, key=lambda row: -row.number) - 1, 0)

    def _go(self, index: int) -> None:
        former_index = self._cursor_index()
        self._cursor, self._last_index = self.listed[index].number, index
        top, bottom = self._tops[index], self._tops[index + 1]
        height = max(1, self.scrollable_content_region.height)
        if top < self.scroll_offset.y:
            self.scroll_to(y=top, animate=False)
        elif bottom > self.scroll_offset.y + height:
            self.scroll_to(y=max(min(top, bottom - height), 0), animate=False)
        for changed_index in (former_index, index):
            if changed_index is not None:
                self.refresh_lines(
                    self._tops[changed_index], self._tops[changed_index + 1] - self._tops[changed_index]
                )
        self.post_message(self.Selected())

    def _anchor(self) -> tuple[int, int] | None:
        """The number of the first visible result, and how many of its lines are scrolled away."""
        if not self.listed:
            return None
        line = min(self.scroll_offset.y, self._tops[-1] - 1)
        index = bisect_right(self._tops, line) - 1
        return self.listed[index].number, line - self._tops[index]

    def _return_to(self, number: int, offset: int) -> None:
        self.scroll_to(y=self._tops[self._find(number)] + offset, animate=False, force=True, immediate=True)

    def _row_strips(self, row: ListedResult, width: int, *, at_cursor: bool) -> Iterator[Strip]:
        """The lines of a result."""
        style = self.get_component_rich_style("result--cursor") if at_cursor else self.rich_style
        below = [Text("  ").append_text(line) for line in self.drawer.tree(row)] if self.trees else []
        for number, text in enumerate([self.drawer.line(row, self._columns), *below]):
            text.truncate(width - _MARGIN, overflow="ellipsis")
            mark = Segment("▸ " if at_cursor and not number else "  ", _MARK)
            strip = Strip([mark, *text.render(self.app.console, end="")])
            yield strip.crop(0, width).extend_cell_length(width).apply_style(style)

    def _state(self, row: ListedResult) -> _State:
        day = self.drawer.drawn_at(row)
        return row.number, row.version, row.ending, row.rank, day, self._columns, self.trees


WIDE: Final = 120
"""The width from which the result is beside the table; in a narrower one its texts would be cut to a word."""


class ResultDetail(VerticalScroll):
    """The selected result: its tree, or every value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,escape", "close", "back", key_display="esc"),
        Binding("down,j", "scroll_down", "scroll", key_display="↑↓"),
        Binding("up,k", "scroll_up", "Up", show=False),
    ]
    DEFAULT_CSS = "ResultDetail { scrollbar-size-vertical: 1; background: $background; }"

    class Closed(Message):
        """The table gets the focus again."""

    class Resized(Message):
        """The width of lines has changed."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def action_close(self) -> None:
        self.post_message(self.Closed())


class Reason(Static, can_focus=True):
    """The reason for an empty list, in place of the list."""


class ResultPane(Horizontal):
    """``whole``: the selected result is shown with all values, in more room."""

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
    ResultPane #hint { height: auto; max-height: 4; padding: 0 2; color: $text-muted; display: none; }
    ResultPane.below #hint { max-height: 2; }
    """

    def __init__(self, drawer: Drawer) -> None:
        super().__init__(id="body")
        self._drawer = drawer
        self._drawn_detail: tuple[ListedResult | None, Text] = None, Text()
        self._notice = ""
        self._reason: str | None = None
        self._hint: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="table") as table:
            table.border_title = "results"
            yield Static(id="columns", markup=False)
            yield ResultList(self._drawer, id="results")
            yield Static(id="hint", markup=False)
            yield Reason(id="empty", markup=False)
            yield StartMenu(self._drawer.palette)
        with ResultDetail(id="detail") as detail:
            detail.border_title = "result"
            yield Static(id="detail-text")

    @property
    def results(self) -> ResultList:
        return self.query_one(ResultList)

    @property
    def start(self) -> StartMenu:
        return self.query_one(StartMenu)

    @property
    def listing(self) -> Widget:
        """The widget that gets the focus: the list, or its replacement."""
        if self.start.display:
            return self.start
        return self.empty if self.empty.display else self.results

    @property
    def empty(self) -> Reason:
        return self.query_one(Reason)

    @property
    def detail(self) -> ResultDetail:
        return self.query_one(ResultDetail)

    @property
    def whole(self) -> bool:
        return self.has_class("whole")

    def show_whole(self, *, whole: bool) -> None:
        self.set_class(whole, "whole")
        self.draw_detail()
        self.take_focus()

    def take_focus(self) -> None:
        (self.detail if self.whole and self.results.selected else self.listing).focus()

    def name_columns(self, columns: TableColumns) -> None:
        self.query_one("#columns", Static).update(columns.heading, layout=False)

    def note(self, parts: list[str]) -> None:
        """Show in the border what the list leaves out."""
        notice = " · ".join(parts)
        if notice != self._notice:
            self._notice = notice
            self.query_one("#table").border_subtitle = Text(visible(notice))

    def hint(self, lines: Sequence[str]) -> None:
        """Show below the list how to find results that it hides."""
        if tuple(lines) != self._hint:
            self._hint = tuple(lines)
            below = self.query_one("#hint", Static)
            below.display = bool(lines)
            below.update(visible_lines("\n".join(lines)))

    def show_start(self, *, shown: bool) -> None:
        """Show the start instead of everything else, or hide it."""
        if shown == self.start.display:
            return
        self.start.display = shown
        self.query_one("#table").border_title = "start" if shown else "results"
        if shown:
            self._reason = None
            self.set_class(True, "none")
            self.empty.display = self.results.display = False
            self.query_one("#columns").display = False
        else:
            self._reason = ""  # the replacement is drawn again
        if not shown and self.start.has_focus:
            self.results.focus()

    def explain(self, reason: str | None) -> None:
        """Show a text instead of the list; None shows the list."""
        if reason == self._reason:
            return  # a new text would lay out the whole screen, once a second
        self._reason = reason
        self.set_class(reason is not None, "none")
        had_focus = self.empty.has_focus or self.results.has_focus
        self.empty.display = reason is not None
        self.results.display = self.query_one("#columns").display = reason is None
        if reason is not None:
            self.empty.update(visible_lines(reason))
        if had_focus:  # otherwise the next keys would go into the search box
            self.listing.focus()

    def on_result_detail_resized(self) -> None:
        self.draw_detail()

    def draw_detail(self) -> None:
        """Draw the present version of the selected result."""
        row = self.results.selected
        width = self.detail.scrollable_content_region.width
        if not width:
            return  # it is hidden, and is drawn once it has a size
        text = self.results.drawer.detail(row, width, whole=self.whole) if row else Text()
        if (row, text) != self._drawn_detail:
            # For the same result usually only the lifespan changes, and the height is the same.
            layout = row is not self._drawn_detail[0] or text.plain.count("\n") != self._drawn_detail[
                1
            ].plain.count("\n")
            self._drawn_detail = row, text
            self.query_one("#detail-text", Static).update(text, layout=layout)
            if layout:
                self.detail.scroll_home(animate=False)


def why_empty(
    view: View, query: str | None, selection: ListSelection, reasons: Sequence[str], job: LiveJob | None
) -> str:
    """The reason for an empty list and the next step, in a few lines.

    ``query``: a name, None for all. ``reasons``: why there are no results, if known.
    """
    if job is None:
        return "No source: start with --source or --replay.\ns edits the schema."
    if view.failure:
        return f"The search has failed: {view.failure}\nFix the cause and start again; l shows the log."
    if view.metrics is None:
        step = f": {view.step}" if view.step else ""
        return f"The engine is starting{step}.\nYou can already type keywords."
    names = view.queries if query is None else (query,)
    searching = [name for name in names if name in job.unanswered]
    if searching:
        rows = quantity(view.metrics.tuples + job.static_rows, "row")
        return f"Searching {rows} for {', '.join(map(repr, searching))}."
    return _nothing_of(view, view.metrics, query, selection, reasons, job)


def _nothing_of(
    view: View,
    metrics: Metrics,
    query: str | None,
    selection: ListSelection,
    reasons: Sequence[str],
    job: LiveJob,
) -> str:
    """The reason why standing queries have no result to list."""
    if selection.filtered and len(view.results):
        return "No result matches the filter.\nEscape clears it."
    only = view.queries[0] if len(view.queries) == 1 else query
    name = "these queries" if only is None else repr(only)
    counts = view.results.counts(live=False)
    ended_count = sum(counts.values()) if query is None else counts.get(query, 0)
    if ended_count:
        return f"All {quantity(ended_count, 'result')} of {name} have ended.\ne lists them, too."
    rows = metrics.tuples + job.static_rows
    if metrics.state == "ended" and not rows:
        return "The source has no records.\nl shows the log."
    suffix = "" if metrics.state == "ended" else " yet"
    lines = [f"No result for {name}{suffix} ({quantity(rows, 'row')} so far).", *reasons]
    patterns = only is not None and parse_typed(only).pattern
    lines.append(_PATTERN_TO_TRY if patterns else _to_try(" ".join(reasons)))
    return "\n".join(lines)


_PATTERN_TO_TRY: Final = "Try one of its parts alone, or a longer window; n shows how it is matched."


def _to_try(reasons: str) -> str:
    """One suggestion for an empty list."""
    if "did you mean" in reasons:
        return "Try the suggested word: a, ↑, then Tab."
    if "possible: " in reasons:
        return "Try a join: s shows the schema, Ctrl+L adds one."
    return "Try fewer words: a types another query."
