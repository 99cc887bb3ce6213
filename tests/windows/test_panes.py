"""Aggregates by panes compared with aggregates of the records."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf
from statistics import fmean, pvariance
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.errors import UsageError
from skws_schema.model import Value
from skws_windows.automata import regular as r
from skws_windows.automata.regular import Selection, expression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.processor.panes import Aggregate, FoldLevels, Monoid, monoid, names, register, unregister
from skws_windows.processor.stream_processor import Processor
from tests.strategies import examples, seeds
from tests.window_streams import ALPHABET, regulars, words

AGGREGATES = (
    Aggregate("count"),
    *(Aggregate(name, field) for field in ("x", "y") for name in names()),
    Aggregate("min", "s"),
    Aggregate("last", "s"),
)


def aggregate_of(aggregate: Aggregate, records: list[StreamRecord]) -> Value:
    if aggregate.field is None:
        return len(records)
    values = [v for record in records if (v := ALPHABET.value(aggregate.field, record)) is not None]
    functions: dict[str, Callable[[Any], Any]] = {
        "count": len,
        "sum": sum,
        "mean": fmean,
        "min": min,
        "max": max,
        "first": lambda vs: vs[0],
        "last": lambda vs: vs[-1],
        "variance": lambda vs: float(pvariance(vs)),
    }
    if not values and aggregate.monoid != "count":
        return None
    result: Value = functions[aggregate.monoid](values)
    return result


@examples(80)
@given(
    st.integers(0, 1).flatmap(lambda k: st.tuples(st.just(k), regulars(k), regulars(k))),
    words(14),
    st.integers(0, 14),
    st.sampled_from(Selection),
)
def test_windows_have_the_aggregates_of_their_records(
    case: tuple[int, r.Regular, r.Regular], word: list[StreamRecord], cut: int, selection: Selection
) -> None:
    k, before, window = case
    processor = Processor(expression([(before, window)], k, selection), ALPHABET, AGGREGATES)
    for batch in (word[:cut], word[cut:]):
        for found_window in processor.process(batch):
            records = word[found_window.first : found_window.last + 1]
            expected = [aggregate_of(aggregate, records) for aggregate in AGGREGATES]
            assert list(found_window.aggregates) == pytest.approx(expected, nan_ok=False)
            for value, expected_value in zip(found_window.aggregates, expected, strict=True):
                assert type(value) is type(expected_value)


@pytest.mark.check
@pytest.mark.parametrize("sparse", [False, True])
@seeds(1, 2)
def test_overlapping_windows_over_many_batches(seed: int, sparse: bool) -> None:
    """Panes are also cut where batches end; if windows rarely begin, a pane has many values."""
    rng = random.Random(seed)
    word = [
        StreamRecord(
            0,
            i,
            (
                rng.choice((None, -3, 0, 2, 7)),
                rng.choice((None, -1.5, 0.25, 3.0)),
                rng.choice((None, "a", "b")),
            ),
        )
        for i in range(300)
    ]
    window = r.repeat(r.ANY, 2, 9)
    if sparse:
        window = r.then(r.LetterBlock(g.Compare("=", g.Field("x"), g.GuardConstant(7))), window)
    processor = Processor(expression([(r.EVERYTHING, window)]), ALPHABET, AGGREGATES)
    windows: list[tuple[int, int]] = []
    position = 0
    while position < len(word):
        size = rng.choice((1, 2, 3, 5, 60))
        for found_window in processor.process(word[position : position + size]):
            records = word[found_window.first : found_window.last + 1]
            assert list(found_window.aggregates) == pytest.approx(
                [aggregate_of(a, records) for a in AGGREGATES]
            )
            windows.append((found_window.first, found_window.last))
        position += size
    starts = [i for i in range(300) if not sparse or word[i].row[0] == 7]
    lengths = range(3 if sparse else 2, 11 if sparse else 10)
    assert sorted(windows) == [(i, i + n - 1) for i in starts for n in lengths if i + n <= 300]


@examples(100)
@given(st.lists(st.sampled_from((1e16, -1e16, 1.0, 0.1, 3e-5, 1e300, -1e300)), min_size=1, max_size=20))
def test_sums_keep_their_precision_beside_large_values(values: list[float]) -> None:
    word = [StreamRecord(0, i, (None, value, None)) for i, value in enumerate(values)]
    window_expression = expression([(r.EVERYTHING, r.repeat(r.ANY, 1, None))])
    processor = Processor(window_expression, ALPHABET, [Aggregate("sum", "y")])
    for window in processor.process(word):
        exact_sum = sum(Fraction(value) for value in values[window.first : window.last + 1])
        largest = max(abs(v) for v in values)
        assert window.aggregates[0] == pytest.approx(float(exact_sum), rel=1e-12, abs=largest * 1e-28)


def test_a_sum_that_is_infinite_leaves_later_windows_finite() -> None:
    word = [StreamRecord(0, i, (None, value, None)) for i, value in enumerate((1.7e308, 1.7e308, 2.0, 3.0))]
    aggregates = [Aggregate(name, "y") for name in ("sum", "mean")]
    processor = Processor(expression([(r.EVERYTHING, r.repeat(r.ANY, 2, 2))]), ALPHABET, aggregates)
    values = [w.aggregates for batch in (word[:3], word[3:]) for w in processor.process(batch)]
    assert values == [(inf, 1.7e308), (1.7e308, 8.5e307), (5.0, 2.5)]


def test_whole_numbers_are_summed_exactly() -> None:
    word = [StreamRecord(0, i, (2**62 + i, None, None)) for i in range(6)]
    processor = Processor(
        expression([(r.EVERYTHING, r.repeat(r.ANY, 3, 3))]), ALPHABET, [Aggregate("sum", "x")]
    )
    sums = [w.aggregates[0] for batch in (word[:2], word[2:]) for w in processor.process(batch)]
    assert sums == [3 * 2**62 + 3 * i + 3 for i in range(4)]


@given(st.lists(st.text("ab", max_size=1), min_size=1, max_size=40), st.data())
def test_fold_levels_fold_every_suffix_in_order(elements: list[str], data: st.DataObject) -> None:
    levels = FoldLevels(lambda a, b: a + b)
    for element in elements:
        levels.append(element)
    drop_count = data.draw(st.integers(0, len(elements) - 1))
    levels.drop(drop_count)
    for start in range(len(elements) - drop_count):
        assert levels.fold(start) == "".join(elements[drop_count + start :])


def test_panes_and_starts_are_limited_by_open_windows() -> None:
    # Of rising values, each is the minimum of those from it on.
    aggregates = [*(Aggregate(name, "x") for name in names()), Aggregate("min", "y")]
    processor = Processor(expression([(r.EVERYTHING, r.repeat(r.ANY, 5, 5))]), ALPHABET, aggregates)
    for i in range(200):
        batch = [StreamRecord(0, i, (i * j % 17, float(50 * i + j), None)) for j in range(50)]
        assert sum(1 for _ in processor.process(batch)) == 50 - (4 if i == 0 else 0)
        assert processor.open_starts == 4
        assert processor.panes < 4 * 256


def test_monoids_are_registered_once() -> None:
    longest = register(Monoid("longest_text", str, lambda a, b: max(a, b, key=len), lambda v: v))
    try:
        processor = Processor(
            expression([(r.EVERYTHING, r.repeat(r.ANY, 2, 2))]), ALPHABET, [Aggregate("longest_text", "s")]
        )
        word = [StreamRecord(0, 0, (None, None, text)) for text in ("red", "green", None, "")]
        assert [w.aggregates for w in processor.process(word)] == [("green",), ("green",), ("",)]
        for name in ("longest_text", "mean", "max"):
            with pytest.raises(ValueError, match=name):
                register(replace(longest, name=name))
    finally:
        unregister("longest_text")
    with pytest.raises(UsageError, match="did you mean 'variance'"):
        monoid("varianze")
