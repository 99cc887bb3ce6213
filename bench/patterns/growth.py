"""How the time of an update grows with the window and with the matches, apart from enumeration.

Every event of the load has the same x: the number of matches that an event completes grows with the
square of the window. Times are processor time, the best of three, in microseconds per event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from bench.patterns.children.skws_engine import automaton
from bench.patterns.loads import NESTED, STAR, Load
from patterns.evaluation import Evaluator
from windows.window import CountWindow

WINDOWS = (1_000, 10_000, 100_000, 1_000_000)
_MEASURED = 20_000


@dataclass(frozen=True, slots=True)
class Growth:
    """The time of an update once the window is full, and what the last event completed."""

    load: str
    window: int
    microseconds: float
    matches: int


def one_key(load: Load) -> Callable[[int], tuple[int, tuple[int, ...]]]:
    rows = [(1,) * arity for arity in load.arities]
    return lambda position: (position % 3, rows[position % 3])


def spread(load: Load) -> Callable[[int], tuple[int, tuple[int, ...]]]:
    """Drawn as for the comparison, from a cycle long enough to look new."""
    drawn = list(islice(load.events(300_000), 300_000))
    return lambda position: drawn[position % len(drawn)]


def measure(load: Load, window: int, event: Callable[[int], tuple[int, tuple[int, ...]]]) -> Growth:
    evaluator = Evaluator(automaton(load), 3, CountWindow(window))
    update = evaluator.update
    position = 0
    for _ in range(window + 1):
        update(*event(position))
        position += 1
    best = float("inf")
    for _ in range(3):
        events = [event(position + i) for i in range(_MEASURED)]
        begun = time.process_time()
        for relation, row in events:
            update(relation, row)
        best = min(best, time.process_time() - begun)
        position += _MEASURED
    return Growth(load.name, window, best / _MEASURED * 1e6, evaluator.count())


def growths(windows: tuple[int, ...] = WINDOWS) -> list[Growth]:
    """The loads of one key first, then those of the comparison."""
    cases = [(load, kind) for kind in (one_key, spread) for load in (STAR, NESTED)]
    return [measure(load, window, kind(load)) for load, kind in cases for window in windows]
