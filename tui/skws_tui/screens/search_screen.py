"""The home screen: keywords in, live results out."""

from __future__ import annotations

import re
from asyncio import sleep
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from rich.cells import cell_len
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.worker import Worker

from skws.data.value_conversion import MalformedError, timestamp
from skws.jobs.metrics import Metrics
from skws.sinks.text import visible
from skws_schema.errors import SkwsError, UsageError, quantity
from skws_tui.error_boundary import OffThread, ViewChanged
from skws_tui.screens.dialogs import PickScreen, PromptScreen
from skws_tui.screens.live_screen import FilteredScreen
from skws_tui.services.result_buffer import ListOrder, ListSelection, relations_of
from skws_tui.services.result_drawing import Drawer, TableColumns, day_or_time, plain_text
from skws_tui.services.start import StartContents
from skws_tui.services.typed import text_of
from skws_tui.widgets.query_bar import QueryBar, WindowDrawing
from skws_tui.widgets.result_pane import WIDE, ResultList, ResultPane, why_empty
from skws_tui.widgets.search_box import FilterBox, SearchBox, SearchLine
from skws_tui.widgets.start_menu import StartMenu
from skws_tui.widgets.time_line import TimeLine

if TYPE_CHECKING:  # they load after the first picture
    from skws_tui.services.live_job import LiveJob
    from skws_tui.services.live_rows import LiveRows

_EXPLAINED: Final = 3
"""The maximum number of queries for which an empty list shows reasons."""
_SHARE: Final = 4
"""The time before reasons are searched again, as a multiple of the time that they took."""
_ALL: Final = "all of them"
_SHORT: Final = 20
"""The height in rows below which the selected result is only shown on request."""
_YEAR_OR_MONTH: Final = re.compile(r"\d{4}(-\d{2})?")


def _first_day(text: str) -> str:
    """The first day of a year or a month; any other text unchanged."""
    return text + "-01-01"[len(text) - 4 :] if _YEAR_OR_MONTH.fullmatch(text) else text


