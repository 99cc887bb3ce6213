"""The automata of the PCEA paper's examples, by the definition of runs and by evaluation."""

from __future__ import annotations

import pytest

from skws_patterns.hcq import parse_conjunctive_query
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.pcea import PCEA, Transition, Unary
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_windows.window import CountWindow, Unbounded, Window
from tests.oracles.run_trees import accepting_runs, by_label
from tests.patterns.paper_examples import C0, DOT, P0, Q0, SCHEMA, STREAM, T


def positions_by_definition(pcea: PCEA, position: int) -> list[frozenset[int]]:
    return sorted((run.valuation()["•"] for run in accepting_runs(pcea, STREAM, position)), key=sorted)


def results_by_evaluation(pcea: PCEA, window: Window) -> list[list[dict[str, frozenset[int]]]]:
    """The results at each position of S_0."""
    evaluator = TupleEvaluator(pcea, len(SCHEMA.relations), window)
    return [[by_label(v) for v in evaluator.feed(relation, row)] for relation, row in STREAM]


def test_the_chain_of_example_2_1() -> None:
    assert positions_by_definition(C0, 5) == [{1, 3, 5}]
    assert [len(results) for results in results_by_evaluation(C0, Unbounded())] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_the_parallel_automaton_of_example_3_3() -> None:
    assert positions_by_definition(P0, 5) == [{0, 1, 5}, {1, 3, 5}]
    results = results_by_evaluation(P0, Unbounded())
    assert sorted((v["•"] for v in results[5]), key=sorted) == [{0, 1, 5}, {1, 3, 5}]
    assert not any(results[:5] + results[6:])


def test_the_run_trees_of_example_3_3() -> None:
    runs = accepting_runs(P0, STREAM, 5)
    assert all(run.is_simple() for run in runs)
    shapes = {tuple(sorted((c.state, c.position) for c in run.children)) for run in runs}
    assert shapes == {(("q0", 1), ("q1", 3)), (("q0", 1), ("q1", 0))}


def test_the_window_of_example_3_3() -> None:
    """|5 - 0| = 5 is in a window of 5, but not in one of 4."""
    assert len(results_by_evaluation(P0, CountWindow(5))[5]) == 2
    assert [v["•"] for v in results_by_evaluation(P0, CountWindow(4))[5]] == [{1, 3, 5}]
    assert results_by_evaluation(P0, CountWindow(3))[5] == []


def test_the_query_of_section_4_over_the_stream() -> None:
    """The two t-homomorphisms of Q_0 that the paper names, at position 5."""
    pcea = automaton_of(parse_conjunctive_query(Q0, SCHEMA))
    by_position = results_by_evaluation(pcea, Unbounded())
    positions = sorted(tuple(min(v[label]) for label in "012") for v in by_position[5])
    assert positions == [(1, 0, 5), (1, 3, 5)]
    assert [len(results) for results in by_position] == [0, 0, 0, 0, 0, 2, 0, 0]


def test_an_ambiguous_run_is_not_simple() -> None:
    ambiguous = PCEA((*P0.transitions, Transition((), Unary(T), DOT, "q2")), P0.final)
    assert sorted(len(run.children) for run in accepting_runs(ambiguous, STREAM, 7)) == [0]


def test_malformed_automata_are_rejected() -> None:
    with pytest.raises(ValueError, match="marks no label"):
        Transition((), Unary(T), frozenset(), "q")
    with pytest.raises(ValueError, match="no transition reaches"):
        PCEA(P0.transitions, frozenset({"q9"}))
    with pytest.raises(ValueError, match="source twice"):
        Transition(P0.transitions[2].sources[:1] * 2, Unary(T), DOT, "q")


def test_the_size_of_an_automaton() -> None:
    assert P0.size == 3 + (0 + 1) + (0 + 1) + (2 + 1)
