"""The list of live results: a line each, or a whole tree. It follows the newest until the reader moves.

Only visible lines are drawn, so that a list of thousands costs no more than a short one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Final, TypeAlias

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from skws_tui.services.drawing import Columns, Drawer
from skws_tui.services.results import ListedResult

_DRAWN: Final = 600
"""Drawn results in the cache: a page is drawn again at every key."""
_MARGIN: Final = 2
"""Cells before a line, for the mark of the cursor."""
_MARK: Final = Style(bold=True)
_SEEN: Final = 0.01
"""The smallest visible change of a scroll bar, as a share of its length."""
_State: TypeAlias = tuple[int, int, str | None, int | None, float | None, Columns, bool]
"""The inputs of a drawing: number, results, ending and rank of the row, day or time, columns, trees."""


class ResultList(ScrollView, can_focus=True):
    """``following``: the first row is selected. ``unseen``: rows that came since it followed.

    ``trees``: each result is a whole tree below its line.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", id="detail"),
        Binding("down,j", "move(1)", "Next", show=False, id="next-result"),
        Binding("up,k", "move(-1)", "Previous", show=False, id="previous-result"),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("home,g", "follow", "Newest", show=False, id="follow"),
        Binding("end,G", "oldest", "Oldest", show=False, id="oldest-result"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"result--cursor"}
    DEFAULT_CSS = """
    ResultList { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; background: $background; }
    ResultList > .result--cursor { background: $block-cursor-blurred-background 60%; }
    ResultList:focus > .result--cursor { background: $block-cursor-background; }
    """

    class Selected(Message):
        """The reader has moved."""

    class Opened(Message):
        """The selected result is to be shown whole."""

    class Resized(Message):
        """Rows have another width."""

    def __init__(self, drawer: Drawer, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.drawer = drawer
        self.following = True
        self.unseen = 0
        self.trees = False
        self.listed: Sequence[ListedResult] = ()
        self._columns = Columns(0)
        self._tops: list[int] = [0]
        self._cursor: int | None = None  # the number of a result
        self._last = 0  # the place that it had
        self._newest = 0  # number that was listed while following
        self._sorted = False
        self._width = 0
        self._marked: int | None = None  # the place that the cursor is drawn at
        self._strips: dict[tuple[_State, bool, int], list[Strip]] = {}

    @property
    def selected(self) -> ListedResult | None:
        """The result under the cursor; the newest while following."""
        place = self._place()
        return self.listed[place] if place is not None else None

    @property
    def row_width(self) -> int:
        """Cells of a line; before the first layout, as if the list filled what is around it."""
        around = self.parent
        width = self.scrollable_content_region.width
        if not width and isinstance(around, Widget):
            width = around.scrollable_content_region.width
        return width - _MARGIN

    def show(self, listed: Sequence[ListedResult], columns: Columns, *, newest_first: bool = True) -> None:
        """List these. What is in sight stays in its place."""
        if not listed:
            self.following, self._cursor = True, None
        anchor = None if self.following else self._anchor()
        self._sorted = not newest_first
        self.listed, self._columns = listed, columns
        sizes = (1 + self.trees * len(row.result.tuples) for row in listed)
        self._tops = list(accumulate(sizes, initial=0))
        self._grow(self._tops[-1])
        if self.following:
            self._newest = max((row.number for row in listed), default=self._newest)
        self.unseen = sum(row.number > self._newest for row in listed)
        if anchor is not None:
            self._return_to(*anchor)
        self.refresh()

    def redraw(self, drawer: Drawer) -> None:
        """Draw everything again, for another theme or schema."""
        self.drawer = drawer
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        self._width = self.scrollable_content_region.width
        self._marked = self._place()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        line, width, marked = y + self.scroll_offset.y, self._width, self._marked
        if not 0 <= line < self._tops[-1]:
            return Strip.blank(width, self.rich_style)
        place = bisect_right(self._tops, line) - 1
        shown, at_cursor = self.listed[place], place == marked
        key = (self._state(shown), at_cursor, width)
        if key not in self._strips:
            if len(self._strips) >= _DRAWN:
                self._strips.clear()
            self._strips[key] = list(self._drawn(shown, width, at_cursor=at_cursor))
        return self._strips[key][line - self._tops[place]]

    def action_move(self, step: int) -> None:
        if not self.listed:
            return
        place = self._place() or 0
        self.following = False
        self._go(min(max(place + step, 0), len(self.listed) - 1))

    def action_page(self, step: int) -> None:
        if not self.listed:
            return
        self.following = False
        line = self._tops[self._place() or 0] + step * max(1, self.size.height - 1)
        self._go(min(max(bisect_right(self._tops, line) - 1, 0), len(self.listed) - 1))

    def action_follow(self) -> None:
        """Return to the newest."""
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

    def _place(self) -> int | None:
        """The index of the cursor; of the nearest result if its own is gone."""
        if not self.listed:
            return None
        if self.following or self._cursor is None:
            return 0
        return self._find(self._cursor)

    def _find(self, number: int) -> int:
        """The index of a result; if it is gone, the one that it had, or the nearest."""
        if self._sorted:
            numbers = [row.number for row in self.listed]
            return numbers.index(number) if number in numbers else min(self._last, len(numbers) - 1)
        # Numbers decrease from the newest on.
        return max(bisect_right(self.listed, -number, key=lambda row: -row.number) - 1, 0)

    def _go(self, place: int) -> None:
        before = self._place()
        self._cursor, self._last = self.listed[place].number, place
        top, bottom = self._tops[place], self._tops[place + 1]
        height = max(1, self.scrollable_content_region.height)
        if top < self.scroll_offset.y:
            self.scroll_to(y=top, animate=False)
        elif bottom > self.scroll_offset.y + height:
            self.scroll_to(y=max(min(top, bottom - height), 0), animate=False)
        for changed in (before, place):
            if changed is not None:
                self.refresh_lines(self._tops[changed], self._tops[changed + 1] - self._tops[changed])
        self.post_message(self.Selected())

    def _anchor(self) -> tuple[int, int] | None:
        """The number of the first result in sight, and how many of its lines are scrolled away."""
        if not self.listed:
            return None
        line = min(self.scroll_offset.y, self._tops[-1] - 1)
        place = bisect_right(self._tops, line) - 1
        return self.listed[place].number, line - self._tops[place]

    def _return_to(self, number: int, offset: int) -> None:
        self.scroll_to(y=self._tops[self._find(number)] + offset, animate=False, force=True, immediate=True)

    def _drawn(self, row: ListedResult, width: int, *, at_cursor: bool) -> Iterator[Strip]:
        """A result in its lines."""
        style = self.get_component_rich_style("result--cursor") if at_cursor else self.rich_style
        below = [Text("  ").append_text(line) for line in self.drawer.tree(row)] if self.trees else []
        for number, text in enumerate([self.drawer.line(row, self._columns), *below]):
            text.truncate(width - _MARGIN, overflow="ellipsis")
            mark = Segment("▸ " if at_cursor and not number else "  ", _MARK)
            strip = Strip([mark, *text.render(self.app.console, end="")])
            yield strip.crop(0, width).extend_cell_length(width).apply_style(style)

    def _state(self, row: ListedResult) -> _State:
        day = self.drawer.drawn_at(row)
        return row.number, len(row.alike), row.ending, row.rank, day, self._columns, self.trees
