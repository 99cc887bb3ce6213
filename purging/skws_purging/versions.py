"""Deletions and keyed replacement: the lifespans of the tuples of one identity.

Tuples with equal keys replace each other; tuples without a key, or with a NULL
in it, that are equal rows queue up, and a deletion ends the oldest live one.
Each such group keeps its marks (insertions and deletions) in order of event
time; the lifespans follow from the marks alone, so they do not depend on the
order of arrival.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from skws_purging.tuples import StreamTuple
from skws_windows.window import ExpressionWindow, Unbounded, Window


class Mark(NamedTuple):
    """An insertion (``inserted`` is its tuple) or a deletion (None) at a tick; ``arrival`` breaks ties."""

    tick: int
    arrival: int
    inserted: StreamTuple | None


class Ends(NamedTuple):
    """Lifespans: the end of each insertion, by its position among the marks.

    ``unmatched``: deletions that met no live tuple. ``queued``: the tick of the
    first deletion that met several equal rows, None without one.
    """

    ends: dict[int, int]
    unmatched: int
    queued: int | None


def lifespan_ends(marks: Sequence[Mark], window: Window, keyed: bool) -> Ends:
    """Lifespans of the tuples of one identity; ``marks`` are in order.

    Keyed: each mark ends the tuple before it. Else a deletion ends the oldest
    live tuple.
    """
    ends: dict[int, int] = {}
    live: list[int] = []
    unmatched = 0
    queued: int | None = None
    for position, mark in enumerate(marks):
        live = [p for p in live if ends[p] > mark.tick]
        if mark.inserted is None:
            unmatched += not live
            if queued is None and not keyed and len(live) > 1:
                queued = mark.tick
        if live and (keyed or mark.inserted is None):
            ends[live.pop(0)] = mark.tick
        if mark.inserted is not None:
            ends[position] = window.end(mark.tick)
            live.append(position)
    return Ends(ends, unmatched, queued)


@dataclass(slots=True)
class Changes:
    """The changes of one step: (tuple, new end) of known tuples, and new tuples."""

    ended: list[tuple[StreamTuple, int]] = field(default_factory=list)
    prolonged: list[tuple[StreamTuple, int]] = field(default_factory=list)
    inserted: list[StreamTuple] = field(default_factory=list)
    unmatched: int = 0


@dataclass(slots=True)
class Group:
    """The marks of one identity that later records may still affect.

    ``queued``: the tick of the first deletion that met several equal rows, of
    which it ended the oldest; None if the log has all of what it keeps. From then
    on ``ended`` has the start, occurrence and end of rows for a window after their
    end.
    """

    keyed: bool
    marks: list[Mark] = field(default_factory=list)
    unmatched: int = 0
    queued: int | None = None
    ended: deque[tuple[int, int, int]] = field(default_factory=deque)

    def add(self, mark: Mark) -> None:
        insort(self.marks, mark, key=itemgetter(0, 1))

    def settle(self, window: Window, fresh: set[StreamTuple], changes: Changes) -> None:
        """Recompute lifespans; ``fresh`` are the tuples whose insertion is part of this step."""
        ends, unmatched, queued = lifespan_ends(self.marks, window, self.keyed)
        if queued is not None and not isinstance(window, Unbounded | ExpressionWindow):
            self.queued = queued if self.queued is None else min(queued, self.queued)
        changes.unmatched += max(0, unmatched - self.unmatched)
        self.unmatched = unmatched
        for position, end in ends.items():
            inserted = self.marks[position].inserted
            assert inserted is not None  # noqa: S101 - only insertions have ends
            self._apply(inserted, end, inserted in fresh, changes)

    def _apply(self, changed: StreamTuple, end: int, fresh: bool, changes: Changes) -> None:
        former = changed.end
        if fresh:
            changed.end = end
            if changed.start < end:
                changes.inserted.append(changed)
        elif end < former:
            changes.ended.append((changed, end))
        elif end > former:
            changes.prolonged.append((changed, end))

    def oldest(self, tick: int) -> tuple[int, int] | None:
        """Start and occurrence of the oldest row alive just before a tick after ``queued``; or None."""
        rows = chain(self.ended, (_row(mark.inserted) for mark in self.marks if mark.inserted))
        return next(((start, number) for start, number, end in rows if start < tick <= end), None)

    def forget(self, window: Window, horizon: int) -> bool:
        """Drop marks that no record at or after ``horizon`` can affect; True if nothing is left.

        A deletion is dropped together with the tuple it ended, since the tuple's end is
        the deletion's tick; so the other marks give the same lifespans.
        """
        marks = self.marks
        self.marks = [m for m in marks if self._due(m, window) >= horizon]
        if self.queued is not None:
            gone = (m.inserted for m in marks if m.inserted and self._due(m, window) < horizon)
            self.ended.extend(map(_row, gone))
            while self.ended and window.end(self.ended[0][-1]) < horizon:
                self.ended.popleft()
        self.unmatched = lifespan_ends(self.marks, window, self.keyed).unmatched
        return not (self.marks or self.ended)

    def _due(self, mark: Mark, window: Window) -> int:
        return due(mark, window, self.keyed)


def _row(known: StreamTuple) -> tuple[int, int, int]:
    return known.start, known.occurrence, known.end


def due(mark: Mark, window: Window, keyed: bool) -> int:
    """The tick after which a mark has no effect.

    A key's marks stay for a window's length, to distinguish its tuples.
    """
    if keyed and not isinstance(window, Unbounded):
        return window.end(mark.tick)
    return mark.inserted.end if mark.inserted else mark.tick


def is_successor(marks: Sequence[Mark], position: int, tick: int, window: Window) -> bool:
    """True if a tuple that starts at ``tick`` follows another of its key within a window.

    Without a window: while the other is alive. ``marks`` before ``position`` came
    before the tuple.
    """
    unbounded = isinstance(window, Unbounded)
    for mark in (marks[p] for p in range(position - 1, -1, -1)):
        if mark.inserted is None:
            if unbounded:
                return False
        elif mark.tick < tick:
            return tick < window.end(mark.tick)
    return False
