"""The tour of the first run: three hints, each gone when its thing is done."""

from __future__ import annotations

from typing import Final

from textual.widgets import Static

HINTS: Final = (
    "Type keywords and press Enter: results arrive as soon as their last tuple does.",
    "Esc or Tab goes to the results: j and k walk them, y copies one, / filters, g follows the newest.",
    "F2 to F6 are the screens, F1 is help, Ctrl+P finds every command.",
)


class Hint(Static):
    """Hidden when the tour is over; ``done`` says that the thing of a hint was done."""

    DEFAULT_CSS = """
    Hint { height: auto; padding: 0 1; background: $warning 20%; color: $text; display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._at = len(HINTS)

    @property
    def over(self) -> bool:
        return self._at >= len(HINTS)

    @property
    def at(self) -> int:
        """The hint that is shown; their number if none is."""
        return self._at

    def begin(self) -> None:
        self._show(0)

    def done(self, number: int) -> None:
        """The thing of hint ``number`` was done, or passed over."""
        if not self.over and number >= self._at:
            self._show(number + 1)

    def skip(self) -> None:
        self._show(len(HINTS))

    def _show(self, at: int) -> None:
        self._at = at
        self.display = not self.over
        if not self.over:
            self.update(f"{at + 1}/{len(HINTS)}  {HINTS[at]}  (ctrl+n: next)")
