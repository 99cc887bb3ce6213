"""How long the journal keeps records: until nothing that is alive can depend on them.

A tuple lives for a window. Which of equal tuples it is, and whether it
replaced another, was decided by tuples that were alive when it began: so
records are kept for two windows.
"""

from __future__ import annotations

from dataclasses import dataclass

from skws.watch.journal import Segment
from windows.window import CountWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class Retention:
    """``lateness`` in microseconds."""

    window: Window
    lateness: int = 0

    def over(self, segment: Segment, now: int, position: int) -> bool:
        """True if a segment is needed no more at event time ``now`` and ``position`` in the stream."""
        match self.window:
            case TimeWindow(length):
                return segment.latest is None or segment.latest < now - self.lateness - 2 * length
            case CountWindow(size):
                return segment.after < position - 2 * (size + 1)
        return False
