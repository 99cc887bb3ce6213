"""HCQ -> PCEA -> evaluation, compared with homomorphisms by brute force, after every tuple."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_patterns.hcq import ConjunctiveQuery, parse_conjunctive_query
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.pcea import PCEA
from skws_patterns.tuple_evaluator import TupleEvaluator, Valuation
from skws_schema.model import Row
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.run_trees import accepting_runs, by_label
from tests.patterns.hierarchical_queries import (
    ARITY,
    RELATIONS,
    SCHEMA,
    hierarchical_queries,
    homomorphisms,
    is_hierarchical,
    streams,
)
from tests.strategies import examples


def images(query: ConjunctiveQuery, valuations: list[Valuation]) -> list[tuple[int, ...]]:
    """The position of each atom; fails unless each atom has exactly one."""
    positions_by_label = [by_label(valuation) for valuation in valuations]
    for positions in positions_by_label:
        assert all(len(marked) == 1 for marked in positions.values())
    return sorted(tuple(min(p[str(i)]) for i in range(len(query.atoms))) for p in positions_by_label)


def reverse_order(pcea: PCEA) -> PCEA:
    return PCEA(tuple(reversed(pcea.transitions)), pcea.final)


WINDOWS: st.SearchStrategy[Window] = st.one_of(
    st.builds(CountWindow, st.integers(1, 5)), st.builds(TimeWindow, st.integers(1, 6)), st.just(Unbounded())
)
GAPS = st.lists(st.sampled_from([0, 0, 1, 3]), min_size=9, max_size=9)


@given(hierarchical_queries(), streams(), GAPS, WINDOWS)
@examples(200)
def test_results_equal_the_homomorphisms_after_every_tuple(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]], gaps: list[int], window: Window
) -> None:
    """For any order of an automaton's transitions."""
    assert is_hierarchical(query)
    pcea = automaton_of(query)
    evaluators = [TupleEvaluator(automaton, RELATIONS, window) for automaton in (pcea, reverse_order(pcea))]
    ticks: list[int] = []
    for position, (relation, row) in enumerate(stream):
        by_time = isinstance(window, TimeWindow)
        ticks.append((ticks[-1] if ticks else 100) + (gaps[position] if by_time else 1))
        match window:
            case CountWindow(size):
                first = position - size
            case TimeWindow(length):
                first = next(i for i, tick in enumerate(ticks) if ticks[-1] - tick < length)
            case _:
                first = 0
        expected = homomorphisms(query, stream[: position + 1], first)
        for evaluator in evaluators:
            evaluator.update(relation, row, ticks[-1] if by_time else position)
            assert images(query, list(evaluator.results())) == expected
            assert evaluator.count() == len(expected)


# Rare cases: one tuple that matches atoms below several variables, and chains of such atoms.
COINCIDING = [
    "Q(x, y, z) <- R0(x, y, _), R0(x, y, 1), R0(x, z, _), R0(x, z, 0)",
    "Q(x, y, z) <- R0(x, y, y), R0(x, y, _), R0(z, x, x), R0(z, x, _)",
    "Q(x, y, z) <- R0(x, y, z), R0(x, y, z), R0(x, z, y), R0(x, _, _)",
    "Q(x, y) <- R0(x, x, _), R0(x, _, x), R0(y, y, y)",
]


@pytest.mark.check
@pytest.mark.parametrize("text", COINCIDING)
@given(stream=st.lists(st.tuples(st.just(0), st.tuples(*[st.integers(0, 1)] * 3)), max_size=5))
def test_one_tuple_may_match_several_atoms(text: str, stream: list[tuple[int, Row]]) -> None:
    query = parse_conjunctive_query(text, SCHEMA)
    evaluator = TupleEvaluator(automaton_of(query), RELATIONS, Unbounded())
    for position, (relation, row) in enumerate(stream):
        results = list(evaluator.feed(relation, row))
        assert images(query, results) == homomorphisms(query, stream[: position + 1], 0)


# Runs of a variable with very different starts: those that expire first are between others.
NESTED = [
    "Q(x, y) <- R0(x, _, _), R1(x, y, _), R2(x, y, _)",
    "Q(x, y, z) <- R0(x, y, _), R1(x, y, _), R2(x, z, _), R1(x, z, 1)",
    "Q(x, y) <- R0(x, x, _), R1(y, y, _), R2(y, _, _)",
]


@pytest.mark.check
@pytest.mark.parametrize("window", [6, 9])
@pytest.mark.parametrize("text", NESTED)
def test_results_over_many_windows(text: str, window: int) -> None:
    query = parse_conjunctive_query(text, SCHEMA)
    random, result_count = Random(window), 0
    stream: list[tuple[int, Row]] = [
        (random.randrange(RELATIONS), tuple(random.choice((0, 1)) for _ in range(ARITY))) for _ in range(150)
    ]
    by_count = TupleEvaluator(automaton_of(query), RELATIONS, CountWindow(window))
    by_time = TupleEvaluator(automaton_of(query), RELATIONS, TimeWindow(window + 1))
    for position, (relation, row) in enumerate(stream):
        first = max(position - window, 0)
        expected = [
            tuple(first + offset for offset in image)
            for image in homomorphisms(query, stream[first : position + 1], 0)
        ]
        for evaluator in (by_count, by_time):
            results = list(evaluator.feed(relation, row, position))
            assert images(query, results) == expected
            assert evaluator.count() == len(results)
        result_count += len(expected)
    assert result_count > 10


@given(hierarchical_queries(max_atoms=3), streams(max_tuples=6))
def test_every_result_has_one_run_and_every_run_is_simple(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]]
) -> None:
    pcea = automaton_of(query)
    for position in range(len(stream)):
        runs = accepting_runs(pcea, stream, position)
        assert all(run.is_simple() for run in runs)
        valuations = [tuple(sorted((k, tuple(v)) for k, v in run.valuation().items())) for run in runs]
        assert len(set(valuations)) == len(valuations)
        assert len(valuations) == len(homomorphisms(query, stream[: position + 1], 0))
