"""Patterns on synopses give the same as the pattern engine, which keeps every tuple."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from skws.data.batch import Record
from skws.queries.patterns.selected import Selected, SelectedRun, selected
from skws_bounds.run import Output
from skws_bounds.verdict import check
from tests.bounds.pattern_streams import PATTERNS, SCHEMA, by_the_pattern_engine, stream


def read(text: str, shown: str) -> Selected:
    return selected(text, SCHEMA, tuple(filter(None, shown.split(","))))


def by_synopses(pattern: Selected, records: list[Record], restart: int) -> Counter[tuple[int, Output]]:
    """What is told, with one restart from JSON."""
    run = SelectedRun(pattern)
    found: Counter[tuple[int, Output]] = Counter()
    for number, record in enumerate(records):
        if number == restart:
            state = json.loads(json.dumps(run.snapshot()))
            run = SelectedRun(pattern)
            run.restore(state)
        for time, values, times in run.take(record.relation, record.time, record.row):
            assert not found[time, values]
            found[time, values] += times
    for time, values, times in run.end():
        found[time, values] += times
    return found


@pytest.mark.parametrize(("text", "shown"), PATTERNS)
def test_synopses_show_what_the_pattern_engine_shows(text: str, shown: str) -> None:
    pattern = read(text, shown)
    assert check(pattern.union).bounded
    told = 0
    for seed in range(6):
        records = stream(seed, 60)
        expected = by_the_pattern_engine(text, shown, records)
        assert by_synopses(pattern, records, restart=10 * seed) == expected
        told += sum(expected.values())
    assert told
