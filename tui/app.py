"""The shell of the app: its screens, what all of them can do, and the way of news from the run to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer

from schema.errors import SkwsError
from skws.results.model import LiveResult
from skws.results.writers.text import visible, visible_lines
from skws.wording import counted
from tui.fence import FencedApp
from tui.keys import ACTIONS, GOING
from tui.messages import Failed, NewsReady, ViewChanged
from tui.modes import MODES, Maker
from tui.printable import Printable
from tui.screens.confirm import ConfirmScreen
from tui.screens.help import HelpScreen
from tui.screens.live import LiveScreen
from tui.screens.search import SearchScreen
from tui.services.keymap import keymap_file, load_keymap
from tui.services.news import Level, LogLine, Outbox
from tui.services.off_thread import OffThread
from tui.services.request import UiRequest
from tui.services.run import AddQuery, RemoveQuery, Run
from tui.services.session import Session, load_session, save_session, session_file
from tui.services.view import View
from tui.themes import default_theme

_LEAST_GAP: Final = 0.1
"""Seconds between two drawings of news: more often no one can read."""
_MOST_GAP: Final = 1.0
_SHARE: Final = 4
_SPEEDS: Final = 2.0
_PRINTABLE: Final = Printable()
_CHECKED_AT_ONCE: Final = 0.5
"""Seconds for a check after which it is told of."""


class SkwsApp(FencedApp):
    """``start_run`` begins the live search of the request on the app's outbox; None without a source.

    ``show_machine``: tell what differs from machine to machine, memory and the time of stages.
    """

    TITLE = "skws"
    ENABLE_COMMAND_PALETTE = True
    MODES: ClassVar[dict[str, Maker]] = MODES
    DEFAULT_MODE = "search"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,question_mark", "help", "Help", id="help"),
        *GOING,
        Binding("space", "pause", "Pause", show=False, id="pause"),
        Binding("plus,equals_sign", "faster(1)", "Faster", show=False, id="faster"),
        Binding("minus", "faster(-1)", "Slower", show=False, id="slower"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True, id="quit"),
    ]

    def __init__(
        self,
        request: UiRequest,
        start_run: Callable[[UiRequest, Outbox], Run] | None,
        *,
        session_path: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        show_machine: bool = True,
    ) -> None:
        super().__init__()
        self.request = request
        self.view = View(request)
        self.outbox = Outbox()
        self.live_run: Run | None = None
        self.clock = clock
        self.show_machine = show_machine
        self.checks = OffThread()
        self._session_path = session_path or session_file(request.schema_path)
        self.session = load_session(self._session_path) if request.restore else Session()
        self.touring = not self.session.toured
        self._start_run = start_run
        self._drawn_at = float("-inf")
        self._gap = _LEAST_GAP
        self._waiting: Timer | None = None
        if start_run is not None:
            self.live_run = start_run(self._restored(request), self.outbox)

    def on_mount(self) -> None:
        self.theme = self.request.theme or self._known_theme(self.session.theme) or default_theme()
        self._load_keys()
        self.outbox.on_news = self._news_ready
        self.set_interval(1.0, self._tick)

    def on_ready(self) -> None:
        """Start the run behind the first picture, which all that it loads would hold up."""
        if self.live_run is not None:
            self.live_run.start()

    def _news_ready(self) -> None:
        """Called by the run's thread."""
        self.post_message(NewsReady())

    def on_news_ready(self) -> None:
        """Draw now, or when the last drawing is long enough ago."""
        wait = self._drawn_at + self._gap - self.clock()
        if wait <= 0:
            self.take_news()
        elif self._waiting is None:
            self._waiting = self.set_timer(wait, self.take_news)

    def take_news(self) -> None:
        """Bring the view up to date with all news, and the screen with the view."""
        self._waiting = None
        self._drawn_at = self.clock()
        news = self.outbox.take()
        self.view.absorb(news, self._drawn_at)
        for line in news.lines:
            if line.level != "info":
                self._toast(line)
        self._redraw()
        self.call_after_refresh(self._news_drawn, self._drawn_at)

    def _news_drawn(self, began: float) -> None:
        """Where drawing takes long, news are drawn less often: most of the time is for keys."""
        self._gap = min(max(_LEAST_GAP, _SHARE * (self.clock() - began)), _MOST_GAP)

    async def add_query(self, text: str, instead_of: str | None = None) -> bool:
        """Make a query stand, perhaps in the place of another one; False if it cannot, which is told."""
        if text in self.view.queries:
            if instead_of is not None and instead_of != text:
                self.remove_query(instead_of)
            else:
                self.tell("info", f"{text}: stands already", toast=True)
            return True
        if not await self._can_stand(text):
            return False
        if self.live_run is None:
            self.post_message(Failed("no source to search: start with --source or --replay"))
            return False
        if instead_of is not None:
            self.live_run.post(RemoveQuery(instead_of))
        self.live_run.post(AddQuery(text))
        self.session.asked(text)
        return True

    async def _can_stand(self, text: str) -> bool:
        told = self.set_timer(
            _CHECKED_AT_ONCE, lambda: self.notify(visible(f"checking {text}"), markup=False)
        )
        try:
            await self.checks.run(lambda: self.view.meanings.standing(text))
        except SkwsError as error:
            self.post_message(Failed(str(error)))
            return False
        finally:
            told.stop()
        return True

    def remove_query(self, text: str) -> None:
        if self.live_run is not None:
            self.live_run.post(RemoveQuery(text))

    def selected_query(self) -> str | None:
        """The query that the search screen looks at."""
        return self._search_screen().bar.selected

    def look_at_network(self, query: str, network: str) -> None:
        """Show the results of a network on the search screen."""
        screen = self._search_screen()
        self.switch_mode("search")
        self.call_later(screen.look_at_network, query, network)

    def export(self, results: Sequence[LiveResult], path: str) -> None:
        """Write results to a file; how that went is told."""
        from tui.services.export import export, file_to_write  # noqa: PLC0415 - Arrow, for who exports

        if not results:
            self.post_message(Failed("nothing is listed that could be exported"))
            return
        try:
            export(results, file_to_write(path, self.request), self.view.meanings)
        except SkwsError as error:
            self.post_message(Failed(str(error)))
            return
        self.tell("info", f"{counted(len(results), 'result')} written to {path}", toast=True)

    def schema_text(self) -> str:
        """The file of the schema as it is now; empty if it cannot be read, which is told."""
        try:
            return self.request.schema_path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self.post_message(Failed(f"{self.request.schema_path}: {error}"))
            return ""

    def tell(self, level: Level, text: str, *, toast: bool = False) -> None:
        """A line for the log, perhaps shown as a toast too."""
        line = LogLine(time.time(), level, text)
        self.view.note(line)
        if toast:
            self._toast(line)
        self._redraw()

    def on_failed(self, message: Failed) -> None:
        self.tell("error", message.text, toast=True)

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_go(self, mode: str) -> None:
        self.switch_mode(mode)
        search = self._search_screen()
        if search.is_mounted and mode != "search":
            search.hint.done(2)

    def action_pause(self) -> None:
        run = self.live_run
        if run is not None:
            (run.resume if run.paused else run.pause)()
            self.notify("paused" if run.paused else "goes on", timeout=1)

    def action_faster(self, step: int) -> None:
        run = self.live_run
        if run is not None:
            run.set_speed(run.speed * _SPEEDS**step)
            self._redraw()

    async def action_quit(self) -> None:
        """Quit; edits of the schema that are not saved are asked about first."""
        schema = self._screen_of("schema")
        if isinstance(schema, LiveScreen) and schema.is_mounted and schema.dirty:
            asked = "The schema has edits that are not saved. Quit and lose them?"
            self.push_screen(ConfirmScreen(asked), lambda yes: self.exit() if yes else None)
        else:
            self.exit()

    def on_unmount(self) -> None:
        if self.live_run is not None:
            self.live_run.stop()
        if self.request.restore:
            self._keep_session()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), _PRINTABLE]

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The commands of the palette."""
        yield from super().get_system_commands(screen)
        for mode in self.MODES:
            yield SystemCommand(f"Go to {mode}", f"Show the {mode} screen", lambda m=mode: self.action_go(m))
        yield SystemCommand("Pause or resume", "Stop taking tuples in, or go on", self.action_pause)
        yield SystemCommand("Faster", "Double the speed of a replay", lambda: self.action_faster(1))
        yield SystemCommand("Slower", "Halve the speed of a replay", lambda: self.action_faster(-1))
        yield SystemCommand("Help", "Keys, and how queries are written", self.action_help)
        if isinstance(screen, SearchScreen):
            yield SystemCommand("Export results", "As JSONL, CSV or Parquet", screen.action_export)
            yield SystemCommand("Remove query", "The selected one", screen.action_remove_query)
            yield SystemCommand("Earlier queries", "Saved and asked", screen.action_pick)

    def _search_screen(self) -> SearchScreen:
        screen = self._screen_of("search")
        assert isinstance(screen, SearchScreen)  # noqa: S101 - it is the default mode
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

    def _tick(self) -> None:
        self.view.tick(self.clock())
        self._redraw()

    def _toast(self, line: LogLine) -> None:
        severities: dict[Level, Any] = {"info": "information", "warning": "warning", "error": "error"}
        self.notify(visible_lines(line.text), severity=severities[line.level], markup=False)

    def _restored(self, request: UiRequest) -> UiRequest:
        """The request with the queries of the last session, if it brings none."""
        return request.with_queries(tuple(self.session.queries)) if not request.queries else request

    def _known_theme(self, name: str) -> str | None:
        return name if name in self.available_themes else None

    def _load_keys(self) -> None:
        try:
            self.set_keymap(load_keymap(keymap_file(), ACTIONS))
        except SkwsError as error:
            self.post_message(Failed(str(error)))

    def _keep_session(self) -> None:
        self.session.queries = list(self.view.queries)
        self.session.theme = self.theme
        self.session.toured = True
        try:
            save_session(self.session, self._session_path)
        except SkwsError as error:
            self.log.warning(str(error))
