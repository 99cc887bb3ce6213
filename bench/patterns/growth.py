"""How the time of an update grows with the window and with the matches, and what a match costs to tell.

Updates are measured apart from enumeration: processor time, the best of three, in microseconds an event.
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
# How many values x has: about 1, 100, 10,000 and 1,000,000 matches an event in a window of 3,000 events.
VALUES = (1000, 100, 10, 1)
_MEASURED = 20_000
_TOLD = 1_000_000
_LONG = 90_000


@dataclass(frozen=True, slots=True)
class Growth:
    """The time of an update once the window is full, and how many matches an event completes."""

    load: str
    window: int
    microseconds: float
    matches: float


@dataclass(frozen=True, slots=True)
class Delay:
    """Matches of one event, how many of them were told, and nanoseconds for each; until the first apart."""

    window: int
    matches: int
    told: int
    first: float
    each: float


def one_key(load: Load) -> Callable[[int], Event]:
    rows = [(1,) * len(columns) for columns in load.relations.values()]
    return lambda position: (position % 3, rows[position % 3])


def spread(load: Load) -> Callable[[int], Event]:
    """Drawn as for the comparison, from a cycle long enough to look new."""
    drawn = list(islice(load.events(), 300_000))
    return lambda position: drawn[position % len(drawn)]


def skewed(load: Load, share: float = 0.5) -> Callable[[int], Event]:
    """As spread, but with one key in so large a share of the events."""
    source = random.Random(1)
    event = spread(load)
    of_one = [source.random() < share for _ in range(300_000)]

    def drawn(position: int) -> Event:
        relation, row = event(position)
        return relation, (0,) * len(row) if of_one[position % len(of_one)] else row

    return drawn


def unfinished(load: Load) -> Callable[[int], Event]:
    """Every event of a key of its own: all runs stay partial, as many as the window has events."""
    arities = [len(columns) for columns in load.relations.values()]
    return lambda position: (position % 3, (position,) * arities[position % 3])


def measure(load: Load, window: int, event: Callable[[int], Event]) -> Growth:
    running, position = _full(load, window, event), window + 1
    best = float("inf")
    for _ in range(3):
        events = [event(position + i) for i in range(_MEASURED)]
        begun = time.process_time()
        for relation, row in events:
            running.update(relation, row)
        best = min(best, time.process_time() - begun)
        position += _MEASURED
    return Growth(load.name, window, best / _MEASURED * 1e6, _matches_of_an_event(running, event, position))


def by_window(windows: tuple[int, ...] = WINDOWS) -> Iterator[Growth]:
    """The loads with all events of one key first, then those of the comparison."""
    for kind in (one_key, spread):
        for load in DRAWN:
            yield from (measure(load, window, kind(load)) for window in windows)


def by_kind(windows: tuple[int, ...] = WINDOWS[1:]) -> Iterator[tuple[str, Growth]]:
    """Half of all events of one key; and none that finds a partner, so that all runs stay partial."""
    for name, kind in (("half of one key", skewed), ("all partial", unfinished)):
        for load in DRAWN:
            yield from ((name, measure(load, window, kind(load))) for window in windows)


def by_matches(values: tuple[int, ...] = VALUES) -> Iterator[Growth]:
    """The same window, and ever more matches an event."""
    for number in values:
        load = replace(STAR, values=number)
        yield measure(load, STAR.window, spread(load))


def delays(windows: tuple[int, ...] = WINDOWS) -> Iterator[Delay]:
    """One event that completes ever more matches: the time until the first, and for each of a million."""
    for window in windows:
        running = _full(NESTED, window, one_key(NESTED))
        matches = running.count()
        firsts, each, told = [], [], 0
        for _ in range(3):
            results = running.results()
            begun = time.process_time_ns()
            next(results)
            firsts.append(time.process_time_ns() - begun)
            begun, told = time.process_time_ns(), 1
            for _ in islice(results, _TOLD - 1):
                told += 1
            each.append((time.process_time_ns() - begun) / told)
        yield Delay(window, matches, told, min(firsts), min(each))


def _full(load: Load, window: int, event: Callable[[int], Event]) -> TupleEvaluator:
    running = evaluator(load, window)
    for position in range(window + 1):
        running.update(*event(position))
    return running


def _matches_of_an_event(running: TupleEvaluator, event: Callable[[int], Event], position: int) -> float:
    """The mean over some events: few where a window is long, as counting takes time with what it holds."""
    asked, found = 30 if position < _LONG else 3, 0
    for i in range(position, position + asked):
        found += running.count() if running.update(*event(i)) else 0
    return found / asked
