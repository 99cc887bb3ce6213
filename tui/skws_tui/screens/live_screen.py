"""The common part of all screens: status line, key line, drawing the view when it changes, list filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.keys import format_key, key_to_character
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widget import Widget

from skws.sinks.text import visible
from skws_schema.errors import quantity
from skws_tui.error_boundary import ViewChanged
from skws_tui.services.cells import wrap_cells
from skws_tui.services.result_drawing import Palette, day_or_time
from skws_tui.services.view import View
from skws_tui.themes import palette
from skws_tui.widgets.search_box import FilterBox

if TYPE_CHECKING:
    from skws_tui.app import SkwsApp
    from skws_tui.services.live_job import LiveJob

_PINNED: Final = ("help", "quit")
"""The actions that are always shown, at the end."""
_KEYS: Final = {"enter": "⏎", "tab": "⇥", "escape": "esc", "space": "space", "slash": "/"}
_GAP: Final = "  "
_LINES: Final = 3
_REST: Final = " …  l: the whole message"


class Notice(NamedTuple):
    """A message for the user that disappears by itself."""

    text: str
    severity: SeverityLevel


class KeyLine(Widget):
    """Shows a key for each visible action, clickable by the mouse; a message replaces them."""

    DEFAULT_CSS = "KeyLine { height: 1; padding: 0 1; color: $text-muted; }"

    def __init__(self) -> None:
        super().__init__()
        self._hint_spans: list[tuple[int, int, ActiveBinding]] = []
        self._lines = 1

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def fit(self) -> None:
        """Adjust the height to the message or the keys, and draw them."""
        notice = cast("SkwsApp", self.app).message
        lines = 1 if notice is None else len(_notice_lines(notice, self.size.width, self._palette))
        if self._lines != lines:
            self._lines = self.styles.height = lines
        self.refresh()

    @property
    def _palette(self) -> Palette:
        return palette(self.app.current_theme)

    def render(self) -> Text:
        notice = cast("SkwsApp", self.app).message
        if notice is not None:
            self._hint_spans = []
            return Text("\n").join(_notice_lines(notice, self.size.width, self._palette))
        hints = sorted(self._hints(), key=_declaration_order)
        pinned = [hint for name in _PINNED for hint in hints if hint[1].binding.action == name]
        unpinned = [hint for hint in hints if hint not in pinned]
        room = self.size.width - sum(_width(*hint) for hint in pinned)
        line, self._hint_spans = Text(no_wrap=True), []
        for key, active in unpinned:
            width = _width(key, active)
            if width <= room:
                room -= width
                self._append(line, key, active)
        for key, active in pinned:
            self._append(line, key, active)
        return line

    def on_click(self, event: events.Click) -> None:
        for start, end, active in self._hint_spans:
            if start <= event.x < end:
                self.app.call_later(self.app.run_action, active.binding.action, active.node)

    def _append(self, line: Text, key: str, active: ActiveBinding) -> None:
        start = line.cell_len + 1
        line.append(key, "bold").append(f" {active.binding.description}{_GAP}")
        self._hint_spans.append((start, line.cell_len, active))

    def _hints(self) -> Iterator[tuple[str, ActiveBinding]]:
        """The shortest key of each action, unless the focused widget takes the key as text."""
        keys: dict[str, tuple[str, ActiveBinding]] = {}
        for key, active in self.screen.active_bindings.items():
            binding = active.binding
            if not active.enabled or self._takes_text(key):
                continue
            key_text = binding.key_display or shown_key(key)
            known_hint = keys.get(binding.action)
            if binding.show and (known_hint is None or len(key_text) < len(known_hint[0])):
                keys[binding.action] = key_text, active
        yield from keys.values()

    def _takes_text(self, key: str) -> bool:
        focused = self.screen.focused
        return focused is not None and focused.check_consume_key(key, key_to_character(key))


def _notice_lines(notice: Notice, width: int, palette: Palette) -> list[Text]:
    """The lines of a message, at most three; the rest is in the log."""
    style = "" if notice.severity == "information" else palette.warn
    width = max(width, 10)
    lines = wrap_cells(notice.text, width)
    if len(lines) > _LINES:
        last = lines[_LINES - 1]
        while last and cell_len(last + _REST) > width:
            last = last.rpartition(" ")[0] if " " in last else last[:-1]
        lines[_LINES - 1 :] = [last + _REST]
    return [Text(line, style, no_wrap=True) for line in lines] or [Text()]


def _declaration_order(hint: tuple[str, ActiveBinding]) -> tuple[int, int]:
    """The sort key of a binding: widget, screen, app; within each in the order of declaration."""
    node, binding = hint[1].node, hint[1].binding
    names = [entry.action if isinstance(entry, Binding) else entry[1] for entry in type(node).BINDINGS]
    floor = 2 if isinstance(node, App) else 1 if isinstance(node, Screen) else 0
    return floor, names.index(binding.action) if binding.action in names else -1


def shown_key(key: str) -> str:
    if key in _KEYS:
        return _KEYS[key]
    return f"^{key.removeprefix('ctrl+')}" if key.startswith("ctrl+") else format_key(key)


def _width(key: str, active: ActiveBinding) -> int:
    return cell_len(f"{key} {active.binding.description}{_GAP}")


_MARKS: Final = {"starting": "◌", "running": "●", "paused": "‖", "ended": "■"}


class StatusLine(Widget):
    """State, event time, rate, standing queries; also speed, bad and late records, if there are any."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; }"

    def __init__(self, title: str, view: View, job: LiveJob | None) -> None:
        super().__init__()
        self._title = title
        self._view = view
        self._job = job

    def render(self) -> Text:
        line = Text.assemble(("skws", "bold"), f"  {visible(self._view.schema.name)}", no_wrap=True)
        line.append(f" › {self._title}" if self._title else "")
        parts = self._state()
        while len(parts) > 1 and cell_len("   ".join(parts)) + line.cell_len + 3 > self.size.width:
            parts.pop()  # the last part is the least important
        state = Text("   ".join(parts))
        line.append(" " * max(self.size.width - line.cell_len - state.cell_len, 3))
        return line.append_text(state)

    def _state(self) -> list[str]:
        view, metrics = self._view, self._view.metrics
        if self._job is None:
            return ["no source"]
        if view.failure:
            return ["✗ failed: l shows the log"]
        if metrics is None:
            return ["◌ starting the engine" + (f" {view.waited:.0f} s" if view.waited >= 1 else "")]
        status = self._job.control.status()
        # the search continues in the records that were read
        all_read = metrics.state == "ended" and not status.ended
        parts = [f"{_MARKS[metrics.state]} {'all read' if all_read else metrics.state}"]
        speed = status.speed
        if speed != 1:
            parts.append(f"×{speed:g}")
        if metrics.event_time is not None:
            parts.append(day_or_time(int(metrics.event_time)))
        if not metrics.rate and (rows := metrics.tuples + self._job.static_rows):
            parts.append(quantity(rows, "row"))  # no rows arrive now
        elif not all_read:
            parts.append(f"{metrics.rate:,.0f} rows/s")
        parts += [f"{n:,} {label}" for n, label in ((metrics.bad, "bad"), (metrics.late, "late")) if n]
        query_count = "1 query" if len(view.queries) == 1 else f"{len(view.queries):,} queries"
        return [*parts, query_count]


