"""Composite tuples: members in the order of an operator's tree, and the values they are joined by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TypeAlias

from schema.model import Row, Value
from windows.tuples import StreamTuple
from windows.window import FOREVER

Members: TypeAlias = tuple[StreamTuple, ...]
Key: TypeAlias = Value | tuple[Value, ...]
GetKey: TypeAlias = Callable[[Row], Key]


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


def alive(members: Iterable[StreamTuple], horizon: int) -> bool:
    """True if all members share an instant, and none has ended at or before ``horizon``."""
    start, end = -FOREVER, FOREVER
    for member in members:
        if member.end <= horizon:
            return False
        if member.start > start:
            start = member.start
        if member.end < end:
            end = member.end
    return start < end


def key_getter(columns: tuple[int, ...]) -> GetKey:
    """A row's join value; None if any part of it is NULL, which joins nothing."""
    if len(columns) == 1:
        return itemgetter(columns[0])
    many = itemgetter(*columns)

    def composite(row: Row) -> Key:
        values: tuple[Value, ...] = many(row)
        return None if None in values else values

    return composite
