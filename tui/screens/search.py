"""The home screen: keywords in, live results out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from skws.results.model import LiveResult
from skws.results.writers.text import visible
from skws.wording import counted
from tui.background import in_background
from tui.screens.live import LiveScreen
from tui.screens.pick import PickScreen
from tui.screens.prompt import PromptScreen
from tui.services.asked import query_of, read_asked
from tui.services.drawing import Drawer, plain_text
from tui.services.empty import notice, why_empty
from tui.services.results import Shown
from tui.widgets.asking import Asking
from tui.widgets.filter_box import FilterBox
from tui.widgets.hint import Hint
from tui.widgets.notice import Notice
from tui.widgets.query_box import QueryBox
from tui.widgets.result_list import ResultList
from tui.widgets.result_pane import ResultPane
from tui.widgets.standing_bar import StandingBar
from tui.widgets.time_line import TimeLine

_WIDE = 110


class SearchScreen(LiveScreen):
    """Standing queries and their results."""

    name_shown = "search"
    BINDINGS: ClassVar[list[BindingType]] = [
        FilterBox.SLASH,
        Binding("enter", "detail", "Detail", id="detail"),
        Binding("y", "copy", "Copy", id="copy"),
        Binding("Y", "copy_json", "Copy JSON", show=False, id="copy-json"),
        Binding("x,delete", "remove_query", "Remove", id="remove-query"),
        Binding("left_square_bracket", "query(-1)", "Query left", show=False, id="previous-query"),
        Binding("right_square_bracket", "query(1)", "Query right", show=False, id="next-query"),
        Binding("e", "keep_ended", "Keep ended", show=False, id="keep-ended"),
        Binding("s", "order", "Best or newest first", show=False, id="order"),
        Binding("i", "ask", "Keywords", show=False, id="ask"),
        Binding("ctrl+r", "pick", "History", show=False, id="history"),
        Binding("ctrl+o", "export", "Export", show=False, id="export"),
        Binding("ctrl+n", "next_hint", "Next hint", show=False, id="next-hint"),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.network: str | None = None
        self._drawn_theme = ""
        self._asked: tuple[object, ...] | None = None
        self._newest_first = False
        self._wanted = ""  # the query to select once it stands

    def compose_body(self) -> ComposeResult:
        yield Asking(self.skws.view, self.skws.live_run, self.palette)
        yield StandingBar(self.skws.view, id="standing")
        yield Hint()
        yield FilterBox("results")
        yield Notice(id="notice")
        yield ResultPane(Drawer(self.skws.view, self.palette), id="body")
        yield TimeLine(id="windows")

    def on_mount(self) -> None:
        super().on_mount()
        self.box.recall(self.skws.session.history)
        self.box.focus()
        self._wanted = self.skws.session.selected
        if self.skws.session.detail:
            self.pane.detail(shown=True)
        if self.skws.touring:
            self.hint.begin()

    @property
    def box(self) -> QueryBox:
        return self.query_one(QueryBox)

    @property
    def pane(self) -> ResultPane:
        return self.query_one(ResultPane)

    @property
    def results(self) -> ResultList:
        return self.pane.results

    @property
    def bar(self) -> StandingBar:
        return self.query_one(StandingBar)

    @property
    def hint(self) -> Hint:
        return self.query_one(Hint)

    @property
    def words(self) -> str:
        """The filter."""
        return self.query_one(FilterBox).words

    def refresh_view(self) -> None:
        view = self.skws.view
        if self._drawn_theme != self.app.theme or self.results.drawer.view_schema is not view.schema:
            self._drawn_theme = self.app.theme
            self.results.redraw(Drawer(view, self.palette))
            self.query_one(Asking).palette = self.palette
        if self._wanted and self._wanted in view.queries:
            selected, self._wanted = self._wanted, ""
            self.bar.choose(selected)
        elif self.bar.selected is not None and self.bar.selected not in view.queries and not self._wanted:
            self.bar.choose(None)
        session = self.skws.session
        session.selected, session.detail = self.bar.selected or self._wanted, self.pane.detailed
        listed = self._listed()
        self.bar.refresh()
        self._show_empty(listed)
        self._show_notice(len(listed))
        self.pane.draw_detail()
        self.query_one(TimeLine).show(view, self.bar.selected, self.palette)

    def _listed(self) -> Sequence[Shown]:
        """What is to be listed; the list is drawn anew only if that is something else than before."""
        results = self.skws.view.results
        selected = None if self.bar.selected is None else query_of(self.bar.selected)
        best = self._best_first
        now = self.skws.view.event_time if best else None  # scores fade
        asked = (results.version, selected, self.words, self.network, now)
        if asked != self._asked:
            self._asked = asked
            listed = results.listed(selected, self.words, self.network, best=best)
            self.results.show(listed, best=best)
        return self.results.listed

    @property
    def _best_first(self) -> bool:
        """True if the query that is looked at has scores, unless the newest are wanted first."""
        selected = self.bar.selected
        return selected is not None and read_asked(selected).scored and not self._newest_first

    def look_at_network(self, query: str, network: str) -> None:
        """Only the results of one network, until Escape."""
        self.network = network
        self.bar.choose(query)
        self.results.focus()

    def on_asking_asked(self, message: Asking.Asked) -> None:
        if not message.text:
            self.results.focus()
            return
        selected = self.bar.selected if message.replace else None
        in_background(self, partial(self._ask, message.text, selected), "asked", latest=False)

    async def _ask(self, text: str, instead_of: str | None) -> None:
        """The text stays in the box until it stands; what was typed meanwhile stays, too."""
        if await self.skws.add_query(text, instead_of):
            self._wanted = text if instead_of else ""
            self.hint.done(0)
            self.box.recall(self.skws.session.history)
            if self.box.value.strip() == text:
                self.box.value = ""

    def on_asking_save(self, message: Asking.Save) -> None:
        text = message.text or self.bar.selected or ""
        if text:
            kept = self.skws.session.toggle_saved(text)
            self.notify(f"{visible(text)}: {'saved' if kept else 'no longer saved'}", markup=False)

    def on_query_box_leave(self) -> None:
        self.results.focus()

    def on_standing_bar_selected(self) -> None:
        self.results.action_follow()
        self.refresh_view()

    def on_result_list_selected(self) -> None:
        self.hint.done(1)
        self.pane.draw_detail()
        self._show_notice(len(self.results.listed))

    def on_result_list_opened(self) -> None:
        self.pane.detail(shown=True)

    def on_filter_box_narrowed(self) -> None:
        self.refresh_view()

    def on_filter_box_done(self) -> None:
        self.results.focus()

    def on_resize(self, event: events.Resize) -> None:
        self.pane.set_class(event.size.width < _WIDE, "below")

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def action_detail(self) -> None:
        self.pane.detail(shown=not self.pane.detailed)

    def action_back(self) -> None:
        """Out of what is narrowest: the filter, a network, the detail; then to the keywords."""
        if self.query_one(FilterBox).clear_words():
            self.results.focus()
        elif self.network is not None:
            self.network = None
        elif self.pane.detailed:
            self.pane.detail(shown=False)
        else:
            self.box.focus()
        self.refresh_view()

    def action_ask(self) -> None:
        self.box.focus()

    def action_query(self, step: int) -> None:
        self.bar.step(step)

    def action_copy(self) -> None:
        shown = self.results.selected
        if shown is not None:
            self.app.copy_to_clipboard(plain_text(self.results.drawer.lines(shown)))
            self.notify("result copied")

    def action_copy_json(self) -> None:
        shown = self.results.selected
        if shown is not None:
            self.app.copy_to_clipboard(shown.result.to_json().decode())
            self.notify("result copied as JSON")

    def action_remove_query(self) -> None:
        if self.bar.selected is None and len(self.skws.view.queries) != 1:
            self.notify("choose a query first, with [ and ]")
            return
        self.skws.remove_query(self.bar.selected or self.skws.view.queries[0])

    def action_keep_ended(self) -> None:
        results = self.skws.view.results
        results.keep_ended = not results.keep_ended
        self.notify("ended results stay" if results.keep_ended else "ended results go")

    def action_order(self) -> None:
        """Of a query with scores."""
        if self.bar.selected is None or not read_asked(self.bar.selected).scored:
            self.notify("only results with a score have another order: rank: KEYWORDS, or top 5: KEYWORDS")
            return
        self._newest_first = not self._newest_first
        self.notify("newest first" if self._newest_first else "best first")
        self.refresh_view()

    def action_next_hint(self) -> None:
        self.hint.done(self.hint.at)

    def action_pick(self) -> None:
        session = self.skws.session
        self.app.push_screen(PickScreen(session.saved, list(reversed(session.history))), self._picked)

    def action_export(self) -> None:
        results = [shown.result for shown in self.results.listed]
        asked = f"Export {counted(len(results), 'result')} to (.jsonl, .csv, .parquet):"
        self.app.push_screen(PromptScreen(asked, "results.jsonl"), partial(self._export, results))

    def _picked(self, text: str | None) -> None:
        if text:
            self.query_one(Asking).write(text)

    def _export(self, results: Sequence[LiveResult], path: str | None) -> None:
        """Those that were listed when the prompt told how many."""
        if path:
            self.skws.export(results, path)

    def _show_empty(self, listed: Sequence[Shown]) -> None:
        filtered = bool(self.words or self.network)
        view, run = self.skws.view, self.skws.live_run
        why = None if listed else why_empty(view, self.bar.selected, filtered=filtered, source=run)
        self.pane.explain(why)

    def _show_notice(self, listed: int) -> None:
        filtered = listed if self.words else None
        self.query_one(Notice).say(
            notice(self.skws.view, self.results.unseen, network=self.network, filtered=filtered)
        )
