"""skws: enumerates every match as soon as its last event arrives, or evaluates columns in batches."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np

from bench.patterns.loads import LOADS, Event, Load
from skws.memory import expect_long_lived_objects
from skws.queries.patterns.pattern_text import read_query
from skws_patterns.columnar_evaluator import ColumnarEvaluator, StreamTuples, TooManyRunsError, column_plan
from skws_patterns.pcea import PCEA
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_schema.model import Row
from skws_windows.window import CountWindow


def automaton(load: Load) -> PCEA:
    return read_query(load.text, load.schema()).pcea


def evaluator(load: Load, window: int) -> TupleEvaluator:
    return TupleEvaluator(automaton(load), len(load.relations), CountWindow(window))


def read(path: Path) -> list[Event]:
    lines = (tuple(map(int, line.split())) for line in path.read_text().splitlines())
    return [(event[0], event[1:]) for event in lines]


def matches(by_tuples: TupleEvaluator, events: Iterable[tuple[int, Row]]) -> int:
    """The number of matches that the events complete; each match is constructed."""
    count = 0
    for relation, row in events:
        if by_tuples.update(relation, row):
            for _ in by_tuples.results():
                count += 1
    return count


def batches(events: list[Event], size: int) -> list[StreamTuples]:
    """The events as columns, as a replay delivers them."""
    tuple_batches = []
    for begin in range(0, len(events), size):
        batch = events[begin : begin + size]
        places = np.arange(begin, begin + len(batch))
        relations = np.array([relation for relation, _ in batch], dtype=np.int64)
        tuple_batches.append(StreamTuples(places, relations, places, [row for _, row in batch]))
    return tuple_batches


def columnar(load: Load, window: int) -> ColumnarEvaluator:
    plan = column_plan(automaton(load))
    assert plan is not None
    return ColumnarEvaluator(plan, CountWindow(window))


def matches_by_columns(
    by_columns: ColumnarEvaluator, by_tuples: TupleEvaluator, tuple_batches: list[StreamTuples]
) -> int:
    """The number of matches in batches, as in a search over a replay; matches are tuples of positions."""
    count = 0
    for number, tuples in enumerate(tuple_batches):
        try:
            completed = by_columns.take(tuples)
        except TooManyRunsError:
            for position, relation, row, _ in by_columns.live():
                by_tuples.position = position - 1
                by_tuples.update(relation, row)
            remaining = (zip(t.relation.tolist(), t.rows, strict=True) for t in tuple_batches[number:])
            return count + matches(by_tuples, chain.from_iterable(remaining))
        count += len([*zip(*completed.marked.tolist(), strict=True)])
    return count


def main() -> None:
    task = json.loads(sys.argv[1])
    load, events = LOADS[task["load"]], read(Path(task["events"]))
    tuple_batches = batches(events, task["batch"] or len(events)) if task["by_columns"] else []
    by_columns, by_tuples = columnar(load, task["window"]), evaluator(load, task["window"])
    expect_long_lived_objects()
    wall, cpu = time.perf_counter(), time.process_time()
    count = (
        matches_by_columns(by_columns, by_tuples, tuple_batches)
        if tuple_batches
        else matches(by_tuples, events)
    )
    times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": count, **times}))


if __name__ == "__main__":
    main()
