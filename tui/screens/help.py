"""The keys, and how queries are written."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.keys import GOING

HELP: Final = """\
[b]Screens[/b]
  F2 search   F3 schema   F4 networks   F5 metrics   F6 log   F1 or ? help
  Ctrl+P every command   Ctrl+Q quit

[b]Keywords[/b]
  tarantino travolta       joined tuples that contain both
  "pulp fiction"           a phrase
  trav*                    words that begin so
  actor.name:travolta      in an attribute; actor:travolta in a relation
  (tarantino OR rodriguez) either
  -trailer                 tuples with it take no part
  fraud ; refund           one before the other
  rank: ...   top 5: ...   with scores, only the best
  rank half-life 2 hours: ...        scores that fade by age
  top 5 group: ...         near-duplicates as one
  pattern: a ; b where ... tuples in an order, as skws search --pattern
  pattern select a.x, b.y: ...       attributes of its matches, no window
  window open when ... close when ...: ...   windows that the data defines
  Enter adds the query, Ctrl+J or Ctrl+Enter replaces the selected one
  Tab completes, Up and Down walk the history, Ctrl+R picks from it
  Ctrl+S saves a query, Ctrl+D takes what is meant

[b]Results[/b]
  j k or arrows   next, previous        g or Home   newest, and follow
  Enter           whole rows            /           filter
  y   Y           copy, as JSON         Ctrl+O      export what is listed
  [ ]             query left, right     x           remove the query
  e               keep ended results    i           back to the keywords
  s               best or newest first

[b]The run[/b]
  Space pauses and resumes, + and - change the speed of a replay

[b]Schema[/b]
  Ctrl+S saves, Ctrl+Z undoes, Ctrl+T infers from the source
  Ctrl+J or Ctrl+Enter applies to the running engine

Keys can be changed in keys.yaml, see docs/tui.md.
"""


class HelpScreen(ModalScreen[None]):
    """Shown over the others."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,question_mark", "dismiss_none", "Back"),
        *GOING,
    ]
    CSS = """
    HelpScreen { align: center middle; }
    #help {
        width: 84; max-width: 100%; height: auto; max-height: 100%;
        border: round $primary;
        padding: 0 1;
        background: $surface;
    }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as shown:
            shown.border_subtitle = "Esc closes"
            yield Static(HELP.replace("[ ]  ", "\\[ ]  "))

    def action_dismiss_none(self) -> None:
        self.dismiss(None)

    async def action_go(self, mode: str) -> None:
        """To one of the screens that it names."""
        self.dismiss(None)
        await self.app.run_action(f"go({mode!r})")
