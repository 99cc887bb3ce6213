"""Deletions and keyed replacement: how the tuples of one identity share time.

Tuples of a keyed relation with equal keys replace each other; tuples of other
relations with equal rows queue up, and a deletion ends the oldest live one.
Each such group keeps its marks (insertions and deletions) in order of event
time; the lifespans follow from the marks alone, so they do not depend on the
order of arrival.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from windows.tuples import StreamTuple
from windows.window import Window


class Mark(NamedTuple):
    """An insertion (``inserted`` is its tuple) or a deletion (None) at a tick; ``arrival`` breaks ties."""

    tick: int
    arrival: int
    inserted: StreamTuple | None


def lifespan_ends(marks: Sequence[Mark], window: Window, keyed: bool) -> tuple[dict[int, int], int]:
    """The end of each inserted tuple by its mark's position, and the deletions that met no live tuple.

    ``marks`` are in order. Keyed: each mark ends the tuple before it. Else a
    deletion ends the oldest live tuple of the group.
    """
    ends: dict[int, int] = {}
    live: list[int] = []
    unmatched = 0
    for position, mark in enumerate(marks):
        live = [p for p in live if ends[p] > mark.tick]
        if mark.inserted is None:
            unmatched += not live
        if live and (keyed or mark.inserted is None):
            ends[live.pop(0)] = mark.tick
        if mark.inserted is not None:
            ends[position] = window.end(mark.tick)
            live.append(position)
    return ends, unmatched


@dataclass(slots=True)
class Changes:
    """What one step of marks changed: (tuple, former end) of known tuples, and tuples that are new."""

    ended: list[tuple[StreamTuple, int]] = field(default_factory=list)
    prolonged: list[tuple[StreamTuple, int]] = field(default_factory=list)
    inserted: list[StreamTuple] = field(default_factory=list)
    unmatched: int = 0


@dataclass(slots=True)
class Group:
    """The marks of one identity that can still matter."""

    keyed: bool
    marks: list[Mark] = field(default_factory=list)
    unmatched: int = 0

    def add(self, mark: Mark) -> None:
        insort(self.marks, mark, key=itemgetter(0, 1))

    def settle(self, window: Window, fresh: set[int], changes: Changes) -> None:
        """Recompute lifespans; ``fresh`` holds the ids of tuples whose insertion is part of this step."""
        ends, unmatched = lifespan_ends(self.marks, window, self.keyed)
        changes.unmatched += max(0, unmatched - self.unmatched)
        self.unmatched = unmatched
        for position, end in ends.items():
            inserted = self.marks[position].inserted
            assert inserted is not None  # noqa: S101 - only insertions have ends
            self._apply(inserted, end, id(inserted) in fresh, changes)

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

    def forget(self, window: Window, horizon: int) -> bool:
        """Drop marks that no record at or after ``horizon`` can touch; True if none are left.

        A deletion and the tuple it ended stand and fall together, since the
        tuple's end is the deletion's tick; so what is left gives the same lifespans.
        """
        self.marks = [m for m in self.marks if self._due(m, window) >= horizon]
        self.unmatched = lifespan_ends(self.marks, window, self.keyed)[1]
        return not self.marks

    def _due(self, mark: Mark, window: Window) -> int:
        if mark.inserted is None:
            return mark.tick
        # A key's former tuples are told apart from later ones for a window's length.
        return window.end(mark.tick) if self.keyed else mark.inserted.end
