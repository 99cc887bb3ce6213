"""Where keywords are typed: completion from the live words, history, and what to do with the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester

from tui.services.typed import completed
from tui.widgets.line_input import LineInput


class _Completions(Suggester):
    """Goes on with the best completion that the last reading gave."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.words: Sequence[tuple[str, int]] = ()

    async def get_suggestion(self, value: str) -> str | None:
        for word, _ in self.words:
            whole = completed(value, word)
            if whole.startswith(value) and whole != value:
                return whole
        return None


class QueryBox(LineInput):
    """One line. ``complete`` takes what the last word may become."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete", show=False, id="complete"),
        Binding("up", "history(-1)", "Earlier", show=False, id="earlier-query"),
        Binding("down", "history(1)", "Later", show=False, id="later-query"),
        Binding("ctrl+j,ctrl+enter", "replace", "Replace", id="replace-query"),
        Binding("ctrl+s", "save", "Save query", show=False, id="save-query"),
        Binding("ctrl+d", "correct", "Did you mean", show=False, id="did-you-mean"),
        Binding("escape", "leave", "Results", show=False),
    ]
    DEFAULT_CSS = """
    QueryBox { height: 1; border: none; padding: 0 1; background: $surface; }
    QueryBox:focus { border: none; background: $surface; background-tint: $foreground 5%; }
    """

    class Replace(Message):
        """The text shall take the place of the selected query."""

    class Save(Message):
        """The text, or if empty the selected query, shall be kept or no longer."""

    class Correct(Message):
        """The text shall be what the data suggests."""

    class Leave(Message):
        """On to the results."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        self._completions = _Completions()
        super().__init__(
            placeholder="keywords, e.g. tarantino travolta", suggester=self._completions, id=id, compact=True
        )
        self.history: Sequence[str] = ()
        self._at = 0

    def complete(self, words: Sequence[tuple[str, int]]) -> None:
        self._completions.words = words

    def recall(self, history: Sequence[str]) -> None:
        """Queries to walk through with the arrow keys, oldest first."""
        self.history, self._at = history, len(history)

    async def action_complete(self) -> None:
        """The first completion; to the next widget if there is none."""
        if not self._completions.words:
            self.screen.focus_next()
            return
        self.value = completed(self.value, self._completions.words[0][0])
        self.cursor_position = len(self.value)

    def action_history(self, step: int) -> None:
        if not self.history:
            return
        self._at = min(max(self._at + step, 0), len(self.history))
        self.value = self.history[self._at] if self._at < len(self.history) else ""
        self.cursor_position = len(self.value)

    def action_replace(self) -> None:
        self.post_message(self.Replace())

    def action_save(self) -> None:
        self.post_message(self.Save())

    def action_correct(self) -> None:
        self.post_message(self.Correct())

    def action_leave(self) -> None:
        self.post_message(self.Leave())