class LiveScreen(Screen[None]):
    """A screen of the app. ``refresh_view`` is called when the view has changed and the screen is shown."""

    heading = ""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back")]

    @property
    def skws(self) -> SkwsApp:
        return cast("SkwsApp", self.app)

    @property
    def dirty(self) -> bool:
        """True if there are unsaved edits."""
        return False

    @property
    def palette(self) -> Palette:
        return palette(self.app.current_theme)

    def compose(self) -> ComposeResult:
        yield StatusLine(self.heading, self.skws.view, self.skws.job)
        yield from self.compose_body()
        yield KeyLine()

    def compose_body(self) -> ComposeResult:
        """The widgets between status line and key line."""
        yield from ()

    def refresh_view(self) -> None:
        """Draw the current view."""

    def on_view_changed(self, message: ViewChanged) -> None:
        message.stop()
        self.query_one(StatusLine).refresh()
        self.query_one(KeyLine).fit()
        self.refresh_view()

    def on_screen_resume(self) -> None:
        self.post_message(ViewChanged())

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.post_message(ViewChanged()))

    def action_back(self) -> None:
        """Return to the search screen."""
        self.skws.action_go("search")


class FilteredScreen(LiveScreen):
    """A screen with a ``FilterBox`` over ``listing``, the widget that is filtered."""

    @property
    def listing(self) -> Widget:
        raise NotImplementedError

    @property
    def filter_box(self) -> FilterBox:
        return self.query_one(FilterBox)

    def on_filter_box_narrowed(self) -> None:
        self.refresh_view()

    def on_filter_box_done(self) -> None:
        self.listing.focus()

    def action_filter(self) -> None:
        self.filter_box.open()

    def action_back(self) -> None:
        """Clear the filter; without one, return to the search screen."""
        if self.filter_box.close():
            self.listing.focus()
        else:
            super().action_back()
