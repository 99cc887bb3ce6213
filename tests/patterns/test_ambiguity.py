"""Ambiguous automata are detected; those of queries and patterns are not ambiguous."""

from __future__ import annotations

import pytest

from skws_patterns.automata.pcea import PCEA, Source, Transition
from skws_patterns.automata.predicates import Compared, Equality, Unary
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.parse import parse_pattern
from skws_patterns.queries.automaton import automaton_of
from skws_patterns.queries.hcq import parse_conjunctive_query
from skws_schema.comparison import Op
from skws_schema.memory import OverBudgetError
from tests.oracles import run_trees
from tests.oracles.run_trees import find_ambiguity
from tests.patterns.paper_examples import C0, DOT, P0, Q0, SCHEMA, S, T
from tests.patterns.texts import contains

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
