"""The ranking of a query and the number of its best results, as the user asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skws_schema.errors import UsageError
from skws_windows.window import MICROSECOND, TimeWindow, Window

DEFAULT: Final = "relevance"


@dataclass(frozen=True, slots=True)
class RankingChoice:
    """``name``: a ranking of ``skws.ranking.rankings``. ``explain``: results show the parts of their score.

    ``half_life``: the microseconds in which freshness halves; None for half of a window of time.
    """

    name: str = DEFAULT
    half_life: int | None = None
    explain: bool = False

    def fading(self, window: Window) -> float | None:
        """The half-life in seconds; None if scores do not fade."""
        if self.half_life is not None:
            return self.half_life / MICROSECOND
        return window.length / 2 / MICROSECOND if isinstance(window, TimeWindow) else None


@dataclass(frozen=True, slots=True)
class TopChoice:
    """The number of best results. ``group``: near-duplicates count as one, and only the best is given.

    ``append_only``: the user promises that nothing is deleted or replaced.
    Raises UsageError for a number below 1.
    """

    size: int
    group: bool = False
    append_only: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"--top {self.size}: expected a number above 0")
