"""Patterns in both layouts compared with their definition, after every tuple, without duplicates."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from skws.queries.patterns.pattern_explanation import AutomatonDrawing
from skws_patterns.columnar_evaluator import column_plan
from skws_patterns.language.automaton_states import NotExpressibleError, StateLayout
from skws_patterns.language.compile import chain, compile_pattern, parallel_automaton
from skws_patterns.language.pattern_parser import Pattern, parse_pattern
from skws_patterns.language.resolve import ResolvedPattern, resolve
from skws_patterns.pcea import PCEA, Equality, RunSource, State, Transition, Unary
from skws_patterns.tuple_evaluator import TupleEvaluator, Valuation
from skws_schema.errors import PatternError
from skws_schema.model import Row
from skws_windows.window import CountWindow
from tests.oracles.run_trees import accepting_runs
from tests.patterns.pattern_matches import SCHEMA, Match, contains, matches, patterns, streams
from tests.strategies import examples

SOME_ARE_REFUSED = examples(200, suppress_health_check=[HealthCheck.filter_too_much])


def marks_of(valuations: list[Valuation]) -> set[Match]:
    """The results as marks; fails if a result is repeated, or marks a tuple twice."""
    results = [frozenset((p, label) for p, labels in v for label in labels) for v in valuations]
    assert len(set(results)) == len(results)
    assert all(len({position for position, _ in match}) == len(match) for match in results)
    return set(results)


def automaton(pattern: Pattern) -> PCEA:
    try:
        return compile_pattern(pattern, SCHEMA, contains).pcea
    except PatternError:
        assume(False)
        raise


@SOME_ARE_REFUSED
@given(patterns(), streams(), st.integers(1, 5))
def test_results_equal_the_matches_after_every_tuple(
    pattern: Pattern, stream: list[tuple[int, Row]], window: int
) -> None:
    evaluator = TupleEvaluator(automaton(pattern), len(SCHEMA.relations), CountWindow(window))
    for position, (relation, row) in enumerate(stream):
        results = marks_of(list(evaluator.feed(relation, row)))
        assert results == matches(pattern, stream[: position + 1], position - window)


TEXTS = [
    "A a ; B b where a.x = b.x",
    "A a AND B b where a.x = b.x",
    "A a AND B b AND C c where a.x = b.x = c.x",
    "A a AND B b AND C c where a.x = b.x = c.x and b.y = c.y",
    "A a AND A b AND A c where a.x = b.x = c.x",
    "A a AND A b AND A c where a.x = b.x = c.x and a.y = 0 and b.y = 1 and c.y = 1",
    "(A a AND B b) ; C c where a.x = b.x = c.x",
    "(A a AND B b) ; C c where a.x = b.x and b.y = c.y and a.y = b.y",
    "(A a AND B b) ; (C c AND A d) where a.x = b.x = c.x = d.x",
    "(A a ; B b) AND C c where a.x = b.x = c.x",
    "(A a ; B b) AND (C c ; A d) where a.x = b.x = c.x = d.x",
    "((A a AND B b) ; C c) AND A d where a.x = b.x = c.x = d.x",
    "A a+ ; B b where a.x = b.x",
    "A a ; B b+ ; C c where a.x = b.x = c.x",
    "(A a+ AND B b) ; C c where a.x = b.x = c.x",
    "(A a ; B b)+ where a.x = b.x",
    "(A a AND B b)+ where a.x = b.x",
    "(A a OR B a) ; C c where a.x = c.x",
    "(A a AND B b) OR (A a ; C c) where a.x = b.x and a.y = c.y",
    "(A a ; B b) OR (A a AND B b) where a.x = b.x",
    "(A a AND B b) OR (B b AND C c) where b.x = a.x = c.x",
    "A a+ ; A a+",
    "* a ; * b where a.x = b.y",
    "A a AND B b",
    "A a where a.x = a.y",
]


@pytest.mark.parametrize("text", TEXTS)
@examples(40)
@given(stream=streams(max_tuples=7), window=st.integers(2, 6))
def test_pattern_texts_have_their_matches(text: str, stream: list[tuple[int, Row]], window: int) -> None:
    pattern = parse_pattern(text, SCHEMA)
    pcea = compile_pattern(pattern, SCHEMA, contains).pcea
    evaluator = TupleEvaluator(pcea, len(SCHEMA.relations), CountWindow(window))
    for position, (relation, row) in enumerate(stream):
        results = marks_of(list(evaluator.feed(relation, row)))
        assert results == matches(pattern, stream[: position + 1], position - window)
        assert evaluator.count() == len(results)


def chain_automaton(pattern: Pattern, resolved: ResolvedPattern) -> PCEA:
    """All tuples in sequence."""
    layout = StateLayout(resolved)
    return layout.pcea(chain(layout, pattern.expression, None, lambda _: [()]).complete)


@SOME_ARE_REFUSED
@given(patterns(), streams(max_tuples=7))
def test_both_layouts_have_the_same_results(pattern: Pattern, stream: list[tuple[int, Row]]) -> None:
    resolved = resolve(pattern, SCHEMA, contains)
    try:
        automata = parallel_automaton(pattern, resolved), chain_automaton(pattern, resolved)
    except NotExpressibleError:
        assume(False)
        raise
    parallel, sequential = (TupleEvaluator(pcea, len(SCHEMA.relations), CountWindow(5)) for pcea in automata)
    for relation, row in stream:
        assert marks_of(list(parallel.feed(relation, row))) == marks_of(list(sequential.feed(relation, row)))


WRITTEN = st.sampled_from(TEXTS).map(lambda text: parse_pattern(text, SCHEMA))


@SOME_ARE_REFUSED
@given(patterns() | WRITTEN, streams(max_tuples=5))
def test_every_result_has_one_run(pattern: Pattern, stream: list[tuple[int, Row]]) -> None:
    pcea = automaton(pattern)
    for position in range(len(stream)):
        runs = accepting_runs(pcea, stream, position)
        assert all(run.is_simple() for run in runs)
        valuations = [
            tuple(sorted((k, tuple(sorted(v))) for k, v in run.valuation().items())) for run in runs
        ]
        assert len(set(valuations)) == len(valuations)


STATES: Final = "pqrst"
SAME: Final = Equality(tuple((relation, (0,)) for relation in range(3)), (0,))


def transitions() -> st.SearchStrategy[Transition]:
    sources = st.sets(st.sampled_from(STATES), max_size=2)
    return st.builds(
        lambda gathered, relation, label, target: Transition(
            tuple(RunSource(state, SAME) for state in sorted(gathered)),
            Unary(relation),
            frozenset(label),
            target,
        ),
        sources,
        st.integers(0, 2),
        st.sampled_from("xy"),
        st.sampled_from(STATES),
    )


@st.composite
def automata(draw: st.DrawFn) -> PCEA:
    edges = tuple(draw(st.lists(transitions(), max_size=9, unique=True)))
    targets = sorted({str(transition.target) for transition in edges})
    return PCEA(edges, frozenset(draw(st.sets(st.sampled_from(targets)))) if edges else frozenset())


def in_accepting_runs(pcea: PCEA) -> set[Transition]:
    """By definition, with all tuples equal: first states with runs, then those that lead to acceptance."""
    reachable: set[State] = set()
    for _ in pcea.transitions:
        reachable |= {t.target for t in pcea.transitions if all(s.state in reachable for s in t.sources)}
    fireable = [t for t in pcea.transitions if all(s.state in reachable for s in t.sources)]
    useful = {state for state in pcea.final if state in reachable}
    for _ in pcea.transitions:
        useful |= {s.state for t in fireable if t.target in useful for s in t.sources}
    return {t for t in fireable if t.target in useful}


@examples(150)
@given(automata())
def test_trimming_keeps_the_transitions_of_accepting_runs(pcea: PCEA) -> None:
    trimmed = pcea.trim()
    assert set(trimmed.transitions) == in_accepting_runs(pcea)
    assert trimmed.transitions == tuple(t for t in pcea.transitions if t in trimmed.transitions)
    assert trimmed.final == {t.target for t in trimmed.transitions} & pcea.final
    assert trimmed.trim() == trimmed


@examples(150)
@given(automata(), streams(max_tuples=4))
def test_trimming_keeps_accepting_runs(pcea: PCEA, stream: list[tuple[int, Row]]) -> None:
    trimmed = pcea.trim()
    for position in range(len(stream)):
        assert accepting_runs(trimmed, stream, position) == accepting_runs(pcea, stream, position)


def test_an_unreachable_final_state_gives_an_empty_automaton() -> None:
    loop = Transition((RunSource("p", SAME),), Unary(0), frozenset("x"), "p")
    trimmed = PCEA((loop,), frozenset("p")).trim()
    assert (trimmed.transitions, trimmed.final, trimmed.states) == ((), frozenset(), frozenset())
    assert list(TupleEvaluator(trimmed, 3, CountWindow(5)).feed(0, (1, 1))) == []
    assert AutomatonDrawing(trimmed, SCHEMA).text() == "0 states, 0 transitions, final: "
    assert column_plan(trimmed) is not None


class CountingState:
    """A state that counts its comparisons."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        CountingState.compared += 1
        return isinstance(other, CountingState) and self.number == other.number


def test_trimming_takes_linear_time() -> None:
    """A chain from its end to its beginning is the worst case for passes over all transitions."""
    length = 1_000
    states = [CountingState(number) for number in range(length + 1)]
    links = [Transition((RunSource(a, SAME),), Unary(0), frozenset("x"), b) for a, b in pairwise(states)]
    first = Transition((), Unary(0), frozenset("x"), states[0])
    chain = PCEA((*reversed(links), first), frozenset(states[-1:]))
    CountingState.compared = 0
    assert len(chain.trim().transitions) == length + 1
    assert CountingState.compared < 10 * length
