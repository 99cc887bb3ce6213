"""The start, while there is no query: words to try, earlier queries, the relations with their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from skws.sinks.text import padded, visible
from skws_schema.errors import quantity
from skws_tui.services.result_drawing import Palette
from skws_tui.services.start import RelationSummary, StartContents

_EARLIER: Final = 3
_NAMED: Final = 56
"""The maximum length of the list of attributes in the line of a relation."""
_INTRODUCTION: Final = "Type words to search for: results are joined rows that together contain all of them."


class StartMenu(OptionList):
    """Hidden until it is needed. Its keys 1 to 3 enter the words to try."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "choose"),
        Binding("1", "try(0)", "try", key_display="1-3"),
        Binding("2", "try(1)", "Try", show=False),
        Binding("3", "try(2)", "Try", show=False),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]
    DEFAULT_CSS = """
    StartMenu {
        height: 1fr; border: none; padding: 0 1; display: none;
        background: $background; scrollbar-size-vertical: 1;
    }
    StartMenu:focus { border: none; background-tint: $background 0%; }
    """

    class Asked(Message):
        """A query was chosen."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def __init__(self, palette: Palette) -> None:
        super().__init__(compact=True)
        self.palette = palette
        self._contents = StartContents()
        self._drawn_state: object = None
        self._queries: list[str | None] = []

    def fill(self, start: StartContents, history: Sequence[str]) -> None:
        """Show a start and the latest queries of ``history``, latest last."""
        recent_queries = list(reversed(history))[:_EARLIER]
        state = (start, recent_queries, self.palette)
        if state == self._drawn_state:
            return
        self._drawn_state, self._contents = state, start
        index = self.highlighted
        lines = list(self._entries(start, recent_queries))
        self._queries = [query for _, query, _ in lines]
        self.set_options([Option(line, disabled=not selectable) for line, _, selectable in lines])
        if index is not None and index < len(lines) and lines[index][2]:
            self.highlighted = index
        elif self.has_focus:
            self.action_first()  # the contents may arrive after the focus

    def on_focus(self) -> None:
        if self.highlighted is None:
            self.action_first()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        query = self._queries[event.option_index]
        if query is not None:
            self.post_message(self.Asked(query))

    def action_try(self, number: int) -> None:
        if number < len(self._contents.trials):
            self.post_message(self.Asked(self._contents.trials[number].text))

    def _entries(
        self, start: StartContents, recent_queries: Sequence[str]
    ) -> Iterator[tuple[Text, str | None, bool]]:
        """Each line, its query, and True if it can be chosen."""
        dim = self.palette.dim
        yield Text(_INTRODUCTION), None, False
        if start.trials:
            yield Text("\nTry  (Tab, then 1, 2 or 3)", dim), None, False
        for number, trial in enumerate(start.trials, start=1):
            line = Text.assemble((f"  {number}  ", self.palette.accent), visible(trial.text))
            yield line.append(f"   {visible(', '.join(trial.relations))}", dim), trial.text, True
        if recent_queries:
            yield Text("\nAsked before", dim), None, False
        for query in recent_queries:
            yield Text(f"     {visible(query)}"), query, True
        if start.relations:
            yield Text(f"\n{_heading(start.relations)}", dim), None, False
        longest = max((cell_len(visible(relation.name)) for relation in start.relations), default=0)
        most = max((len(f"{relation.rows:,}") for relation in start.relations), default=0)
        for relation in start.relations:
            line = Text(f"  {padded(visible(relation.name), longest)}  {relation.rows:>{most},}")
            yield line.append(f"  {visible(_search_text(relation))}", dim), None, False


def _heading(relations: Sequence[RelationSummary]) -> str:
    rows = quantity(sum(relation.rows for relation in relations), "row")
    return f"{quantity(len(relations), 'relation')} with {rows}, and the columns that are searched"


def _search_text(relation: RelationSummary) -> str:
    """The searched attributes of a relation, as many as fit in a line."""
    names = list(relation.search)
    while len(", ".join(names)) > _NAMED and len(names) > 1:
        names.pop()
    hidden = len(relation.search) - len(names)
    return ", ".join(names) + (f" and {hidden} more" if hidden else "")
