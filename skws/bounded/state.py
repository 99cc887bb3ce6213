"""What a bounded engine holds as bytes, and as records that lead to it again, the names of tuples and all.

That is the tuples alive at a horizon, and the records from there on: within
the allowed lateness others may still come between them. A tuple's name tells
whether it replaced another of its key, and how many equal ones came before it
in its instant; so tuples of the past bring such others, and deletions of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter

import orjson

from schema.model import Value
from skws.records import Record
from windows.tuples import StreamTuple


def packed(alive: Iterable[StreamTuple], recent: Iterable[Record]) -> bytes:
    """Tuples of a stream without a window that are alive at a horizon, and the records from there on."""
    past = [(t.relation, t.time, t.row, t.successor, t.occurrence) for t in alive]
    return orjson.dumps([past, list(map(tuple, recent))])


def unpacked(state: bytes) -> list[Record]:
    """Records, by time, that lead to a state."""
    past, recent = orjson.loads(state)
    records = [Record(relation, time, tuple(row), delete) for relation, time, row, delete in recent]
    return sorted([*_leading_to(past), *records], key=attrgetter("time"))


def _leading_to(past: Iterable[tuple[int, int, list[Value], bool, int]]) -> Iterator[Record]:
    seen: Counter[tuple[object, ...]] = Counter()
    for relation, time, values, successor, occurrence in past:
        row = tuple(values)
        if successor:
            yield Record(relation, time - 1, row)
        for _ in range(occurrence - seen[relation, time, row]):
            yield Record(relation, time, row)
            yield Record(relation, time + 1, row, True)
        seen[relation, time, row] = occurrence + 1
        yield Record(relation, time, row)
