"""The app: its screens, their common actions, and the path of the job's events to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from textual.binding import Binding, BindingType
from textual.events import Event, Key
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.timer import Timer

from skws.data.value_conversion import EARLIEST
from skws.jobs.control import Move
from skws.jobs.log import Level
from skws.jobs.metrics import Metrics
from skws.results.result import Result
from skws.sinks.text import visible
from skws_schema.budgets import watch_steps
from skws_schema.errors import SkwsError, UsageError, quantity, without_picture
from skws_tui.error_boundary import EventsReady, OffThread, ResilientApp, ViewChanged, WorkFailed, hooks
from skws_tui.screens.dialogs import (
    ACTIONS,
    GO_BINDINGS,
    MODES,
    RETIRED,
    ConfirmScreen,
    PickScreen,
    ScreenMaker,
)
from skws_tui.screens.live_screen import LiveScreen, Notice
from skws_tui.screens.menu_entries import menu_of
from skws_tui.screens.search_screen import SearchScreen
from skws_tui.services.request import UiRequest
from skws_tui.services.user_files import (
    SavedSession,
    keymap_file,
    load_keymap,
    load_session,
    save_session,
    session_file,
)
from skws_tui.services.user_files import export as write_results
from skws_tui.services.view import EventQueue, LogLine, View
from skws_tui.themes import THEMES, default_theme, has_few_colours
from skws_windows.window import MICROSECOND

if TYPE_CHECKING:
    from skws_tui.screens.rows_screen import RowsScreen
    from skws_tui.services.browsing import RowPlace
    from skws_tui.services.live_job import LiveJob

_LEAST_GAP: Final = 0.1
"""The shortest time between two drawings of events, in seconds: fast enough to watch."""
_MOST_GAP: Final = 1.0
_SHARE: Final = 4
_SPEED_STEP: Final = 2.0
_SLOWEST, _FASTEST = 2.0**-100, 2.0**100
"""The limits of the speed of a replay: a held key soon leaves the range of numbers."""
_SHOWN: Final[dict[SeverityLevel, float]] = {"information": 3.0, "warning": 10.0, "error": 10.0}
"""Seconds for which a message is shown."""
_QUICK_CHECK: Final = 0.5
"""The time after which a running check shows a message, in seconds."""


class SkwsApp(ResilientApp):
    """The app. ``new_job`` makes the job of the request on the app's event queue; None without a source.

    ``show_machine``: True to show figures that differ between machines: memory and the time of stages.
    """

    TITLE = "skws"
    ENABLE_COMMAND_PALETTE = False  # the menu has all commands
    MODES: ClassVar[dict[str, ScreenMaker]] = MODES
    DEFAULT_MODE = "search"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause or resume the stream", show=False, id="pause"),
        Binding("plus,equals_sign", "faster(1)", "Double the speed of a replay", show=False, id="faster"),
        Binding("minus", "faster(-1)", "Halve the speed of a replay", show=False, id="slower"),
        *GO_BINDINGS,
        Binding("question_mark,f1,ctrl+p", "help", "menu", id="help"),
        Binding("q,ctrl+q", "quit", "quit", id="quit"),
    ]

    def __init__(
        self,
        request: UiRequest,
        new_job: Callable[[UiRequest, EventQueue], LiveJob] | None,
        *,
        session_path: Path | None = None,
        show_machine: bool = True,
    ) -> None:
        super().__init__(few_colours=has_few_colours())
        self.request = request
        self.view = View(request)
        self.events = EventQueue()
        self.show_machine = show_machine
        self.checks = OffThread()
        self._session_path = session_path or session_file(request.schema_path)
        self.session = load_session(self._session_path) if request.restore else SavedSession()
        self._drawn_at = float("-inf")
        self._gap = _LEAST_GAP
        self._draw_timer: Timer | None = None
        self._seek_target: int | None = None
        self._seek_metrics: Metrics | None = None
        self.message: Notice | None = None
        self.keys: Mapping[str, str] = {}
        """The user's own keys, by action."""
        self._message_timer: Timer | None = None
        self.job: LiveJob | None = None
        if new_job is not None:
            self.job = new_job(self._restored_request(request), self.events)

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.request.theme or self._known_theme(self.session.theme) or default_theme()
        self._load_keys()
        self.events.on_events = self._post_events_ready
        self.set_interval(1.0, self.tick)

    def on_ready(self) -> None:
        """Start the job after the first picture, which loading its modules would delay."""
        if self.job is not None:
            self.job.start()
        self._post_events_ready()  # for events that came before the queue had a listener

    def _post_events_ready(self) -> None:
        """Called by the thread of the job."""
        self.post_message(EventsReady())

    def on_events_ready(self) -> None:
        """Draw now, or when the least time since the last drawing has passed."""
        wait = self._drawn_at + self._gap - time.monotonic()
        if wait <= 0:
            self.take_events()
        elif self._draw_timer is None:
            self._draw_timer = self.set_timer(wait, self.take_events)

    def take_events(self) -> None:
        """Apply all events to the view, and draw the view."""
        self._draw_timer = None
        self._drawn_at = time.monotonic()
        events = self.events.take()
        self.view.apply_events(events)
        for line in events.lines:
            if line.level != "info":
                self._show(line)
        self._redraw()
        self.call_after_refresh(self._adapt_gap, self._drawn_at)

    def _adapt_gap(self, began: float) -> None:
        """Draw less often if drawing takes long, so that most of the time is left for keys."""
        self._gap = min(max(_LEAST_GAP, _SHARE * (time.monotonic() - began)), _MOST_GAP)

    async def add_query(self, name: str, instead_of: str | None = None) -> str:
        """Add a query, or replace one; returns the reason if it cannot be added, otherwise an empty text."""
        if name in self.view.queries:
            if instead_of is not None and instead_of != name:
                self.remove_query(instead_of)
            return ""
        if refusal := await self._refusal(name):
            return refusal
        if self.job is None:
            return "no source to search: start with --source or --replay"
        if instead_of is not None:
            self.job.remove_query(instead_of)
        self.job.add_query(name)
        self.session.remember(name)
        return ""

    async def _refusal(self, name: str) -> str:
        """The reason why a query cannot be added; empty if it can."""
        message = self.set_timer(_QUICK_CHECK, lambda: self.notify(f"checking {name}"))
        try:
            await self.checks.run(lambda: self.view.analyzer.check(name))
        except SkwsError as error:
            return str(error)
        finally:
            message.stop()
        return ""

    def remove_query(self, name: str) -> bool:
        """Remove a query; False if it is being removed, or cannot be."""
        return self.job is not None and self.job.remove_query(name)

    def selected_query(self) -> str | None:
        """The query that is selected on the search screen."""
        return self._search_screen().bar.selected

    def look_at_network(self, query: str, network: str) -> None:
        """Show the results of a network on the search screen."""
        screen = self._search_screen()
        self.switch_mode("search")
        self.call_later(screen.look_at_network, query, network)

    def pick_rows(self, places: Sequence[RowPlace]) -> None:
        """Choose among rows with a join value, and show them."""
        by_text = {place.text: place for place in places}
        if not by_text:
            self.notify("no joins lead from here to other rows")
            return
        self.push_screen(
            PickScreen("Rows with", [(text, "") for text in by_text]),
            lambda text: None if text is None else self._look_at_rows(by_text[text]),
        )

    def _look_at_rows(self, place: RowPlace) -> None:
        self.switch_mode("rows")
        self.call_later(self._show_rows, place)

    def _show_rows(self, place: RowPlace) -> None:
        screen = cast("RowsScreen", self._screen_of("rows"))  # its module loads at the first visit
        screen.call_later(screen.look_at, place)

    def export(self, results: Sequence[Result], path: str) -> None:
        """Write results to a file. Raises SkwsError."""
        if not results:
            raise UsageError("there are no results to export")
        try:
            file = Path(path).expanduser()
        except RuntimeError:  # ~NAME without such a user
            raise UsageError(f"{path}: there is no such user") from None
        write_results(results, file)
        self.tell("info", f"{quantity(len(results), 'result')} written to {path}", shown=True)

    def schema_text(self) -> str:
        """The text of the schema file; empty, with a message, if it cannot be read."""
        try:
            return self.request.schema_path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self.post_message(WorkFailed(f"{self.request.schema_path}: {error}"))
            return ""

    def tell(self, level: Level, text: str, *, shown: bool = False) -> None:
        """Add a line to the log, and show it as a message if ``shown``."""
        line = LogLine(time.time(), level, text)
        self.view.note(line)
        if shown:
            self._show(line)
        self._redraw()

    def on_work_failed(self, message: WorkFailed) -> None:
        self.tell("error", message.text, shown=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the action of going to the current screen."""
        return not (action == "go" and parameters == (self.current_mode,))

    def action_help(self) -> None:
        """Open the menu of the actions that are possible here."""
        entries = {entry.text: entry for entry in menu_of(self)}
        choices = [(entry.text, entry.note) for entry in entries.values()]
        self.push_screen(
            PickScreen("Type to find an action, Enter does it", choices),
            lambda text: None if text is None else entries[text].run(),
        )

    def action_theme(self) -> None:
        choices = [(name, "") for name in sorted(self.available_themes)]
        former_theme = self.theme
        self.push_screen(
            PickScreen("Themes: ↓ shows each, Esc goes back", choices, self._show_theme),
            lambda name: self._show_theme(name or former_theme),
        )

    def _show_theme(self, name: str) -> None:
        self.theme = name

    def write_query(self, text: str) -> None:
        """Put a text into the query box, to be edited or entered."""
        screen = self._search_screen()
        self.switch_mode("search")
        self.call_later(screen.write_query, text)

    def action_go(self, mode: str) -> None:
        self.switch_mode(mode)

    def action_pause(self) -> None:
        if self.job is None:
            return
        control = self.job.control
        paused = control.status().paused
        (control.resume if paused else control.pause)()
        self.notify("running" if paused else "paused", timeout=1)

    def seek(self, move: Move) -> None:
        """Move a replay to an instant; a step pauses it."""
        if self.job is None or self.job.control.times is None:
            self.notify("only a replay can be moved in time")
            return
        if isinstance(move, str):
            self.job.control.pause()
        self._seek_target, self._seek_metrics = None if isinstance(move, str) else move, self.view.metrics
        self.job.control.seek(move)
        self._redraw()

    @property
    def position(self) -> int | None:
        """The position of a replay in microseconds: the time of its latest record, or a later instant."""
        now, target = self.view.event_time, self._seek_target
        if now is None or (target is not None and self._seek_metrics is self.view.metrics):
            return target
        return max(round(now * MICROSECOND), target if target is not None else EARLIEST)

    def action_faster(self, step: int) -> None:
        if self.job is not None:
            control = self.job.control
            speed = control.status().speed * _SPEED_STEP**step
            control.set_speed(min(max(speed, _SLOWEST), _FASTEST))
            self._redraw()

    async def action_quit(self) -> None:
        """Quit; ask first if the schema has unsaved edits."""
        schema = self._screen_of("schema")
        if isinstance(schema, LiveScreen) and schema.is_mounted and schema.dirty:
            question = "The schema has unsaved edits. Quit and lose them?"
            self.push_screen(ConfirmScreen(question), lambda yes: self.exit() if yes else None)
        else:
            self.exit()

    def on_unmount(self) -> None:
        if self.job is not None:
            self.job.stop()
        if self.request.restore:
            self._store_session()

    def _search_screen(self) -> SearchScreen:
        screen = self._screen_of("search")
        assert isinstance(screen, SearchScreen)  # noqa: S101 - the default mode
        return screen

    def _screen_of(self, mode: str) -> Screen[Any] | None:
        if mode not in self._screen_stacks:
            return None
        stack = self.get_screen_stack(mode)
        return stack[0] if stack else None

    def _redraw(self) -> None:
        if self.is_running and self.screen_stack:
            for screen in self.screen_stack:
                if isinstance(screen, LiveScreen):
                    screen.post_message(ViewChanged())

    def tick(self) -> None:
        self.view.tick(time.monotonic())
        self._redraw()

    def _show(self, line: LogLine) -> None:
        severities: dict[Level, SeverityLevel] = {"warning": "warning", "error": "error"}
        self.notify(line.text, severity=severities.get(line.level, "information"))

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002 - Textual's parameter; texts are shown unchanged
    ) -> None:
        """Replaces Textual's toasts, which cover results: the last line of the screen shows the message."""
        text = " ".join(visible(f"{title} {without_picture(message)}").split())
        self.message = Notice(text, severity)
        self._redraw()
        if self._message_timer is not None:
            self._message_timer.stop()
        seconds = _SHOWN[severity] if timeout is None else timeout
        self._message_timer = self.set_timer(seconds, self._hide_message)

    def withdraw(self, text: str) -> None:
        """Hide a message that no longer holds, if it is still shown."""
        if self.message is not None and self.message.text == " ".join(visible(without_picture(text)).split()):
            self._hide_message()

    async def on_event(self, event: Event) -> None:
        """Hide a message about a completed action at the next key."""
        if isinstance(event, Key) and self.message is not None and self.message.severity == "information":
            self._hide_message()
        await super().on_event(event)

    def _hide_message(self) -> None:
        self.message = None
        self._redraw()

    def _restored_request(self, request: UiRequest) -> UiRequest:
        """The request, with the queries of the last session if it has none."""
        return request if request.queries else replace(request, queries=tuple(self.session.queries))

    def _known_theme(self, name: str) -> str | None:
        return name if name in self.available_themes else None

    def _load_keys(self) -> None:
        try:
            self.keys = load_keymap(keymap_file(), ACTIONS, RETIRED)
            self.set_keymap(self.keys)
        except SkwsError as error:
            self.post_message(WorkFailed(str(error)))

    def _store_session(self) -> None:
        self.session.queries = list(self.view.queries)
        self.session.theme = self.theme
        try:
            save_session(self.session, self._session_path)
        except SkwsError as error:
            self.log.warning(str(error))


def run_app(
    request: UiRequest, new_job: Callable[[UiRequest, EventQueue], LiveJob] | None, *, mouse: bool
) -> None:
    """Run the app on this terminal until the user quits. Raises UsageError; SkwsError if the app breaks."""
    app = SkwsApp(request, new_job)
    with hooks(app), watch_steps(None):  # other output would overwrite the screen
        app.run(mouse=mouse)
    if app.broken:
        raise SkwsError(app.broken)
