"""What all screens share: status line, key line, drawing the view when it changes, filtering a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from skws_tui.fence import ViewChanged
from skws_tui.services.drawing import Palette
from skws_tui.themes import palette
from skws_tui.widgets.key_line import KeyLine
from skws_tui.widgets.line_input import FilterBox
from skws_tui.widgets.status_line import StatusLine

if TYPE_CHECKING:
    from skws_tui.app import SkwsApp


class LiveScreen(Screen[None]):
    """A screen of the app. ``refresh_view`` is called when the view has changed and the screen is shown."""

    name_shown = ""
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
        yield StatusLine(self.name_shown, self.skws.view, self.skws.job)
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
