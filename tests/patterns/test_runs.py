"""Evaluation by columns: equal keys have equal numbers across batches; replays and counts of results."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch
from skws.queries.evaluator import OrderedBatch
from skws.queries.patterns.pattern_kind import ReplayedPattern
from skws.queries.patterns.pattern_text import read_query
from skws.queries.patterns.stream import PatternStream
from skws_patterns.columnar_evaluator import NONE, Numbers, ValueColumn
from skws_schema.model import Value
from skws_windows.window import Unbounded, Window
from tests.patterns.test_pattern_stream import PATTERN, SCHEMA, WINDOWS, results_of
from tests.strategies import examples
from tests.strategies import streams as record_streams

INTEGERS = st.sampled_from([0, 1, -1, 7, 2**40, -(2**62), 2**62, 2**63 - 1, -(2**63), 2**70])
VALUES: st.SearchStrategy[Value] = INTEGERS | st.sampled_from([None, True, False, 1.0, 0.5, "1", "é", ""])
DENSE = st.integers(-2, 2)
KEYS = st.tuples(VALUES, VALUES) | st.tuples(INTEGERS, INTEGERS)
PAIRS = st.lists(st.tuples(DENSE, DENSE), max_size=9) | st.lists(st.tuples(INTEGERS, DENSE), max_size=9)
BATCHES = st.lists(PAIRS | st.lists(KEYS, max_size=9), max_size=4)


@given(BATCHES)
def test_equal_keys_alone_have_equal_numbers(
    batches: list[list[tuple[Value, Value]]],
) -> None:
    numbers = Numbers()
    numbers_by_key: dict[tuple[Value, Value], int] = {}
    for batch in batches:
        columns = [ValueColumn.of(key[0] for key in batch), ValueColumn.of(key[1] for key in batch)]
        for key, number in zip(batch, numbers.of(columns, len(batch)).tolist(), strict=True):
            if None in key:
                assert number == NONE
            else:
                assert numbers_by_key.setdefault(key, number) == number
    assert len(set(numbers_by_key.values())) == len(numbers_by_key)


@given(st.lists(st.lists(VALUES, max_size=9) | st.lists(INTEGERS, max_size=9), max_size=4))
def test_equal_keys_of_one_column_alone_have_equal_numbers(batches: list[list[Value]]) -> None:
    numbers = Numbers()
    numbers_by_key: dict[Value, int] = {}
    for batch in batches:
        for value, number in zip(
            batch, numbers.of([ValueColumn.of(batch)], len(batch)).tolist(), strict=True
        ):
            assert number == (NONE if value is None else numbers_by_key.setdefault(value, number))
    assert len(set(numbers_by_key.values())) == len(numbers_by_key)


TEXTS = [
    PATTERN,
    "A a ; B b ; C c where a.x = b.x = c.x",
    "(A a ; B b) AND C c where a.x = b.x = c.x",
    "Q(x, y) <- A(_, x, _), B(_, x, y), C(_, x, y)",
    "Q(x) <- A(_, x, _), A(_, x, x), B(_, x, _)",
    "A a+ ; B b where a.x = b.x",
]


@pytest.mark.check
@pytest.mark.parametrize("text", TEXTS)
@examples(30)
@given(
    records=record_streams(SCHEMA, 2, max_records=24),
    window=st.sampled_from(WINDOWS),
    size=st.integers(1, 9),
    max_results=st.sampled_from([0, 1, 500_000]),
)
def test_replayed_results_and_counts(
    text: str, records: list[Record], window: Window, size: int, max_results: int
) -> None:
    """For any size of batches, and whenever there are too many results for columns."""
    query = read_query(text, SCHEMA)
    expected = results_of(PatternStream(query, SCHEMA, window), records)
    taking, counting = (ReplayedPattern(query, SCHEMA, window, max_results) for _ in range(2))
    batches = []
    for start in range(0, len(records), size):
        insertions = sum(not record.delete for record in records[:start])
        batches.append(OrderedBatch(RecordBatch.of(records[start : start + size]), insertions))
    replayed = [result for part in batches for result in taking.take(part)]
    assert sum(map(counting.count, batches)) == len(expected)
    assert Counter(replayed) == Counter(expected)
    last = [[result.tuples[-1].position for result in results] for results in (replayed, expected)]
    assert last[0] == last[1]


def test_too_many_results_to_build_are_counted() -> None:
    """Two hundred of each: 8 million results, and more partial runs than columns support."""
    query = read_query("Q(x) <- A(_, x, _), B(_, x, _), C(_, x, _)", SCHEMA)
    records = [Record(i % 3, i, ("alpha", 1, 0)) for i in range(600)]
    batch = OrderedBatch(RecordBatch.of(records), 0)
    assert ReplayedPattern(query, SCHEMA, Unbounded()).count(batch) == 200**3
