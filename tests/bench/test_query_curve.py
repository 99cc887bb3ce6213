"""The curve over standing queries: all points are measured, all queries are distinct."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.load import query_texts
from bench.queries import chosen, points, write_csv
from skws_schema.errors import UsageError


def test_queries_differ() -> None:
    assert len(set(query_texts(1000))) == 1000
    assert query_texts(10) == query_texts(100)[:10]


@pytest.mark.parametrize("numbers", ["", "0", "1,x", "1.5"])
def test_numbers_are_checked(numbers: str) -> None:
    with pytest.raises(UsageError, match="expected positive numbers"):
        chosen(numbers)


def test_points_of_a_short_stream(tmp_path: Path) -> None:
    found = write_csv(points(0.05, [1, 6], 1, 120.0, lambda _: None), tmp_path / "queries.csv")
    assert [(p.queries, p.tuples) for p in found] == [(1, 3600), (6, 3600)]
    assert found[0].ratio == 1.0
    assert found[1].results >= found[0].results
    assert len((tmp_path / "queries.csv").read_text().splitlines()) == 3
