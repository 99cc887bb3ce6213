"""The order of output: by time, at one time retractions first, then by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple, TypeAlias

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


class Completed(NamedTuple):
    """Many results as they are completed, in the order of output, with their ticks."""

    ticks: list[int]
    results: list[Result]


Output: TypeAlias = Event | Completed


def completed(tick: int, result: Result) -> Event:
    return Event(tick, COMPLETED, 0, result.id, result)


def retracted(tick: int, time: int, result: Result) -> Event:
    return Event(tick, RETRACTED, time, result.id, result)


def one_by_one(output: Iterable[Output]) -> Iterator[Event]:
    """All of them as events."""
    for each in output:
        if isinstance(each, Completed):
            yield from map(completed, each.ticks, each.results)
        else:
            yield each


def in_order(output: Iterable[Output]) -> Iterator[Result]:
    """Their results, sorted."""
    match list(output):
        case [Completed(results=results)]:  # as is usual, and half of the work where results are many
            return iter(results)
        case several:
            return (e.result for e in sorted(one_by_one(several), key=itemgetter(0, 1, 2, 3)))
