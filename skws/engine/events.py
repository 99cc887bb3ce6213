"""The order of output: by time, at one time retractions first, then by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from skws.results.model import Result

RETRACTED, COMPLETED = 0, 1


class Event(NamedTuple):
    """A result at its place in the output.

    ``time`` orders deletions between two positions of a count window.
    """

    tick: int
    kind: int
    time: int
    id: str
    result: Result


_id: Final = attrgetter("id")
_EVENT: Final = partial(tuple.__new__, Event)  # a third of what it takes to make them one by one


def completed(tick: int, result: Result) -> Event:
    return Event(tick, COMPLETED, 0, result.id, result)


def all_completed(ticks: Iterable[int], results: Sequence[Result]) -> Iterator[Event]:
    """The same for many."""
    ids = map(_id, results)
    return map(_EVENT, zip(ticks, repeat(COMPLETED), repeat(0), ids, results, strict=False))


def retracted(tick: int, time: int, result: Result) -> Event:
    return Event(tick, RETRACTED, time, result.id, result)


def in_order(events: Iterable[Event]) -> Iterator[Result]:
    """The results of events, sorted."""
    return (event.result for event in sorted(events, key=itemgetter(0, 1, 2, 3)))
