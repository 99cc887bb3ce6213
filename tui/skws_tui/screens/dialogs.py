"""Dialogs over the screens: yes or no, a line of text, a choice; and the names of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from skws.sinks.text import visible, visible_lines
from skws_schema.errors import SkwsError
from skws_tui.widgets.search_box import LineInput

ACTIONS: Final = frozenset(
    {
        *("help", "go-search", "go-schema", "go-networks", "go-metrics", "go-log", "go-rows", "quit"),
        *("pause", "faster", "slower", "filter", "detail", "copy", "copy-json", "export", "history"),
        *("remove-query", "undo-remove", "previous-query", "next-query", "keep-ended", "order", "ask"),
        *(
            "queries",
            "joined-rows",
            "trees",
            "filter-relation",
            "next-result",
            "previous-result",
            "follow",
            "oldest-result",
        ),
        *("complete", "earlier-query", "later-query", "replace-query", "save-query", "did-you-mean"),
        *("save-schema", "apply-schema", "infer-schema", "add-join", "find", "undo"),
        *("seek-back", "seek-on", "step-back", "step-on", "go-to"),
    }
)
"""Ids of bindings; a test compares them with the existing bindings."""

RETIRED: Final = frozenset({"next-hint"})
"""Ids of former actions, which a keymap may still name."""

GO_BINDINGS: Final = (
    Binding("f2", "go('search')", "Go to the search", show=False, id="go-search"),
    Binding("s,f3", "go('schema')", "schema", tooltip="Go to the schema", id="go-schema"),
    Binding("n,f4", "go('networks')", "networks", tooltip="Go to the networks", id="go-networks"),
    Binding("m,f5", "go('metrics')", "metrics", tooltip="Go to the metrics", id="go-metrics"),
    Binding("l,f6", "go('log')", "log", tooltip="Go to the log", id="go-log"),
    Binding("b,f7", "go('rows')", "rows", tooltip="Browse the rows of relations", id="go-rows"),
)


ScreenMaker: TypeAlias = str | Callable[[], Screen[Any]]


def _lazy_screen(name: str) -> ScreenMaker:
    """A maker of a screen whose module is loaded at the first visit."""

    def load() -> Screen[Any]:
        module = import_module(f"skws_tui.screens.{name}_screen")
        screen: Screen[Any] = getattr(module, f"{name.capitalize()}Screen")()
        return screen

    return load


MODES: Final[dict[str, ScreenMaker]] = {
    name: _lazy_screen(name) for name in ("search", "schema", "networks", "metrics", "log", "rows")
}


_ALIGNED: Final = 46
"""The width of a choice before its note, in cells."""

AnswerT = TypeVar("AnswerT")


class Dialog(ModalScreen[AnswerT]):
    """A box in the middle of the screen, the element ``box``."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Back")]
    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog #box {
        width: 70; max-width: 90%; height: auto;
        border: round $border;
        padding: 0 1;
        background: $surface;
    }
    """

    def action_close(self) -> None:
        self.dismiss(None)


class ConfirmScreen(Dialog[bool]):
    """A yes-or-no question; returns True only for yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]
    DEFAULT_CSS = "ConfirmScreen #box { width: 60; border: round $warning; }"

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(f"{self._question}\n\n(y) yes   (n) no", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class PromptScreen(Dialog[None]):
    """Asks for a line of text and calls ``act`` with it; on SkwsError, the user can correct the text."""

    DEFAULT_CSS = "PromptScreen #refusal { color: $text-error; display: none; }"

    def __init__(self, question: str, default: str, act: Callable[[str], None]) -> None:
        super().__init__()
        self._question = question
        self._default = default
        self._act = act

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(visible(self._question), markup=False)
            yield LineInput(self._default, compact=True)
            yield Static(id="refusal", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        try:
            if text:
                self._act(text)
        except SkwsError as error:
            refusal = self.query_one("#refusal", Static)
            refusal.update(visible_lines(str(error)))
            refusal.display = True
        else:
            self.dismiss(None)


class PickScreen(Dialog[str | None]):
    """A list of choices; returns the chosen text, or None if the user closed it.

    ``choices``: texts with a note each. ``preview`` is called with each text to which the user moves.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "to_list", "Down", show=False)]
    DEFAULT_CSS = "PickScreen #box { height: 18; max-height: 80%; }"

    def __init__(
        self, title: str, choices: Sequence[tuple[str, str]], preview: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__()
        self._title = title
        self._preview = preview
        self._choices = self._matches = choices
        longest = max((cell_len(visible(text)) for text, _ in choices), default=0)
        self._text_width = min(longest, _ALIGNED)

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(self._title)
            yield LineInput(placeholder="narrow down", compact=True)
            yield OptionList(compact=True)

    def on_mount(self) -> None:
        self._fill("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        self.dismiss(self._matches[0][0] if self._matches else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._matches[event.option_index][0])

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_list.has_focus and self._matches:
            self._preview(self._matches[event.option_index][0])

    def action_to_list(self) -> None:
        options = self.query_one(OptionList)
        options.focus()
        if options.highlighted is None:
            options.action_first()

    def _fill(self, words: str) -> None:
        search_words = words.casefold().split()
        self._matches = [
            pair for pair in self._choices if all(word in " ".join(pair).casefold() for word in search_words)
        ]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([self._option(text, note) for text, note in self._matches])
        if not self._matches:
            options.add_option(Option("There is none.", disabled=True))

    def _option(self, text: str, note: str) -> Option:
        """The choice with its note in a column of notes."""
        gap = " " * (max(self._text_width - cell_len(visible(text)), 0) + 2)
        return Option(Content(visible(text)) + Content.styled(gap + visible(note), "dim"))
