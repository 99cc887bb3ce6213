"""The last gate before the terminal: nothing that a widget draws can move the cursor or reorder a line."""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from skws.results.writers.text import UNSAFE

_GONE: Final = dict.fromkeys(UNSAFE)


class Printable(LineFilter):
    """Drops control characters, which have no width, so that no cell moves.

    Whoever draws data makes them visible before; this is for editors, and for what was overlooked.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - the name is given
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [
            Segment(text if control else text.translate(_GONE), style, control)
            for text, style, control in segments
        ]
