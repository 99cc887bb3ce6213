"""Columnar evaluation has the matches of the automaton, and can hand over to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skws_patterns.columnar_evaluator import ColumnarEvaluator, StreamTuples, TooManyRunsError, column_plan
from skws_patterns.hcq import ConjunctiveQuery, parse_conjunctive_query
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.pattern_parser import Pattern, parse_pattern
from skws_patterns.pcea import PCEA
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_schema.errors import PatternError
from skws_schema.model import Row
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.patterns import hierarchical_queries as formal
from tests.patterns import pattern_matches as written
from tests.patterns.paper_examples import P0, Q0, SCHEMA, STREAM
from tests.patterns.pattern_matches import contains
from tests.patterns.test_oracle_queries import NESTED
from tests.strategies import examples

WINDOWS = st.one_of(
    st.builds(CountWindow, st.integers(1, 6)), st.builds(TimeWindow, st.integers(1, 8)), st.just(Unbounded())
)
SIZES = st.lists(st.integers(0, 6), max_size=6)
GAPS = st.lists(st.sampled_from([0, 0, 1, 3]), min_size=12, max_size=12)
Results = list[Counter[frozenset[tuple[int, str]]]]


def by_tuple(pcea: PCEA, stream: Sequence[tuple[int, Row]], ticks: list[int], window: Window) -> Results:
    evaluator = TupleEvaluator(pcea, 3, window)
    return [
        Counter(
            frozenset((position, label) for position, labels in valuation for label in labels)
            for valuation in evaluator.feed(relation, row, tick)
        )
        for (relation, row), tick in zip(stream, ticks, strict=True)
    ]


def batches_of(
    stream: Sequence[tuple[int, Row]], ticks: list[int], sizes: list[int]
) -> Iterator[StreamTuples]:
    start = 0
    for size in [*sizes, len(stream)]:
        end = min(start + size, len(stream))
        positions = np.arange(start, end)
        yield StreamTuples(
            positions,
            np.array([relation for relation, _ in stream[start:end]], dtype=np.int64),
            np.array(ticks[start:end], dtype=np.int64),
            [row for _, row in stream[start:end]],
        )
        start = end


def by_columns(
    pcea: PCEA, stream: Sequence[tuple[int, Row]], ticks: list[int], window: Window, sizes: list[int]
) -> Results | None:
    plan = column_plan(pcea)
    if plan is None:
        return None
    evaluator = ColumnarEvaluator(plan, window)
    results: Results = [Counter() for _ in stream]
    for tuples in batches_of(stream, ticks, sizes):
        matches = evaluator.take(tuples)
        assert matches.last.tolist() == sorted(matches.last.tolist())
        for last, positions in zip(matches.last.tolist(), matches.marked.T.tolist(), strict=True):
            assert last == max(positions)
            marks = ((p, label) for p, label in zip(positions, plan.labels, strict=True) if p >= 0)
            results[last][frozenset(marks)] += 1
    return results


def ticks_of(stream: Sequence[object], gaps: list[int], window: Window) -> list[int]:
    """Positions, for count windows."""
    if isinstance(window, CountWindow):
        return list(range(len(stream)))
    return [*accumulate(gaps[: len(stream)])]


@examples(80)
@given(formal.hierarchical_queries(), formal.streams(12), GAPS, WINDOWS, SIZES)
def test_queries_by_columns_and_by_tuple(
    query: ConjunctiveQuery,
    stream: list[tuple[int, Row]],
    gaps: list[int],
    window: Window,
    sizes: list[int],
) -> None:
    pcea, ticks = automaton_of(query), ticks_of(stream, gaps, window)
    results = by_columns(pcea, stream, ticks, window, sizes)
    assert results == by_tuple(pcea, stream, ticks, window)


@examples(80)
@given(written.patterns(), written.streams(10), GAPS, WINDOWS, SIZES)
def test_patterns_by_columns_and_by_tuple(
    pattern: Pattern, stream: list[tuple[int, Row]], gaps: list[int], window: Window, sizes: list[int]
) -> None:
    try:
        pcea = compile_pattern(pattern, written.SCHEMA, contains).pcea
    except PatternError:
        assume(False)
        raise
    ticks = ticks_of(stream, gaps, window)
    results = by_columns(pcea, stream, ticks, window, sizes)
    assume(results is not None)
    assert results == by_tuple(pcea, stream, ticks, window)


def test_which_patterns_can_be_evaluated_by_columns() -> None:
    def is_planned(text: str) -> bool:
        compiled = compile_pattern(parse_pattern(text, written.SCHEMA), written.SCHEMA, contains)
        return column_plan(compiled.pcea) is not None

    assert is_planned("A a ; B b where a.x = b.x")
    assert is_planned("(A a AND B b) OR C c")
    assert not is_planned("A a+ ; B b")
    assert not is_planned("A a ; A a")
    assert column_plan(P0) is None  # it labels all tuples the same


def test_expired_keys_are_forgotten() -> None:
    pcea = compile_pattern(
        parse_pattern("A a ; B b where a.x = b.x", written.SCHEMA), written.SCHEMA, contains
    ).pcea
    stream: list[tuple[int, Row]] = [(i % 2, (i // 2, 0)) for i in range(20_000)]
    ticks, window = list(range(len(stream))), CountWindow(10)
    plan = column_plan(pcea)
    assert plan is not None
    evaluator = ColumnarEvaluator(plan, window)
    count = sum(len(evaluator.take(tuples)) for tuples in batches_of(stream, ticks, [500] * 40))
    assert count == 10_000
    assert evaluator.keys < 3_000
    assert len(list(evaluator.live())) <= 11


@pytest.mark.parametrize(("pairs", "ends"), [(60, 400), (100, 0)], ids=["results", "partial"])
def test_too_many_runs_raise_an_error(pairs: int, ends: int) -> None:
    """Evaluation can continue from the earlier events."""
    text = "(A a ; B b) AND C c where a.x = b.x = c.x"
    pcea = compile_pattern(parse_pattern(text, written.SCHEMA), written.SCHEMA, contains).pcea
    plan = column_plan(pcea)
    assert plan is not None
    evaluator = ColumnarEvaluator(plan, Unbounded())
    before: list[tuple[int, Row]] = [(0, (1, 0)), (1, (1, 0))]
    after: list[tuple[int, Row]] = [*[(0, (1, 0))] * pairs, *[(1, (1, 0))] * pairs, *[(2, (1, 0))] * ends]
    first, second = batches_of([*before, *after], list(range(len(before + after))), [2])
    assert not len(evaluator.take(first))
    with pytest.raises(TooManyRunsError):
        evaluator.take(second)
    assert [(relation, row) for _, relation, row, _ in evaluator.live()] == before


def test_the_example_stream_of_the_paper() -> None:
    pcea = automaton_of(parse_conjunctive_query(Q0, SCHEMA))
    by_position = by_columns(pcea, STREAM, list(range(len(STREAM))), Unbounded(), [])
    assert by_position is not None
    assert [len(results) for results in by_position] == [0, 0, 0, 0, 0, 2, 0, 0]


@pytest.mark.check
@pytest.mark.parametrize("window", [CountWindow(6), CountWindow(9), TimeWindow(8)], ids=repr)
@pytest.mark.parametrize("text", NESTED)
def test_partial_runs_may_begin_before_the_window(text: str, window: Window) -> None:
    random, pcea = Random(1), automaton_of(parse_conjunctive_query(text, formal.SCHEMA))
    stream: list[tuple[int, Row]] = [
        (random.randrange(3), tuple(random.choice((0, 1)) for _ in range(3))) for _ in range(150)
    ]
    ticks = list(range(len(stream)))
    expected = by_tuple(pcea, stream, ticks, window)
    assert sum(map(len, expected)) > 10
    for size in (1, 7, 150):
        assert by_columns(pcea, stream, ticks, window, [size] * (150 // size)) == expected
