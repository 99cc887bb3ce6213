"""What all screens have: the status line, the footer, and a place to draw the view anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from tui.messages import ViewChanged
from tui.services.drawing import Palette
from tui.themes import palette
from tui.widgets.status_line import StatusLine

if TYPE_CHECKING:
    from tui.app import SkwsApp


class LiveScreen(Screen[None]):
    """A screen of the app; ``refresh_view`` is called when the view has changed and the screen is shown."""

    name_shown = ""

    @property
    def skws(self) -> SkwsApp:
        return cast("SkwsApp", self.app)

    @property
    def dirty(self) -> bool:
        """True if there are edits that are not saved."""
        return False

    @property
    def palette(self) -> Palette:
        return palette(self.app.current_theme)

    def compose(self) -> ComposeResult:
        yield StatusLine(self.name_shown, self.skws.view, self.skws.live_run)
        yield from self.compose_body()
        yield Footer(show_command_palette=False)

    def compose_body(self) -> ComposeResult:
        """The widgets between status line and footer."""
        yield from ()

    def refresh_view(self) -> None:
        """Draw what the view holds now."""

    def on_view_changed(self, message: ViewChanged) -> None:
        message.stop()
        self.query_one(StatusLine).refresh()
        self.refresh_view()

    def on_screen_resume(self) -> None:
        self.post_message(ViewChanged())

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.post_message(ViewChanged()))