class SearchScreen(FilteredScreen):
    """``selection``: the contents of the list, except for the filter's words, selected query and order."""

    BINDINGS: ClassVar[list[BindingType]] = [
        FilterBox.SLASH,
        Binding("a,i", "ask", "add", tooltip="Add a query", id="ask"),
        Binding(
            "x,delete",
            "remove_query",
            "remove",
            tooltip="Remove the query of the result",
            id="remove-query",
        ),
        Binding("u", "undo_remove", "undo", tooltip="Add the removed query again", id="undo-remove"),
        Binding("o", "order", "sort", tooltip="Sort: newest, oldest, smallest, best", id="order"),
        Binding("space", "app.pause", "pause", tooltip="Pause or resume the stream", id="pause"),
        Binding("left", "seek(-1)", "seek", key_display="←→", tooltip="Move a replay back", id="seek-back"),
        Binding("right", "seek(1)", "Move a replay forward", show=False, id="seek-on"),
        Binding("comma", "step('previous')", "Step a replay back", show=False, id="step-back"),
        Binding("full_stop", "step('next')", "step", tooltip="Step a replay forward", id="step-on"),
        Binding("at", "go_to", "Go to a time of a replay", show=False, id="go-to"),
        Binding("t", "trees", "trees", tooltip="List whole trees, or lines", id="trees"),
        Binding("e", "ended", "ended", tooltip="Hide ended results, or list them", id="keep-ended"),
        Binding(
            "r",
            "relation",
            "relation",
            tooltip="List results of a relation",
            id="filter-relation",
        ),
        Binding("y", "copy", "copy", tooltip="Copy the result as text", id="copy"),
        Binding("Y", "copy_json", "Copy the result as JSON", show=False, id="copy-json"),
        Binding(
            "left_square_bracket",
            "query(-1)",
            "The query to the left",
            show=False,
            id="previous-query",
        ),
        Binding("right_square_bracket", "query(1)", "The query to the right", show=False, id="next-query"),
        Binding("v", "joined", "joined", tooltip="Rows with its join values", id="joined-rows"),
        Binding("w", "queries", "queries", tooltip="List all queries", id="queries"),
        Binding("ctrl+r", "pick", "Pick a saved or earlier query", show=False, id="history"),
        Binding("ctrl+o", "export", "Export what is listed", show=False, id="export"),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selection = ListSelection()
        self._sort: ListOrder | None = None  # None: the order of the query
        self._drawn_theme = ""
        self._list_state: tuple[object, ...] | None = None  # the inputs of the list
        self._awaited_query = ""  # the query to select once it is answered
        self._refusal = ""  # of the last query that was refused
        self._reasons: dict[str, list[str]] = {}  # why the queries of an empty list have no results
        self._reason_inputs: tuple[object, ...] = ()  # the inputs of the reasons
        self._reasons_worker: Worker[None] | None = None
        self._off_thread = OffThread()
        self._start = StartContents()
        self._start_thread = OffThread()
        self._start_inputs: tuple[object, ...] = ()  # the schema and the rows of the start
        self._start_state: tuple[object, ...] = ()  # the inputs of the start
        self._start_worker: Worker[None] | None = None
        self._removed_queries: list[str] = []  # queries that can be added again, the latest last

    def compose_body(self) -> ComposeResult:
        yield SearchBox(self.skws.view, self.skws.job, self.palette)
        yield QueryBar(self.skws.view, self.palette)
        yield FilterBox("results")
        yield ResultPane(Drawer(self.skws.view, self.palette))
        yield WindowDrawing()
        yield TimeLine(self.skws.job, self.palette)

    def on_mount(self) -> None:
        super().on_mount()
        self.box.remember(self.skws.session.history)
        self.box.focus()
        self._awaited_query = self.skws.session.selected
        self.results.trees = self.skws.session.trees

    @property
    def box(self) -> SearchLine:
        return self.query_one(SearchLine)

    @property
    def pane(self) -> ResultPane:
        return self.query_one(ResultPane)

    @property
    def results(self) -> ResultList:
        return self.pane.results

    @property
    def listing(self) -> Widget:
        return self.pane.listing

    @property
    def bar(self) -> QueryBar:
        return self.query_one(QueryBar)

    @property
    def time_line(self) -> TimeLine:
        return self.query_one(TimeLine)

    def refresh_view(self) -> None:
        view, session = self.skws.view, self.skws.session
        if self._drawn_theme != self.app.theme or self.results.drawer.schema is not view.schema:
            self._drawn_theme = self.app.theme
            self.results.redraw(Drawer(view, self.palette))
            self.query_one(SearchBox).palette = self.bar.palette = self.time_line.palette = self.palette
            self.query_one(SearchBox).draw()
        if self._awaited_query and self._awaited_query in view.queries:
            selected_query, self._awaited_query = self._awaited_query, ""
            self.bar.select(selected_query)
        elif (
            self.bar.selected is not None
            and self.bar.selected not in view.queries
            and not self._awaited_query
        ):
            self.bar.select(None)
        session.selected, session.trees = self.bar.selected or self._awaited_query, self.results.trees
        self._show_list()
        self.pane.draw_detail()
        self.query_one(WindowDrawing).show(view, self.bar.selected, self.palette)
        self.time_line.query_name = self._query_selection().query
        self.time_line.position = self.skws.position
        self.time_line.display = not self.time_line.timeless
        self.time_line.refresh()

    def _show_list(self) -> None:
        """Update the list if it has changed."""
        view, bar, selection, scored = self.skws.view, self.bar, self._query_selection(), self._has_scores
        width = self.results.row_width
        several = bar.selected is None and len(view.queries) > 1
        longest = max((cell_len(text_of(name)) for name in view.queries), default=0) if several else 0
        columns = TableColumns(width, query=max(min(longest, width // 5), 0), score=scored)
        now = view.event_time if scored else None  # scores fade
        state = (view.results.version, selection, columns, self.results.trees, now)
        if state != self._list_state:
            self._list_state = state
            rows = view.results.rows(selection)
            badge = max((len(row.ending or "") for row in rows), default=0)
            timed = any(row.result.start is not None for row in rows)
            columns = replace(columns, badge=badge, time=timed)
            self.results.show(rows, columns, newest_first=selection.sort is ListOrder.NEWEST)
            self.pane.name_columns(columns)
        bar.counts, bar.sort = view.results.counts(live=selection.live), selection.sort
        bar.refresh()
        self._show_start()
        if not self.pane.start.display:
            self._explain_empty(selection)
        self.pane.note(self._notices(selection))
        best = view.best.get(self._current_query() or "")
        self.pane.hint(best.notes if best is not None and self.results.listed else ())

    def _show_start(self) -> None:
        """Show the start while there is no query; its contents follow later."""
        view, job = self.skws.view, self.skws.job
        is_shown = job is not None and view.metrics is not None and not view.queries and not view.failure
        if is_shown:
            start = self.pane.start
            start.palette = self.palette
            start.fill(self._start, self.skws.session.history)
        self.pane.show_start(shown=is_shown)
        state = (view.schema, job and job.rows, view.metrics and view.metrics.tuples)
        if job is None or view.metrics is None or not is_shown or state == self._start_state:
            return
        if self._start_worker is None or self._start_worker.is_finished:
            self._start_state = state
            self._start_worker = self._find_start(job, view.metrics)

    @work(group="start")
    async def _find_start(self, job: LiveJob, metrics: Metrics) -> None:
        """Examine the rows, then rest, since the engine needs the time."""
        began = monotonic()
        try:
            contents = await self._start_thread.run(partial(job.start_of, metrics))
        except SkwsError:
            return  # it took too long; there may be fewer rows next time
        # Offered words stay in their places while the user looks at them.
        stay = self._start.complete and self._start_state[:2] == self._start_inputs
        self._start_inputs = self._start_state[:2]
        self._start = replace(contents, trials=self._start.trials, complete=True) if stay else contents
        self._show_start()
        await sleep(_SHARE * (monotonic() - began))
        self.post_message(ViewChanged())

    def _explain_empty(self, selection: ListSelection) -> None:
        """Explain an empty list; reasons that take a while to find follow later."""
        if self.results.listed:
            self.pane.explain(None)
            return
        view, selected, job = self.skws.view, self.bar.selected, self.skws.job
        names = view.queries[:_EXPLAINED] if selected is None else (selected,)
        reasons = [
            f"{name}: {line}" if len(names) > 1 else line
            for name in names
            for line in self._reasons.get(name, ())
        ]
        self.pane.explain(why_empty(view, selected, selection, reasons, job))
        question = (names, view.schema, view.metrics and view.metrics.tuples)
        if job is None or job.rows is None or not names or question == self._reason_inputs:
            return
        if self._reasons_worker is None or self._reasons_worker.is_finished:
            self._reason_inputs = question
            self._reasons_worker = self._find_reasons(names, job.rows)

    @work(group="reasons")
    async def _find_reasons(self, names: Sequence[str], rows: LiveRows) -> None:
        """Find why queries have no results among the live rows, then rest: the engine needs the time."""
        began, analyzer = monotonic(), self.skws.view.analyzer
        for name in names:
            try:
                lines = await self._off_thread.run(partial(analyzer.why_nothing, name, rows))
            except SkwsError:
                lines = []
            self._reasons[name] = lines
        self._reasons = {name: self._reasons[name] for name in names}
        self._explain_empty(self._query_selection())
        await sleep(_SHARE * (monotonic() - began))
        self.post_message(ViewChanged())  # for changes that came meanwhile

    def _query_selection(self) -> ListSelection:
        """The selection with the query, the words and the order."""
        sort = self._sort or (ListOrder.BEST if self._has_scores else ListOrder.NEWEST)
        return replace(self.selection, query=self.bar.selected, words=self.filter_box.words, sort=sort)

    @property
    def _has_scores(self) -> bool:
        """True if the listed results have scores."""
        queries = self.skws.view.queries if self.bar.selected is None else (self.bar.selected,)
        return bool(queries) and all(map(self.skws.view.scored, queries))

    def _notices(self, selection: ListSelection) -> list[str]:
        """Notes on results that the list leaves out."""
        view, results = self.skws.view, self.skws.view.results
        notices = list(filter(None, [self._follow_note(selection)]))
        if self.results.unseen:
            notices.append(f"▲ {self.results.unseen:,} new: g")
        best = view.best.get(self._current_query() or "")
        if best is not None and best.part:
            notices.append(f"{best.part}; all: WORDS lists all")
        if selection.network:
            notices.append(f"network {selection.network}")
        if selection.relation:
            notices.append(f"found in {selection.relation}")
        if selection.filtered:
            notices.append(f"filtered to {len(self.results.listed):,}: esc clears")
        if selection.live:
            notices.append("live ones: e lists all")
        if results.dropped:
            notices.append(f"{results.dropped:,} older results dropped: the list holds {results.capacity:,}")
        if view.skipped:
            notices.append(f"{view.skipped:,} not shown: too many arrived at once")
        return notices

    def _follow_note(self, selection: ListSelection) -> str:
        """A note whether the list follows new results; empty if none arrive, or in another order."""
        view, job = self.skws.view, self.skws.job
        if job is None or view.metrics is None or view.metrics.state == "ended":
            return "PAUSED" if self.results.unseen else ""
        if job.control.status().paused:
            return "PAUSED: space continues"
        if not self.results.listed or selection.sort is not ListOrder.NEWEST:
            return ""
        return "FOLLOW" if self.results.following else "PAUSED"

    def write_query(self, text: str) -> None:
        """Put a text into the query box."""
        self.box.write(text)
        self.box.focus()

    def look_at_network(self, query: str, network: str) -> None:
        """Show only the results of one network, until Escape."""
        self.selection = replace(self.selection, network=network)
        self.bar.select(query)
        self.results.focus()

    def on_search_line_entered(self, message: SearchLine.Entered) -> None:
        if not message.name:
            self.listing.focus()
            return
        self._add(message.name, self._current_query() if message.replace else None)

    @work(group="add")
    async def _add(self, name: str, instead_of: str | None) -> None:
        """Add a query; its text stays in the box until it is accepted, unless the user has changed it."""
        refusal = await self.skws.add_query(name, instead_of)
        unchanged = self.box.value.strip() == name
        if refusal:
            is_displayed = unchanged and self.query_one(SearchBox).refuse(refusal)
            self._refusal = refusal
            self.skws.tell("error", refusal, shown=not is_displayed)
            return
        self._awaited_query = name
        self.box.remember(self.skws.session.history)
        if unchanged:
            self.box.value = ""
        self.refresh_view()  # if it exists already, nothing else draws it as selected

    def on_search_line_save(self, message: SearchLine.Save) -> None:
        name = message.name or self.bar.selected or ""
        if name:
            is_saved = self.skws.session.toggle_saved(name)
            self.notify(f"{visible(name)}: {'saved' if is_saved else 'no longer saved'}", markup=False)

    def on_search_box_corrected(self) -> None:
        self.skws.withdraw(self._refusal)

    def on_search_line_leave(self) -> None:
        self.skws.withdraw(self._refusal)
        if self.pane.whole:
            self.pane.take_focus()
        else:
            self.listing.focus()

    def on_start_menu_asked(self, message: StartMenu.Asked) -> None:
        self._add(message.text, None)

    def on_query_bar_selected(self) -> None:
        self.results.action_follow()
        self.refresh_view()

    def on_query_bar_list_clicked(self) -> None:
        self.action_queries()

    def on_query_bar_sort_clicked(self) -> None:
        self.action_order()

    def on_result_list_selected(self) -> None:
        """The user has moved: results that have ended since may now leave the list."""
        self.skws.view.results.settle()
        self._show_list()
        self.pane.draw_detail()

    def on_result_list_resized(self) -> None:
        self._show_list()

    def on_result_list_opened(self) -> None:
        self.pane.show_whole(whole=True)

    def on_result_detail_closed(self) -> None:
        self.pane.show_whole(whole=False)

    def on_resize(self, event: events.Resize) -> None:
        self.pane.set_class(event.size.width < WIDE, "below")
        self.pane.set_class(event.size.height < _SHORT, "short")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Enable undo once a query was removed, and moves in time for a replay."""
        if action == "undo_remove":
            return bool(self._removed_queries)
        if action in {"seek", "step", "go_to"}:
            return self.skws.job is not None and self.skws.job.control.times is not None
        return True

    def action_back(self) -> None:
        """Close the enlarged result; otherwise clear the filter, then the network and the relation."""
        if self.pane.whole:
            self.pane.show_whole(whole=False)
            return
        if not self.filter_box.close():
            self.selection = replace(self.selection, network=None, relation=None)
        self.listing.focus()
        self.refresh_view()

    def action_ask(self) -> None:
        self.box.focus()

    def action_query(self, step: int) -> None:
        self.bar.move(step)

    def action_queries(self) -> None:
        """Choose a query from the list of all."""
        counts = self.bar.counts
        choices = [(_ALL, quantity(sum(counts.values()), "result"))]
        choices += [(name, quantity(counts.get(name, 0), "result")) for name in self.skws.view.queries]
        self.app.push_screen(PickScreen("Queries", choices), self._select_query)

    def _select_query(self, name: str | None) -> None:
        if name is not None:
            self.bar.select(None if name == _ALL else name)

    def action_joined(self) -> None:
        """Go from the selected result to all rows with one of its join values."""
        from skws_tui.services.browsing import joined_places  # noqa: PLC0415 - loads after the first picture

        row, schema = self.results.selected, self.skws.view.schema
        if row is not None:
            places = [
                joined_places(schema, result_tuple.relation, result_tuple.row)
                for result_tuple in row.result.tuples
            ]
            self.skws.pick_rows(list(dict.fromkeys(chain.from_iterable(places))))

    def action_copy(self) -> None:
        row = self.results.selected
        if row is not None:
            self.app.copy_to_clipboard(plain_text(self.results.drawer.tree(row)))
            self.notify("result copied")

    def action_copy_json(self) -> None:
        row = self.results.selected
        if row is not None:
            self.app.copy_to_clipboard(row.result.to_json().decode())
            self.notify("result copied as JSON")

    def action_remove_query(self) -> None:
        name = self._current_query() or self._result_query()
        if name is None or not self.skws.remove_query(name):
            return
        self._removed_queries.append(name)
        self.refresh_bindings()
        self.notify(f"{visible(name)}: removed, u undoes it", markup=False)

    def _current_query(self) -> str | None:
        """The selected query, or the only one."""
        queries = self.skws.view.queries
        return self.bar.selected or (queries[0] if len(queries) == 1 else None)

    def _result_query(self) -> str | None:
        """The query of the selected result."""
        row = self.results.selected
        return None if row is None else row.query

    def action_undo_remove(self) -> None:
        """Add the last removed query again."""
        self._add(self._removed_queries.pop(), None)
        self.refresh_bindings()

    def action_ended(self) -> None:
        """List ended results, or only live ones."""
        self.selection = replace(self.selection, live=not self.selection.live)
        self.skws.view.results.settle()
        self.refresh_view()

    def action_trees(self) -> None:
        self.results.trees = not self.results.trees
        self.refresh_view()

    def action_order(self) -> None:
        """Use the next order; only results with scores can be listed best first."""
        orders = [order for order in ListOrder if order is not ListOrder.BEST or self._has_scores]
        now = self._query_selection().sort
        self._sort = orders[(orders.index(now) + 1 if now in orders else 0) % len(orders)]
        self.results.action_follow()
        self.refresh_view()

    def action_relation(self) -> None:
        """Choose a relation: only results with keywords in it are listed."""
        rows = self.skws.view.results.rows(replace(self._query_selection(), relation=None))
        counts = Counter(name for row in rows for name in relations_of(row.result))
        choices = [(name, quantity(number, "result")) for name, number in counts.most_common()]
        self.app.push_screen(
            PickScreen("Results whose keywords were found in", choices), self._select_relation
        )

    def on_time_line_sought(self, message: TimeLine.Sought) -> None:
        self.skws.seek(message.instant)

    def action_seek(self, columns: int) -> None:
        """Move by some columns of the time line."""
        now, span = self.skws.position, self.time_line.span
        if now is not None and span is not None:
            self.skws.seek(min(max(now + columns * self.time_line.step, span[0]), span[1]))

    def action_step(self, to: Literal["next", "previous"]) -> None:
        """Pause at the next or previous instant that has records."""
        self.skws.seek(to)

    def action_go_to(self) -> None:
        now = self.skws.view.event_time
        question = "Go to the day or time, such as 1994-10-14 or 2024-05-01 12:30:00:"
        self.app.push_screen(PromptScreen(question, day_or_time(now or 0), self._go_to))

    def _go_to(self, text: str) -> None:
        """Move to a time. Raises UsageError."""
        try:
            instant = int(timestamp(_first_day(text)))
        except MalformedError:
            raise UsageError(f"{text}: expected a day or time, such as 1994-10-14 12:30:00") from None
        self.skws.seek(instant)

    def action_pick(self) -> None:
        session = self.skws.session
        choices = [(text, "saved") for text in session.saved]
        choices += [(text, "") for text in reversed(session.history) if text not in session.saved]
        self.app.push_screen(PickScreen("Saved and earlier queries", choices), self._pick)

    def action_export(self) -> None:
        results = [result for row in self.results.listed for result in row.alike]
        question = f"Export {quantity(len(results), 'result')} to (.jsonl, .csv, .parquet):"
        self.app.push_screen(PromptScreen(question, "results.jsonl", partial(self.skws.export, results)))

    def _pick(self, name: str | None) -> None:
        if name:
            self.write_query(name)

    def _select_relation(self, name: str | None) -> None:
        if name:
            self.selection = replace(self.selection, relation=name)
            self.refresh_view()
