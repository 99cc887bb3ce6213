"""skws: every match is enumerated as soon as its last event is there; or by columns, a batch at a time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bench.patterns.loads import LOADS, Event, Load
from patterns.automata import PCEA
from patterns.columnar import ColumnarEvaluator, TooManyRunsError, Tuples, column_plan
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


def matches_by_columns(load: Load, window: int, events: list[Event], size: int) -> int:
    """The same in batches, as a search over a replay does it; matches are formed as tuples of positions."""
    plan = column_plan(automaton(load))
    assert plan is not None
    by_columns, found = ColumnarEvaluator(plan, CountWindow(window)), 0
    for begin in range(0, len(events), size):
        batch = events[begin : begin + size]
        places = np.arange(begin, begin + len(batch))
        relations = np.array([relation for relation, _ in batch], dtype=np.int64)
        try:
            made = by_columns.take(Tuples(places, relations, places, [row for _, row in batch]))
        except TooManyRunsError:
            running = evaluator(load, window)
            for position, relation, row, _ in by_columns.live():
                running.position = position - 1
                running.update(relation, row)
            return found + matches(running, events[begin:])
        found += len([*zip(*made.marked.T.tolist(), strict=True)])
    return found


def main() -> None:
    task = json.loads(sys.argv[1])
    load, events = LOADS[task["load"]], read(Path(task["events"]))
    expect_long_lived_objects()
    wall, cpu = time.perf_counter(), time.process_time()
    if task["by_columns"]:
        found = matches_by_columns(load, task["window"], events, task["batch"] or len(events))
    else:
        found = matches(evaluator(load, task["window"]), events)
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": found, **taken}))


if __name__ == "__main__":
    main()
