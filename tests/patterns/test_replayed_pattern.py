"""A pattern gives the same over a replay as over a stream, also after switching to its automaton."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.patterns import PatternStream, read_query
from skws.queries.patterns import replayed as replays
from skws.queries.patterns.replayed import ReplayedPattern
from skws_patterns.evaluation import columnar as by_columns
from skws_windows.window import CountWindow, Unbounded, Window
from tests.patterns.test_pattern_stream import PATTERN, SCHEMA, WINDOWS, told
from tests.strategies import examples
from tests.strategies import streams as record_streams

TEXTS = [
    PATTERN,
    "A a ; B b ; C c where a.x = b.x = c.x",
    "(A a ; B b) AND C c where a.x = b.x = c.x",
    "Q(x, y) <- A(_, x, _), B(_, x, y), C(_, x, y)",
    "Q(x) <- A(_, x, _), A(_, x, x), B(_, x, _)",
    "A a+ ; B b where a.x = b.x",
]


@pytest.mark.parametrize("text", TEXTS)
@examples(30)
@given(
    records=record_streams(SCHEMA, 2, max_records=24),
    window=st.sampled_from(WINDOWS),
    size=st.integers(1, 9),
    most=st.sampled_from([0, 1, 500_000]),
)
def test_results_and_counts(text: str, records: list[Record], window: Window, size: int, most: int) -> None:
    """However large batches are, and whenever there get to be too many results for columns."""
    query = read_query(text, SCHEMA)
    expected = told(PatternStream(query, SCHEMA, window), records)
    with patch.object(replays, "BATCH", size), patch.object(by_columns, "MOST_RESULTS", most):
        pattern = ReplayedPattern(query, SCHEMA, window)
        found = list(pattern.results(pattern.stream.tuples(RecordBatch.of(records))))
        counted = ReplayedPattern(query, SCHEMA, window)
        assert sum(counted.counted(counted.stream.tuples(RecordBatch.of(records)))) == len(expected)
    assert Counter(result for _, result in found) == Counter(expected)
    assert [position for position, _ in found] == [result.tuples[-1].position for result in expected]


@pytest.mark.parametrize("begin", [0, 4, 9, 100])
@pytest.mark.parametrize("most", [0, 500_000])
def test_what_comes_before_a_slice_is_not_told(begin: int, most: int) -> None:
    query = read_query("A a ; C c where a.x = c.x", SCHEMA)
    records = [Record(2 * (i % 2), i, ("alpha", i % 3, 0)) for i in range(24)]
    whole = told(PatternStream(query, SCHEMA, CountWindow(5)), records)
    expected = [result for result in whole if result.tuples[-1].position >= begin]
    assert len(whole) > 5
    with patch.object(by_columns, "MOST_RESULTS", most), patch.object(replays, "BATCH", 3):
        pattern, counted = (ReplayedPattern(query, SCHEMA, CountWindow(5)) for _ in range(2))
        found = [r for _, r in pattern.results(pattern.stream.tuples(RecordBatch.of(records)), begin)]
        assert Counter(found) == Counter(expected)
        assert sum(counted.counted(counted.stream.tuples(RecordBatch.of(records)), begin)) == len(expected)


def test_more_results_than_could_be_formed_are_counted() -> None:
    """Two hundred of each: 8 million results, and more partial runs than columns are for."""
    query = read_query("Q(x) <- A(_, x, _), B(_, x, _), C(_, x, _)", SCHEMA)
    records = [Record(i % 3, i, ("alpha", 1, 0)) for i in range(600)]
    counted = ReplayedPattern(query, SCHEMA, Unbounded())
    assert sum(counted.counted(counted.stream.tuples(RecordBatch.of(records)))) == 200**3
