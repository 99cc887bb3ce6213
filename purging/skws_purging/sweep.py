"""When to sweep tables for dead entries, at a constant cost per entry.

A sweep reads everything. So it waits until as many entries have come as the
last one left: each entry is then read a constant number of times, and at most
about half of a table is dead.
"""

from __future__ import annotations

LEAST = 1024


class Sweep:
    """Decides when the next sweep pays; the owner of the tables does the work."""

    def __init__(self) -> None:
        self._left = 0
        self._horizon: int | None = None

    def due(self, horizon: int, entries: int) -> bool:
        """True if a sweep up to ``horizon`` is worth reading ``entries`` entries."""
        return horizon != self._horizon and entries > 2 * self._left + LEAST

    def done(self, horizon: int, left: int) -> None:
        self._left = left
        self._horizon = horizon
