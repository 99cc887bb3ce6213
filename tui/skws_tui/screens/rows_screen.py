"""A browser of the live rows, from a relation or a join value to the next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Static
from textual.worker import Worker

from skws.sinks.text import shortened, value_text, visible
from skws_schema.errors import SkwsError, quantity
from skws_tui.error_boundary import OffThread, WorkFailed
from skws_tui.screens.live_screen import FilteredScreen
from skws_tui.services.browsing import Page, RowPlace, joined_places, page_of
from skws_tui.widgets.search_box import FilterBox

if TYPE_CHECKING:
    from skws_tui.services.live_rows import LiveRows

_WIDTH = 40
"""The width of a value, in cells."""


class RowsScreen(FilteredScreen):
    """Begins with the first relation; Escape returns through the visited places."""

    heading = "rows"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "relation(-1)", "Previous relation", show=False),
        Binding("right_square_bracket", "relation(1)", "relation"),
        FilterBox.SLASH,
        Binding("j", "cursor(1)", "Down", show=False),
        Binding("k", "cursor(-1)", "Up", show=False),
    ]
    CSS = """
    #place { padding: 0 1; height: auto; }
    DataTable { height: 1fr; background: $background; scrollbar-size: 1 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: list[RowPlace] = []  # the latest is last
        self._drawn_page: tuple[RowPlace, Page] | None = None
        self._question: tuple[object, ...] = ()
        self._off_thread = OffThread()
        self._worker: Worker[None] | None = None

    def compose_body(self) -> ComposeResult:
        yield Static(id="place", markup=False)
        yield FilterBox("rows")
        yield DataTable(cursor_type="row")

    def on_mount(self) -> None:
        super().on_mount()
        self.listing.focus()

    @property
    def listing(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    @property
    def place(self) -> RowPlace | None:
        """The current place; None in a schema without relations."""
        names = self._relations()
        self._places = [place for place in self._places if place.relation in names]
        if not self._places and names:
            self._places = [RowPlace(names[0])]
        return self._places[-1] if self._places else None

    def look_at(self, place: RowPlace) -> None:
        """Show the rows of a place."""
        self._places.append(place)
        self.filter_box.close()
        self.listing.focus()
        self.refresh_view()

    def refresh_view(self) -> None:
        """Read the rows again if others have arrived."""
        view, job, place = self.skws.view, self.skws.job, self.place
        if job is None or job.rows is None or place is None:
            self.query_one("#place", Static).update("There are no rows yet.")
            return
        words = self.filter_box.words
        question = (place, words, job.rows, view.schema, view.metrics and view.metrics.tuples)
        if question == self._question or not (self._worker is None or self._worker.is_finished):
            return
        self._question = question
        self._worker = self._look(job.rows, place, words)

    @work(group="rows")
    async def _look(self, rows: LiveRows, place: RowPlace, words: str) -> None:
        try:
            page = await self._off_thread.run(partial(page_of, rows, place, words))
        except SkwsError as error:
            self.skws.post_message(WorkFailed(str(error)))
            return
        self.call_later(self._show, place, page)

    def _show(self, place: RowPlace, page: Page) -> None:
        number = quantity(page.row_count, "row")
        first_note = (
            f", the first {len(page.rows):,} shown: / finds others" if len(page.rows) < page.row_count else ""
        )
        latest_note = f" (of the latest {page.latest:,})" if page.latest else ""
        self.query_one("#place", Static).update(f"{visible(place.text)}  {number}{latest_note}{first_note}")
        former_page, self._drawn_page = self._drawn_page, (place, page)
        table, cursor_row = self.listing, self.listing.cursor_row
        table.clear(columns=True)
        cells = [[self._cell(value) for value in row.values()] for row in page.rows]
        for column, attribute in enumerate(page.attributes):
            heading = Text(visible(attribute))
            # Columns without a width are measured later, and not at all if the table is filled again before.
            width = max(heading.cell_len, *(row[column].cell_len for row in cells), 0)
            table.add_column(heading, width=width)
        table.add_rows(cells)
        if former_page is not None and former_page[0] == place:
            table.move_cursor(row=cursor_row, animate=False)
        self._worker = None  # its work is done, even if it has not ended yet
        self.refresh_view()  # for a request that has come meanwhile

    def _cell(self, value: str | float | bool | None) -> Text:
        if value is None:
            return Text("NULL", self.palette.dim)
        return Text(shortened(visible(value_text(value)), (), _WIDTH)[0])

    @on(DataTable.RowSelected)
    def _lead_on(self, event: DataTable.RowSelected) -> None:
        """Choose among the joins of a row."""
        if self._drawn_page is None:
            return
        row_place, page = self._drawn_page
        row = page.rows[event.cursor_row]
        self.skws.pick_rows(joined_places(self.skws.view.schema, row_place.relation, row))

    def action_relation(self, step: int) -> None:
        names, place = self._relations(), self.place
        if place is not None:
            self._places = [RowPlace(names[(names.index(place.relation) + step) % len(names)])]
            self.refresh_view()

    def action_cursor(self, step: int) -> None:
        (self.listing.action_cursor_down if step > 0 else self.listing.action_cursor_up)()

    def action_back(self) -> None:
        """Clear the filter; then return to the previous place, and finally to the search."""
        if not self.filter_box.display and len(self._places) > 1:
            self._places.pop()
            self.refresh_view()
        else:
            super().action_back()

    def _relations(self) -> list[str]:
        schema = self.skws.view.schema
        removed_relations = schema.evolution.removed_relations
        return [
            relation.name
            for number, relation in enumerate(schema.relations)
            if number not in removed_relations
        ]
