"""The tuples of the paper's meshes, and the composites that joins make from them (S-KWS paper, Section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(eq=False, slots=True)
class MeshTuple:
    """A live tuple in a mesh; compared by identity, since two equal rows are two tuples.

    ``values``: its join values, one for each key set of its relation. ``start`` and ``end`` are ticks.
    ``keywords``: the bitmap of the query's keywords that it contains. ``place`` grows with the order of
    arrival, which orders tuples with the same start. ``slot``: its place in the store of live tuples.
    """

    relation: int
    values: tuple[int, ...]
    start: int
    end: int
    keywords: int = 0
    place: int = 0
    slot: int = -1


Members: TypeAlias = tuple[MeshTuple, ...]
"""A composite tuple: its members, in the order of an operator's tree."""


def end_of(members: Iterable[MeshTuple]) -> int:
    """The tick at which the first of the members ends."""
    return min(member.end for member in members)


def compatible(members: Iterable[MeshTuple], new: MeshTuple) -> bool:
    """True if ``new`` is not a member, and all are alive at one instant."""
    start, end = new.start, new.end
    for member in members:
        if member is new:
            return False
        if member.start > start:
            start = member.start
        if member.end < end:
            end = member.end
    return start < end
