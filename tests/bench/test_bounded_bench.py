"""The queries of the benchmark in constant memory, and their results."""

from __future__ import annotations

import json

import pytest

from bench.bounded import decide, keywords_run, skws_run
from bench.bounded.load import records
from skws_bounds.sql import parse_sql
from skws_bounds.verdict import check


def _expected(count: int) -> int:
    arrived = list(records(count))
    return sum(
        1
        for name, a, i in arrived
        if name == "s"
        for other, b, j in arrived
        if other == "t" and i > j and a > b and 0 < b < 5
        for third, _, k in arrived
        if third == "u" and j > k
    )


def test_results_are_those_of_the_query(capsys: pytest.CaptureFixture[str]) -> None:
    skws_run.main(90, 30)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["records"] for line in told] == [30, 60, 90]
    assert [line["results"] for line in told] == [_expected(30), _expected(60), _expected(90)]


def test_the_long_stream_is_of_a_bounded_query() -> None:
    assert check(parse_sql(skws_run.QUERY, skws_run.schema())).bounded


def test_decisions_are_taken_within_a_second() -> None:
    middle, most, verdicts = decide.seconds(40)
    assert middle <= most < 2  # on a machine that has other work to do
    assert verdicts[True]
    assert verdicts[False]


def test_a_keyword_query_finds_the_mergers_of_its_sector(capsys: pytest.CaptureFixture[str]) -> None:
    keywords_run.main(6000, 3000)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [sum(n % 7 == 0 and n % 2 == 0 for n in range(1, last + 1)) for last in (5000, 6000)]
    assert [(line["records"], line["results"]) for line in told] == list(
        zip((5000, 6000), expected, strict=True)
    )
