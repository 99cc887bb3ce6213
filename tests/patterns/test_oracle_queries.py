"""HCQ -> PCEA -> evaluation, against homomorphisms by brute force, after every tuple."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_patterns.automata.pcea import PCEA
from skws_patterns.evaluation.evaluator import Evaluator
from skws_patterns.evaluation.heap import Valuation
from skws_patterns.queries.automaton import automaton_of
from skws_patterns.queries.hcq import ConjunctiveQuery, is_hierarchical, parse_conjunctive_query
from skws_schema.model import Row
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.run_trees import accepting_runs, by_label
from tests.patterns.hierarchical_queries import (
    ARITY,
    RELATIONS,
    SCHEMA,
    hierarchical_queries,
    homomorphisms,
    streams,
)

WINDOWS = st.one_of(st.builds(CountWindow, st.integers(1, 5)), st.just(Unbounded()))


def images(query: ConjunctiveQuery, found: list[Valuation]) -> list[tuple[int, ...]]:
    """The position of each atom; fails if an atom has not exactly one."""
    named = [by_label(valuation) for valuation in found]
    for positions in named:
        assert all(len(marked) == 1 for marked in positions.values())
    return sorted(tuple(min(p[str(i)]) for i in range(len(query.atoms))) for p in named)


@given(hierarchical_queries(), streams(), WINDOWS)
def test_results_are_the_homomorphisms_after_every_tuple(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]], window: Window
) -> None:
    assert is_hierarchical(query)
    evaluator = Evaluator(automaton_of(query), RELATIONS, window)
    for position, (relation, row) in enumerate(stream):
        evaluator.update(relation, row, position)
        found = list(evaluator.results())
        first = position - window.size if isinstance(window, CountWindow) else 0
        assert images(query, found) == homomorphisms(query, stream[: position + 1], first)
        assert evaluator.count() == len(found)


# What is rarely drawn: one tuple that stands for atoms below several variables, and chains of them.
COINCIDING = [
    "Q(x, y, z) <- R0(x, y, _), R0(x, y, 1), R0(x, z, _), R0(x, z, 0)",
    "Q(x, y, z) <- R0(x, y, y), R0(x, y, _), R0(z, x, x), R0(z, x, _)",
    "Q(x, y, z) <- R0(x, y, z), R0(x, y, z), R0(x, z, y), R0(x, _, _)",
    "Q(x, y) <- R0(x, x, _), R0(x, _, x), R0(y, y, y)",
]


@pytest.mark.parametrize("text", COINCIDING)
@given(stream=st.lists(st.tuples(st.just(0), st.tuples(*[st.integers(0, 1)] * 3)), max_size=5))
def test_one_tuple_for_several_atoms(text: str, stream: list[tuple[int, Row]]) -> None:
    query = parse_conjunctive_query(text, SCHEMA)
    evaluator = Evaluator(automaton_of(query), RELATIONS, Unbounded())
    for position, (relation, row) in enumerate(stream):
        found = list(evaluator.feed(relation, row))
        assert images(query, found) == homomorphisms(query, stream[: position + 1], 0)


# Runs of a variable that began at very different times: those that expire first lie between others.
NESTED = [
    "Q(x, y) <- R0(x, _, _), R1(x, y, _), R2(x, y, _)",
    "Q(x, y, z) <- R0(x, y, _), R1(x, y, _), R2(x, z, _), R1(x, z, 1)",
    "Q(x, y) <- R0(x, x, _), R1(y, y, _), R2(y, _, _)",
]


@pytest.mark.parametrize("window", [6, 9])
@pytest.mark.parametrize("text", NESTED)
def test_streams_of_many_windows(text: str, window: int) -> None:
    query = parse_conjunctive_query(text, SCHEMA)
    random, found = Random(window), 0
    stream: list[tuple[int, Row]] = [
        (random.randrange(RELATIONS), tuple(random.choice((0, 1)) for _ in range(ARITY))) for _ in range(150)
    ]
    by_count = Evaluator(automaton_of(query), RELATIONS, CountWindow(window))
    by_time = Evaluator(automaton_of(query), RELATIONS, TimeWindow(window + 1))
    for position, (relation, row) in enumerate(stream):
        first = max(position - window, 0)
        wanted = [
            tuple(first + place for place in image)
            for image in homomorphisms(query, stream[first : position + 1], 0)
        ]
        for evaluator in (by_count, by_time):
            results = list(evaluator.feed(relation, row, position))
            assert images(query, results) == wanted
            assert evaluator.count() == len(results)
        found += len(wanted)
    assert found > 10


@given(
    hierarchical_queries(max_atoms=3),
    streams(max_tuples=8),
    st.lists(st.sampled_from([0, 0, 1, 3]), min_size=8, max_size=8),
    st.integers(1, 6),
)
def test_time_windows_hold_what_lives_at_one_instant(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]], gaps: list[int], length: int
) -> None:
    evaluator = Evaluator(automaton_of(query), RELATIONS, TimeWindow(length))
    ticks: list[int] = []
    for (relation, row), gap in zip(stream, gaps, strict=False):
        ticks.append((ticks[-1] if ticks else 100) + gap)
        found = list(evaluator.feed(relation, row, ticks[-1]))
        first = next(i for i, tick in enumerate(ticks) if ticks[-1] - tick < length)
        assert images(query, found) == homomorphisms(query, stream[: len(ticks)], first)


@given(hierarchical_queries(max_atoms=3), streams(max_tuples=6))
def test_every_result_has_one_run_and_every_run_is_simple(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]]
) -> None:
    pcea = automaton_of(query)
    for position in range(len(stream)):
        runs = accepting_runs(pcea, stream, position)
        assert all(run.is_simple() for run in runs)
        shown = [tuple(sorted((k, tuple(v)) for k, v in run.valuation().items())) for run in runs]
        assert len(set(shown)) == len(shown)
        assert len(shown) == len(homomorphisms(query, stream[: position + 1], 0))


def reverse_order(pcea: PCEA) -> PCEA:
    return PCEA(tuple(reversed(pcea.transitions)), pcea.final)


@given(hierarchical_queries(), streams(max_tuples=7))
def test_the_order_of_transitions_does_not_matter(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]]
) -> None:
    pcea = automaton_of(query)
    one, other = (Evaluator(p, RELATIONS, CountWindow(4)) for p in (pcea, reverse_order(pcea)))
    for relation, row in stream:
        first, second = (images(query, list(e.feed(relation, row))) for e in (one, other))
        assert first == second
