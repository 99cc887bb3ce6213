"""Which ranking a query is answered with, as the user asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skws_schema.errors import UsageError
from skws_windows.window import MICROSECOND, TimeWindow, Window

DEFAULT: Final = "relevance"


@dataclass(frozen=True, slots=True)
class RankingChoice:
    """``half_life`` in microseconds: what halves freshness; None for half of a window of time.

    ``name``: one that ``skws.ranking.rankings`` knows. ``explain``: results show the parts of their score.
    """

    name: str = DEFAULT
    half_life: int | None = None
    explain: bool = False

    def fading(self, window: Window) -> float | None:
        """The half-life in seconds; None where nothing fades."""
        if self.half_life is not None:
            return self.half_life / MICROSECOND
        return window.length / 2 / MICROSECOND if isinstance(window, TimeWindow) else None


@dataclass(frozen=True, slots=True)
class TopChoice:
    """How many of the best to tell. ``group``: near-duplicates count as one, the best of them is told.

    ``append_only``: the user says that nothing is deleted or replaced.
    Raises UsageError for less than one.
    """

    size: int
    group: bool = False
    append_only: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"--top {self.size}: expected a number above 0")
