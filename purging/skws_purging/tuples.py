"""Tuples with their lifespans [start, end), in ticks of the window, and tuples joined to composite ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from skws_schema.model import Row
from skws_windows.window import FOREVER

ALWAYS = -FOREVER  # the start of static tuples


@dataclass(eq=False, slots=True)
class StreamTuple:
    """One tuple; compared by identity, since two equal rows are two tuples.

    ``keywords`` is the bitmap of the query's keywords that it contains.
    ``occurrence`` counts equal tuples with the same start; ``successor``: an
    earlier tuple with the same key started less than a window before.
    ``time`` is the event time in microseconds, which for time windows is the
    start; ``ended_at`` the event time of its deletion or replacement, if known beforehand.
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


Members: TypeAlias = tuple[StreamTuple, ...]
"""A composite tuple: its members, in the order of an operator's tree."""


def end_of(members: Iterable[StreamTuple]) -> int:
    """The tick at which the first of the members ends."""
    return min(member.end for member in members)


def compatible(members: Iterable[StreamTuple], new: StreamTuple) -> bool:
    """True if ``new`` is none of the members and all are alive at one instant."""
    start, end = new.start, new.end
    for member in members:
        if member is new:
            return False
        if member.start > start:
            start = member.start
        if member.end < end:
            end = member.end
    return start < end
