"""A tuple with its lifespan [start, end), in ticks of the window."""

from __future__ import annotations

from dataclasses import dataclass

from schema.model import Row
from windows.window import FOREVER

ALWAYS = -FOREVER  # the start of static tuples


@dataclass(eq=False, slots=True)
class StreamTuple:
    """One tuple; compared by identity, since two equal rows are two tuples.

    ``keywords`` is the bitmap of the query's keywords that it contains.
    ``occurrence`` counts equal tuples with the same start; ``successor`` says
    that an earlier tuple with the same key started less than a window before.
    ``time`` is the event time in microseconds, which for time windows is the
    start; ``ended_at`` the event time at which it was deleted or replaced, where that is known beforehand.
    ``place`` grows with the order of arrival, which orders tuples with the same start.
    """

    relation: int
    row: Row
    start: int
    end: int
    keywords: int = 0
    occurrence: int = 0
    successor: bool = False
    time: int = 0
    ended_at: int | None = None
    place: int = 0

    @property
    def static(self) -> bool:
        return self.start == ALWAYS
