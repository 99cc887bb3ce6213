"""skws: every match is enumerated as soon as its last event is there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from bench.patterns.loads import LOADS, Event, Load
from patterns.automata import PCEA
from patterns.evaluation import Evaluator
from skws.engine.collector import expect_long_lived_objects
from skws.pattern_search import read_query
from windows.window import CountWindow


def automaton(load: Load) -> PCEA:
    return read_query(load.text, load.schema()).pcea


def evaluator(load: Load, window: int) -> Evaluator:
    return Evaluator(automaton(load), len(load.relations), CountWindow(window))


def read(path: Path) -> list[Event]:
    lines = (tuple(map(int, line.split())) for line in path.read_text().splitlines())
    return [(event[0], event[1:]) for event in lines]


def matches(running: Evaluator, events: Iterable[Event]) -> int:
    """How many matches the events complete, each of them formed."""
    found = 0
    for relation, row in events:
        if running.update(relation, row):
            for _ in running.results():
                found += 1
    return found


def main() -> None:
    task = json.loads(sys.argv[1])
    running, events = evaluator(LOADS[task["load"]], task["window"]), read(Path(task["events"]))
    expect_long_lived_objects()
    wall, cpu = time.perf_counter(), time.process_time()
    found = matches(running, events)
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": found, **taken}))


if __name__ == "__main__":
    main()
