"""The growth of update times with the window and the number of matches, and the cost to enumerate a match.

Updates are measured without enumeration: processor time, the best of three, in microseconds per event.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from bench.patterns.children.skws_engine import evaluator
from bench.patterns.loads import DRAWN, NESTED, STAR, Event, Load
from skws_patterns.tuple_evaluator import TupleEvaluator

WINDOWS = (1_000, 10_000, 100_000, 1_000_000)
# Numbers of values of x: about 1, 100, 10,000 and 1,000,000 matches per event in a window of 3,000 events.
VALUES = (1000, 100, 10, 1)
_MEASURED = 20_000
_MOST_ENUMERATED = 1_000_000
_LONG = 90_000


@dataclass(frozen=True, slots=True)
class Growth:
    """The update time once the window is full, and the number of matches that an event completes."""

    load: str
    window: int
    microseconds: float
    matches: float


@dataclass(frozen=True, slots=True)
class Delay:
    """The matches of one event, the number enumerated, and nanoseconds until the first one and for each."""

    window: int
    matches: int
    enumerated: int
    first: float
    each: float


def one_key(load: Load) -> Callable[[int], Event]:
    rows = [(1,) * len(columns) for columns in load.relations.values()]
    return lambda position: (position % 3, rows[position % 3])


def spread(load: Load) -> Callable[[int], Event]:
    """Events drawn as for the comparison, from a cycle too long to affect the result."""
    events = list(islice(load.events(), 300_000))
    return lambda position: events[position % len(events)]


def skewed(load: Load, share: float = 0.5) -> Callable[[int], Event]:
    """Events as in ``spread``, with one key in a share ``share`` of them."""
    source = random.Random(1)
    event = spread(load)
    of_one = [source.random() < share for _ in range(300_000)]

    def skewed_event(position: int) -> Event:
        relation, row = event(position)
        return relation, (0,) * len(row) if of_one[position % len(of_one)] else row

    return skewed_event


def unfinished(load: Load) -> Callable[[int], Event]:
    """Events with unique keys: all runs stay partial, and the window has as many runs as events."""
    arities = [len(columns) for columns in load.relations.values()]
    return lambda position: (position % 3, (position,) * arities[position % 3])


def measure(load: Load, window: int, event: Callable[[int], Event]) -> Growth:
    tuple_evaluator, position = _full_evaluator(load, window, event), window + 1
    best = float("inf")
    for _ in range(3):
        events = [event(position + i) for i in range(_MEASURED)]
        began = time.process_time()
        for relation, row in events:
            tuple_evaluator.update(relation, row)
        best = min(best, time.process_time() - began)
        position += _MEASURED
    return Growth(
        load.name, window, best / _MEASURED * 1e6, _matches_of_an_event(tuple_evaluator, event, position)
    )


def by_window(windows: tuple[int, ...] = WINDOWS) -> Iterator[Growth]:
    """The loads with the same key in all events first, then those of the comparison."""
    for kind in (one_key, spread):
        for load in DRAWN:
            yield from (measure(load, window, kind(load)) for window in windows)


def by_kind(windows: tuple[int, ...] = WINDOWS[1:]) -> Iterator[tuple[str, Growth]]:
    """Half of all events with one key; then events without partners, so that all runs stay partial."""
    for name, kind in (("half of one key", skewed), ("all partial", unfinished)):
        for load in DRAWN:
            yield from ((name, measure(load, window, kind(load))) for window in windows)


def by_matches(values: tuple[int, ...] = VALUES) -> Iterator[Growth]:
    """The same window with more and more matches per event."""
    for number in values:
        load = replace(STAR, values=number)
        yield measure(load, STAR.window, spread(load))


def delays(windows: tuple[int, ...] = WINDOWS) -> Iterator[Delay]:
    """One event that completes more and more matches: the delay of the first, and of each of a million."""
    for window in windows:
        tuple_evaluator = _full_evaluator(NESTED, window, one_key(NESTED))
        matches = tuple_evaluator.count()
        firsts, delays_ns, count = [], [], 0
        for _ in range(3):
            results = tuple_evaluator.results()
            began = time.process_time_ns()
            next(results)
            firsts.append(time.process_time_ns() - began)
            began, count = time.process_time_ns(), 1
            for _ in islice(results, _MOST_ENUMERATED - 1):
                count += 1
            delays_ns.append((time.process_time_ns() - began) / count)
        yield Delay(window, matches, count, min(firsts), min(delays_ns))


def _full_evaluator(load: Load, window: int, event: Callable[[int], Event]) -> TupleEvaluator:
    tuple_evaluator = evaluator(load, window)
    for position in range(window + 1):
        tuple_evaluator.update(*event(position))
    return tuple_evaluator


def _matches_of_an_event(
    tuple_evaluator: TupleEvaluator, event: Callable[[int], Event], position: int
) -> float:
    """The mean over some events; few if the window is long, as the time to count grows with its content."""
    event_count, match_count = 30 if position < _LONG else 3, 0
    for i in range(position, position + event_count):
        match_count += tuple_evaluator.count() if tuple_evaluator.update(*event(i)) else 0
    return match_count / event_count
