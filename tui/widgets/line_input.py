"""One line to type in. Whatever comes into it, by a paste or from a history, can be drawn on a terminal."""

from __future__ import annotations

from textual.widgets import Input

from skws.results.writers.text import visible


class LineInput(Input):
    """Control characters become visible ones, line ends spaces."""

    def validate_value(self, value: str) -> str:
        return visible(value)
