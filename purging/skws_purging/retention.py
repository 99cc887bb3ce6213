"""Decides how long a log keeps records: until nothing alive depends on them.

A tuple lives for a window. Its number among equal tuples, and whether it replaced another, depend on tuples
that were alive at its start, so records are kept for two windows. These end at the last record that was read
in order: a reader that waits for late records has processed nothing later.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from skws_windows.window import CountWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a log: its latest time (None without records), and the position after it."""

    latest: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Retention:
    """``windows``: the windows of all readers of the log."""

    windows: Collection[Window]

    def is_obsolete(self, part: LogPart, final: int, position: int) -> bool:
        """True if a part is no longer needed at ``position`` of a stream that is final up to ``final``."""
        if part.latest is not None and part.latest > final:
            return False  # some of its records wait for late ones
        return all(self._is_past(window, part, final, position) for window in self.windows)

    def _is_past(self, window: Window, part: LogPart, final: int, position: int) -> bool:
        match window:
            case TimeWindow(length):
                return part.latest is None or part.latest < final - 2 * length
            case CountWindow(size):
                return part.after < position - 2 * (size + 1)
        return False
