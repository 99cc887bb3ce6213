"""How long a log keeps records: until nothing that is alive can depend on them.

A tuple lives for a window. Which of equal tuples it is, and whether it
replaced another, was decided by tuples that were alive when it began: so
records are kept for two windows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from windows.window import CountWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class Kept:
    """What a part of a log is kept by: its latest time (None without records), and the position behind it."""

    latest: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Retention:
    """``windows``: of all that is made from the log. ``lateness`` in microseconds."""

    windows: Collection[Window]
    lateness: int = 0

    def over(self, part: Kept, now: int, position: int) -> bool:
        """True if a part is needed no more at event time ``now`` and ``position`` in the stream."""
        if self.lateness and part.latest is not None and part.latest >= now - self.lateness:
            return False  # some of it may still wait for its turn
        return all(self._passed(window, part, now, position) for window in self.windows)

    def _passed(self, window: Window, part: Kept, now: int, position: int) -> bool:
        match window:
            case TimeWindow(length):
                return part.latest is None or part.latest < now - self.lateness - 2 * length
            case CountWindow(size):
                return part.after < position - 2 * (size + 1)
        return False
