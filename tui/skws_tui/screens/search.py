"""The home screen: keywords in, live results out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from skws.results.model import LiveResult
from skws.sinks.text import visible
from skws_schema.plural import counted
from skws_tui.screens.dialogs import PickScreen, PromptScreen
from skws_tui.screens.live import FilteredScreen
from skws_tui.services.drawing import Drawer, plain_text
from skws_tui.services.results import ListedResult
from skws_tui.services.typed import parse_typed, text_of
from skws_tui.widgets.lines import FilterBox, Hint, Notice
from skws_tui.widgets.query_bar import QueryBar
from skws_tui.widgets.query_panel import QueryBox, QueryPanel
from skws_tui.widgets.result_list import ResultList
from skws_tui.widgets.result_pane import ResultPane, WindowLines, why_empty

_WIDE = 110


class SearchScreen(FilteredScreen):
    """``network``: the one whose results are shown, None for all."""

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
        self._list_state: tuple[object, ...] | None = None  # the inputs of the list
        self._newest_first = False
        self._wanted = ""  # the query to select once it stands

    def compose_body(self) -> ComposeResult:
        yield QueryPanel(self.skws.view, self.skws.job, self.palette)
        yield QueryBar(self.skws.view)
        yield Hint()
        yield FilterBox("results")
        yield Notice(self.skws.view)
        yield ResultPane(Drawer(self.skws.view, self.palette))
        yield WindowLines()

    def on_mount(self) -> None:
        super().on_mount()
        self.box.remember(self.skws.session.history)
        self.box.focus()
        self._wanted = self.skws.session.selected
        if self.skws.session.detail:
            self.pane.show_detail(shown=True)
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
    def listing(self) -> Widget:
        return self.results

    @property
    def bar(self) -> QueryBar:
        return self.query_one(QueryBar)

    @property
    def hint(self) -> Hint:
        return self.query_one(Hint)

    def refresh_view(self) -> None:
        view = self.skws.view
        if self._drawn_theme != self.app.theme or self.results.drawer.schema is not view.schema:
            self._drawn_theme = self.app.theme
            self.results.redraw(Drawer(view, self.palette))
            self.query_one(QueryPanel).palette = self.palette
        if self._wanted and self._wanted in view.queries:
            selected, self._wanted = self._wanted, ""
            self.bar.select(selected)
        elif self.bar.selected is not None and self.bar.selected not in view.queries and not self._wanted:
            self.bar.select(None)
        session = self.skws.session
        session.selected, session.detail = self.bar.selected or self._wanted, self.pane.detailed
        listed = self._listed()
        self.bar.refresh()
        self._show_empty(listed)
        self._show_notice(len(listed))
        self.pane.draw_detail()
        self.query_one(WindowLines).show(view, self.bar.selected, self.palette)

    def _listed(self) -> Sequence[ListedResult]:
        """The list, brought up to date only if it has changed."""
        results, words = self.skws.view.results, self.filter_box.words
        selected = None if self.bar.selected is None else text_of(self.bar.selected)
        best = self._best_first
        now = self.skws.view.event_time if best else None  # scores fade
        state = (results.version, selected, words, self.network, now)
        if state != self._list_state:
            self._list_state = state
            self.results.show(results.listed(selected, words, self.network, best=best), best=best)
        return self.results.listed

    @property
    def _best_first(self) -> bool:
        """True if the selected query has scores, unless the user wants the newest first."""
        selected = self.bar.selected
        return selected is not None and parse_typed(selected).scored and not self._newest_first

    def look_at_network(self, query: str, network: str) -> None:
        """Show only the results of one network, until Escape."""
        self.network = network
        self.bar.select(query)
        self.results.focus()

    def on_query_box_entered(self, message: QueryBox.Entered) -> None:
        if not message.name:
            self.results.focus()
            return
        selected = self.bar.selected if message.replace else None
        self._add(message.name, selected)

    @work(group="add")
    async def _add(self, name: str, instead_of: str | None) -> None:
        """The text stays in the box until the query is accepted, unless the user has changed it."""
        if await self.skws.add_query(name, instead_of):
            self._wanted = name if instead_of else ""
            self.hint.done(0)
            self.box.remember(self.skws.session.history)
            if self.box.value.strip() == name:
                self.box.value = ""

    def on_query_box_save(self, message: QueryBox.Save) -> None:
        name = message.name or self.bar.selected or ""
        if name:
            saved = self.skws.session.toggle_saved(name)
            self.notify(f"{visible(name)}: {'saved' if saved else 'no longer saved'}", markup=False)

    def on_query_box_leave(self) -> None:
        self.results.focus()

    def on_query_bar_selected(self) -> None:
        self.results.action_follow()
        self.refresh_view()

    def on_result_list_selected(self) -> None:
        self.hint.done(1)
        self.pane.draw_detail()
        self._show_notice(len(self.results.listed))

    def on_result_list_opened(self) -> None:
        self.pane.show_detail(shown=True)

    def on_resize(self, event: events.Resize) -> None:
        self.pane.set_class(event.size.width < _WIDE, "below")

    def action_detail(self) -> None:
        self.pane.show_detail(shown=not self.pane.detailed)

    def action_back(self) -> None:
        """Leave the filter, the network, the detail, in this order; then go to the keywords."""
        if self.filter_box.close():
            self.results.focus()
        elif self.network is not None:
            self.network = None
        elif self.pane.detailed:
            self.pane.show_detail(shown=False)
        else:
            self.box.focus()
        self.refresh_view()

    def action_ask(self) -> None:
        self.box.focus()

    def action_query(self, step: int) -> None:
        self.bar.action_select(step)

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
        """Switch between best first and newest first, for a query with scores."""
        if self.bar.selected is None or not parse_typed(self.bar.selected).scored:
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
        question = f"Export {counted(len(results), 'result')} to (.jsonl, .csv, .parquet):"
        self.app.push_screen(PromptScreen(question, "results.jsonl"), partial(self._export, results))

    def _picked(self, name: str | None) -> None:
        if name:
            self.box.write(name)
            self.box.focus()

    def _export(self, results: Sequence[LiveResult], path: str | None) -> None:
        """Export the results that the prompt has counted."""
        if path:
            self.skws.export(results, path)

    def _show_empty(self, listed: Sequence[ListedResult]) -> None:
        filtered, has_source = bool(self.filter_box.words or self.network), self.skws.job is not None
        selected = self.bar.selected
        self.pane.explain(
            None if listed else why_empty(self.skws.view, selected, filtered=filtered, has_source=has_source)
        )

    def _show_notice(self, listed: int) -> None:
        filtered = listed if self.filter_box.words else None
        self.query_one(Notice).show(self.results.unseen, self.network, filtered)
