"""A pattern gives the same over a replay as over a stream, also after switching to its automaton."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.evaluator import OrderedBatch
from skws.queries.patterns import kind as replays
from skws.queries.patterns.kind import ReplayedPattern
from skws.queries.patterns.stream import PatternStream
from skws.queries.patterns.text import read_query
from skws_patterns.evaluation import columnar as by_columns
from skws_windows.window import Unbounded, Window
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
        arrived = OrderedBatch(RecordBatch.of(records), 0)
        found = list(pattern.take(arrived))
        assert ReplayedPattern(query, SCHEMA, window).count(arrived) == len(expected)
    assert Counter(found) == Counter(expected)
    last = [[result.tuples[-1].position for result in results] for results in (found, expected)]
    assert last[0] == last[1]


def test_more_results_than_could_be_formed_are_counted() -> None:
    """Two hundred of each: 8 million results, and more partial runs than columns are for."""
    query = read_query("Q(x) <- A(_, x, _), B(_, x, _), C(_, x, _)", SCHEMA)
    records = [Record(i % 3, i, ("alpha", 1, 0)) for i in range(600)]
    arrived = OrderedBatch(RecordBatch.of(records), 0)
    assert ReplayedPattern(query, SCHEMA, Unbounded()).count(arrived) == 200**3
