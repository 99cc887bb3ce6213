"""skws: every match is enumerated."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.patterns.loads import LOADS, Load
from patterns.automata import PCEA
from patterns.evaluation import Evaluator
from patterns.queries import automaton_of, parse_conjunctive_query
from schema.model import Attribute, AttributeType, Relation, Schema
from skws.engine.collector import expect_long_lived_objects
from windows.window import CountWindow

Events = list[tuple[int, tuple[int, ...]]]


def schema(load: Load) -> Schema:
    relations = (
        Relation(name, tuple(Attribute(a, AttributeType.INTEGER) for a in "xy"[:arity]))
        for name, arity in zip("ABC", load.arities, strict=True)
    )
    return Schema(load.name, tuple(relations), ())


def automaton(load: Load) -> PCEA:
    return automaton_of(parse_conjunctive_query(load.query, schema(load)))


def read(path: Path, load: Load) -> Events:
    split = (tuple(map(int, line.split())) for line in path.read_text().splitlines())
    return [(event[0], event[1 : 1 + load.arities[event[0]]]) for event in split]


def matches(pcea: PCEA, events: Events, window: int) -> int:
    evaluator = Evaluator(pcea, 3, CountWindow(window))
    found = 0
    for relation, row in events:
        if evaluator.update(relation, row):
            for _ in evaluator.results():
                found += 1
    return found


def main() -> None:
    load, path, window = LOADS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])
    events, pcea = read(path, load), automaton(load)
    expect_long_lived_objects()
    begun = time.perf_counter()
    found = matches(pcea, events, window)
    print(json.dumps({"matches": found, "seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
