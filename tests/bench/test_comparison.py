"""SQLite triggers, SQLite polling and skws find the same results for saved searches."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from bench.comparison import changes, contenders, measure, searches, write
from bench.load import WORDS


@pytest.mark.check
def test_all_contenders_find_the_same_results(tmp_path: Path) -> None:
    rng = random.Random(3)
    records = changes(300, rng)
    rows = [change["row"] for change in records if change["op"] == "+"]
    items = [word for row in rows if "item" in row for word in row["item"].split()]
    bodies = [word for row in rows if "body" in row for word in row["body"].split()]
    pairs = list(dict.fromkeys((rng.choice(items), rng.choice(bodies)) for _ in range(300)))
    write(tmp_path, pairs, records)
    live_counts = [
        (measurement.live, live)
        for contender in contenders(sys.executable, 50)
        if "DuckDB" not in contender.name
        for measurement, live in [measure(contender, tmp_path, 1)]
    ]
    assert len(live_counts) == 3
    assert live_counts[0][0] == len(live_counts[0][1]) > 0
    assert all(live == live_counts[0][1] for _, live in live_counts)


def test_searches_are_distinct_pairs_of_words() -> None:
    pairs = searches(1_000, random.Random(1))
    assert len(set(pairs)) == 1_000
    assert {word for pair in pairs for word in pair} <= set(WORDS)
