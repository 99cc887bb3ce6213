"""The loads of the comparison of pattern engines: the query over them, against loops."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from bench.patterns.children.skws_engine import automaton, matches, read
from bench.patterns.growth import measure, one_key
from bench.patterns.loads import LOADS, NESTED, STAR, Load


@pytest.mark.parametrize("name", LOADS)
def test_matches_are_those_of_loops(name: str, tmp_path: Path) -> None:
    load = Load(name, LOADS[name].query, LOADS[name].arities, 3)
    load.write(tmp_path / "events", 60)
    events = read(tmp_path / "events", load)
    assert events == list(load.events(60))
    window, expected = 15, 0
    by_relation = [[(i, row) for i, (r, row) in enumerate(events) if r == relation] for relation in range(3)]
    for (i, a), (j, b), (k, c) in product(*by_relation):
        agree = a[0] == b[0] == c[0] and b[1:] == c[1:]
        expected += agree and max(i, j, k) - min(i, j, k) <= window
    assert expected > 0
    assert matches(automaton(load), events, window) == expected


def test_growth_counts_what_the_last_event_completes() -> None:
    star, nested = (measure(load, 30, one_key(load)) for load in (STAR, NESTED))
    assert star.matches == nested.matches == 10 * 10
