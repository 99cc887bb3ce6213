"""Dialogs over the screens: yes or no, a line of text, a choice of queries, help; the names of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from skws.sinks.text import visible
from skws_tui.widgets.search_box import LineInput

ACTIONS: Final = frozenset(
    {
        *("help", "go-search", "go-schema", "go-networks", "go-metrics", "go-log", "quit"),
        *("pause", "faster", "slower", "filter", "detail", "copy", "copy-json", "export", "history"),
        *("remove-query", "undo-remove", "previous-query", "next-query", "keep-ended", "order", "ask"),
        *("trees", "filter-relation", "next-result", "previous-result", "follow", "oldest-result"),
        *("complete", "earlier-query", "later-query", "replace-query", "save-query", "did-you-mean"),
        *("save-schema", "apply-schema", "infer-schema", "undo"),
        *("seek-back", "seek-on", "step-back", "step-on", "go-to"),
    }
)
"""Ids of bindings; a test compares them to the bindings that exist."""

RETIRED: Final = frozenset({"next-hint"})
"""Ids of actions that are no more: a keymap may still name them."""

GOING: Final = (
    Binding("f2", "go('search')", "Search", show=False, id="go-search"),
    Binding("s,f3", "go('schema')", "schema", id="go-schema"),
    Binding("n,f4", "go('networks')", "networks", id="go-networks"),
    Binding("m,f5", "go('metrics')", "metrics", id="go-metrics"),
    Binding("l,f6", "go('log')", "log", id="go-log"),
)


ScreenMaker: TypeAlias = str | Callable[[], Screen[Any]]


def _loaded_late(name: str) -> ScreenMaker:
    """Makes a screen whose module is loaded when the user first goes there."""

    def load() -> Screen[Any]:
        module = import_module(f"skws_tui.screens.{name}")
        screen: Screen[Any] = getattr(module, f"{name.capitalize()}Screen")()
        return screen

    return load


MODES: Final[dict[str, ScreenMaker]] = {
    name: _loaded_late(name) for name in ("search", "schema", "networks", "metrics", "log")
}


HELP: Final = """\
[b]Results[/b]
  ↑ ↓ or k j      move                  Enter     every value
  g or Home       the newest, follow    t         whole trees
  /               filter by words       r         by relation
  o               sort                  e         hide ended ones
  y   Y           copy, as JSON         Ctrl+O    export the list
  [ ]             query left, right     a         add a query
  x               remove the query      u         undo that

[b]Time[/b]
  Space pauses and plays on, + and - change the speed of a replay
  ← → move a replay, . and , step through its instants, @ goes to a time

[b]Screens[/b]
  s or F3 schema   n or F4 networks   m or F5 metrics   l or F6 log
  Esc or F2 search   ? or F1 help   Ctrl+P every command   q or Ctrl+Q quit

[b]Keywords[/b]
  tarantino travolta       joined tuples that contain both
  "pulp fiction"           a phrase
  trav*                    words with this beginning
  actor.name:travolta      in an attribute; actor:travolta in a relation
  (tarantino OR rodriguez) either
  -trailer                 without tuples that contain it
  fraud ; refund           one before the other
  all: ...                 all results, in order of time
  rank: ...   top 5: ...   with scores, only the best
  rank half-life 2 hours: ...        scores that fade by age
  top 5 group: ...         near-duplicates as one
  pattern: a ; b where ... tuples in an order, as skws search --pattern
  window open when ... close when ...: ...   windows that the data defines
  Enter adds the query, Ctrl+J or Ctrl+Enter replaces the selected one
  Tab completes or corrects, ↑ and ↓ walk the history, Ctrl+R picks from it
  Ctrl+S saves a query

[b]Schema[/b]
  Ctrl+S saves, Ctrl+Z undoes, Ctrl+T infers from the source
  Ctrl+J or Ctrl+Enter applies it to the running job

Keys can be changed in keys.yaml, see the guide to the terminal UI.
"""

AnswerT = TypeVar("AnswerT")


class Dialog(ModalScreen[AnswerT]):
    """A box in the middle of the screen: the element ``box``."""

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
    """Returns True only for yes."""

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


class PromptScreen(Dialog[str | None]):
    """Returns the text, or None if the user closed it."""

    def __init__(self, question: str, given: str) -> None:
        super().__init__()
        self._question = question
        self._given = given

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(visible(self._question), markup=False)
            yield LineInput(self._given, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class PickScreen(Dialog[str | None]):
    """Returns the chosen text, or None if the user closed it. ``choices``: texts with a note each."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "to_list", "Down", show=False)]
    DEFAULT_CSS = "PickScreen #box { height: 18; max-height: 80%; }"

    def __init__(self, title: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._choices = self._found = choices

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
        self.dismiss(self._found[0][0] if self._found else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._found[event.option_index][0])

    def action_to_list(self) -> None:
        self.query_one(OptionList).focus()

    def _fill(self, words: str) -> None:
        wanted = words.casefold().split()
        self._found = [pair for pair in self._choices if all(word in pair[0].casefold() for word in wanted)]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            [
                Option(Content(visible(text)) + Content.styled(f"  {note}", "dim"))
                for text, note in self._found
            ]
        )
        if not self._found:
            options.add_option(Option("There is none.", disabled=True))


class HelpScreen(Dialog[None]):
    """The keys, and how queries are written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,q,question_mark", "close", "Back"),
        *GOING,
    ]
    DEFAULT_CSS = (
        "HelpScreen #box { width: 80; max-width: 100%; max-height: 100%; scrollbar-size-vertical: 1; }"
    )

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box") as box:
            box.border_subtitle = "Esc closes"
            yield Static(HELP.replace("[ ]  ", "\\[ ]  "))

    async def action_go(self, mode: str) -> None:
        """Go to a screen."""
        self.dismiss(None)
        await self.app.run_action(f"go({mode!r})")
