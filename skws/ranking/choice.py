"""Which ranking a query is answered with, as the user asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from skws.ranking.rankings import DEFAULT, Ranking, ranking_named
from windows.window import MICROSECOND, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class RankingChoice:
    """``half_life`` in microseconds: what halves freshness; None for half of a window of time.

    ``explain``: results show the parts of their score. Raises UsageError for a ranking that is not there.
    """

    name: str = DEFAULT
    half_life: int | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        ranking_named(self.name)

    @property
    def ranking(self) -> Ranking:
        return ranking_named(self.name)

    def fading(self, window: Window) -> float | None:
        """The half-life in seconds; None where nothing fades."""
        if self.half_life is not None:
            return self.half_life / MICROSECOND
        return window.length / 2 / MICROSECOND if isinstance(window, TimeWindow) else None
