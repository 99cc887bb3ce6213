"""Which of the kept records a mesh can still be made from, chunk by chunk.

A tuple lives for a window. Which of equal tuples it is, and whether it
replaced another, was decided by tuples alive when it began: so chunks stay
for two windows. They leave from the front alone, since a deletion must not
go before what it deletes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windows.window import CountWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one micro-batch. ``position`` and ``now``: where the stream stood before them.

    ``latest``: the latest time among them; ``after``: the position behind them.
    """

    number: int
    position: int
    now: int
    latest: int
    after: int


@dataclass(slots=True)
class RecordLog:
    """``lateness`` in microseconds; ``chunks`` oldest first."""

    window: Window
    lateness: int = 0
    chunks: list[Chunk] = field(default_factory=list)

    def trim(self, now: int, position: int) -> list[int]:
        """Forget the oldest chunks as far as they are over; gives their numbers."""
        over = 0
        while over < len(self.chunks) and self._over(self.chunks[over], now, position):
            over += 1
        gone = [chunk.number for chunk in self.chunks[:over]]
        del self.chunks[:over]
        return gone

    def _over(self, chunk: Chunk, now: int, position: int) -> bool:
        match self.window:
            case TimeWindow(length):
                return chunk.latest < now - self.lateness - 2 * length
            case CountWindow(size):
                return chunk.after < position - 2 * (size + 1)
        return False
