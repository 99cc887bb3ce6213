"""The automata of the PCEA paper's examples, by the definition of runs and by evaluation."""

from __future__ import annotations

import pytest

from skws_patterns.automata.pcea import PCEA, Source, Transition
from skws_patterns.automata.predicates import Compared, Equality, Unary
from skws_patterns.evaluation.evaluator import Evaluator
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.parse import parse_pattern
from skws_patterns.queries.automaton import automaton_of
from skws_patterns.queries.hcq import parse_conjunctive_query
from skws_schema.comparison import Op
from skws_schema.memory import OverBudgetError
from skws_windows.window import CountWindow, Unbounded, Window
from tests.oracles import run_trees
from tests.oracles.run_trees import accepting_runs, by_label, find_ambiguity
from tests.patterns.paper_examples import C0, DOT, P0, Q0, SCHEMA, STREAM, S, T
from tests.patterns.texts import contains


def defined(pcea: PCEA, position: int) -> list[frozenset[int]]:
    return sorted((run.valuation()["•"] for run in accepting_runs(pcea, STREAM, position)), key=sorted)


def evaluated(pcea: PCEA, window: Window) -> list[list[dict[str, frozenset[int]]]]:
    """The results at each position of S_0."""
    evaluator = Evaluator(pcea, len(SCHEMA.relations), window)
    return [[by_label(v) for v in evaluator.feed(relation, row)] for relation, row in STREAM]


def test_chain_of_example_2_1() -> None:
    assert defined(C0, 5) == [{1, 3, 5}]
    assert [len(found) for found in evaluated(C0, Unbounded())] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_parallel_automaton_of_example_3_3() -> None:
    assert defined(P0, 5) == [{0, 1, 5}, {1, 3, 5}]
    found = evaluated(P0, Unbounded())
    assert sorted((v["•"] for v in found[5]), key=sorted) == [{0, 1, 5}, {1, 3, 5}]
    assert not any(found[:5] + found[6:])


def test_run_trees_of_example_3_3() -> None:
    runs = accepting_runs(P0, STREAM, 5)
    assert all(run.is_simple() for run in runs)
    shapes = {tuple(sorted((c.state, c.position) for c in run.children)) for run in runs}
    assert shapes == {(("q0", 1), ("q1", 3)), (("q0", 1), ("q1", 0))}


def test_window_of_example_3_3() -> None:
    """|5 - 0| = 5 is in a window of 5 and not in one of 4."""
    assert len(evaluated(P0, CountWindow(5))[5]) == 2
    assert [v["•"] for v in evaluated(P0, CountWindow(4))[5]] == [{1, 3, 5}]
    assert evaluated(P0, CountWindow(3))[5] == []


def test_query_of_section_4_over_the_stream() -> None:
    """The two t-homomorphisms of Q_0 that the paper names, at position 5."""
    pcea = automaton_of(parse_conjunctive_query(Q0, SCHEMA))
    found = evaluated(pcea, Unbounded())
    positions = sorted(tuple(min(v[label]) for label in "012") for v in found[5])
    assert positions == [(1, 0, 5), (1, 3, 5)]
    assert [len(results) for results in found] == [0, 0, 0, 0, 0, 2, 0, 0]


def test_an_ambiguous_run_is_not_simple() -> None:
    again = PCEA((*P0.transitions, Transition((), Unary(T), DOT, "q2")), P0.final)
    assert sorted(len(run.children) for run in accepting_runs(again, STREAM, 7)) == [0]


def test_malformed_automata_are_refused() -> None:
    with pytest.raises(ValueError, match="marks no label"):
        Transition((), Unary(T), frozenset(), "q")
    with pytest.raises(ValueError, match="no transition reaches"):
        PCEA(P0.transitions, frozenset({"q9"}))
    with pytest.raises(ValueError, match="source twice"):
        Transition(P0.transitions[2].sources[:1] * 2, Unary(T), DOT, "q")


def test_trimming_keeps_what_accepts() -> None:
    extra = Transition((), Unary(T), DOT, "dead end")
    assert set(PCEA((*P0.transitions, extra), P0.final).trimmed().transitions) == set(P0.transitions)
    assert P0.size == 3 + (0 + 1) + (0 + 1) + (2 + 1)


ANY = Equality(((T, ()), (S, ())), ())


def test_the_automata_of_the_paper_are_unambiguous() -> None:
    assert find_ambiguity(P0, 5) is None
    assert find_ambiguity(C0, 5) is None
    assert find_ambiguity(automaton_of(parse_conjunctive_query(Q0, SCHEMA)), 5) is None


def test_two_ways_to_one_result_are_found() -> None:
    """T and S in parallel before T, and one after the other before T."""
    ways = (
        Transition((), Unary(T), DOT, "a"),
        Transition((), Unary(S), DOT, "b"),
        Transition((Source("a", ANY), Source("b", ANY)), Unary(T), DOT, "end"),
        Transition((Source("a", ANY),), Unary(S), DOT, "c"),
        Transition((Source("c", ANY),), Unary(T), DOT, "end"),
    )
    found = find_ambiguity(PCEA(ways, frozenset({"end"})), 4)
    assert found is not None
    assert [relation for relation, _ in found.stream] == [T, S, T]
    one, other = found.runs
    assert one.valuation() == other.valuation()
    assert find_ambiguity(PCEA(ways[:3], frozenset({"end"})), 4) is None


def test_a_run_that_reads_a_tuple_twice_is_found() -> None:
    twice = (
        Transition((), Unary(T), DOT, "a"),
        Transition((), Unary(T), DOT, "b"),
        Transition((Source("a", ANY), Source("b", ANY)), Unary(S), DOT, "end"),
    )
    found = find_ambiguity(PCEA(twice, frozenset({"end"})), 3)
    assert found is not None
    assert [run.is_simple() for run in found.runs] == [False]


def test_tests_of_constants_are_met() -> None:
    one = Unary(T, (Compared(0, Op.EQUAL, 7),))
    both = (Transition((), one, DOT, "a"), Transition((), Unary(T), DOT, "b"))
    found = find_ambiguity(PCEA(both, frozenset({"a", "b"})), 1)
    assert found is not None
    assert found.stream == ((T, (7,)),)


@pytest.mark.parametrize(
    "text",
    [
        "(R r ; S s) OR (R r AND S s)",
        "R r+ ; R r+",
        "(R r AND S s) ; T t where r.a = s.a = t.a",
        "R r AND S s AND T t where r.a = s.a = t.a and r.b = s.b",
        "R r AND R s AND T t where r.a = s.a = t.a",
        "(R r AND S s) OR (S s AND T t)",
    ],
)
def test_patterns_are_unambiguous(text: str) -> None:
    assert find_ambiguity(compile_pattern(parse_pattern(text, SCHEMA), SCHEMA, contains).pcea, 4) is None


def test_queries_with_self_joins_are_unambiguous() -> None:
    for text in ("Q(x) <- T(x), T(x), T(x)", "Q(x, y) <- R(x, y), R(x, y), T(x)", "Q(x, y) <- T(x), T(y)"):
        assert find_ambiguity(automaton_of(parse_conjunctive_query(text, SCHEMA)), 4) is None


def test_the_search_ends_after_a_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_trees, "MOST_RUNS", 500)
    assert find_ambiguity(P0, 3) is None
    with pytest.raises(OverBudgetError):
        find_ambiguity(P0, 9)
