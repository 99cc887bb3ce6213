"""A line that is there while it has something to say."""

from __future__ import annotations

from textual.widgets import Static

from skws.results.writers.text import visible


class Notice(Static):
    """Said again, the same costs nothing, and another text no layout: that would draw the whole screen."""

    DEFAULT_CSS = "Notice { height: 1; padding: 0 1; display: none; color: $text-muted; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, markup=False)
        self._said = ""

    def say(self, text: str) -> None:
        """Nothing to say hides it."""
        if text != self._said:
            self._said = text
            self.display = bool(text)
            self.update(visible(text), layout=False)
