"""Matches of the pattern loads, compared with published counts and with nested loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from pathlib import Path

import pytest

from bench.patterns.children.skws_engine import (
    automaton,
    batches,
    columnar,
    evaluator,
    matches,
    matches_by_columns,
    read,
)
from bench.patterns.growth import measure, one_key
from bench.patterns.loads import DRAWN, EVENTS, NESTED, STAR, Load, write
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_windows.window import CountWindow


@pytest.mark.parametrize("load", DRAWN, ids=lambda load: load.name)
def test_pattern_matches_equal_those_of_nested_loops(load: Load, tmp_path: Path) -> None:
    load = replace(load, values=3)
    path = tmp_path / "events"
    assert write(path, islice(load.events(), 60)) == 60
    events = read(path)
    assert events == list(islice(load.events(), 60))
    window, expected = 15, 0
    by_relation = [[(i, row) for i, (r, row) in enumerate(events) if r == relation] for relation in range(3)]
    for (i, a), (j, b), (k, c) in product(*by_relation):
        agree = a[0] == b[0] == c[0] and b[1:] == c[1:]
        expected += agree and max(i, j, k) - min(i, j, k) <= window
    assert expected > 0
    assert matches(TupleEvaluator(automaton(load), 3, CountWindow(window)), events) == expected
    for size in (7, 60):
        assert (
            matches_by_columns(columnar(load, window), evaluator(load, window), batches(events, size))
            == expected
        )


@pytest.mark.slow
@pytest.mark.parametrize(("load", "published"), [(STAR, 98_793), (NESTED, 97_386)], ids=["star", "nested"])
def test_match_counts_equal_those_published_for_other_engines(load: Load, published: int) -> None:
    running = evaluator(load, load.window)
    count = sum(running.count() for event in islice(load.events(), EVENTS) if running.update(*event))
    assert count == published


def test_growth_counts_matches_completed_by_the_last_events() -> None:
    star, nested = (measure(load, 30, one_key(load)) for load in (STAR, NESTED))
    assert star.matches == nested.matches == 10 * 10
