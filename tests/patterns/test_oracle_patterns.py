"""Patterns in both layouts against their definition, after every tuple, without duplicates."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from skws_patterns.automata.pcea import PCEA
from skws_patterns.evaluation.evaluator import Evaluator
from skws_patterns.evaluation.heap import Valuation
from skws_patterns.language.compile import chain, compile_pattern, parallel_automaton
from skws_patterns.language.parse import Pattern, parse_pattern
from skws_patterns.language.progress import Layout, NotExpressibleError
from skws_patterns.language.resolve import Resolved, resolve
from skws_schema.errors import PatternError
from skws_schema.model import Row
from skws_windows.window import CountWindow
from tests.oracles.run_trees import accepting_runs
from tests.patterns.pattern_matches import SCHEMA, Match, matches, patterns, streams
from tests.patterns.texts import contains
from tests.strategies import examples

SOME_ARE_REFUSED = examples(200, suppress_health_check=[HealthCheck.filter_too_much])


def found(valuations: list[Valuation]) -> set[Match]:
    """The results as marks; fails if one is there twice, or marks a tuple twice."""
    marked = [frozenset((p, label) for p, labels in v for label in labels) for v in valuations]
    assert len(set(marked)) == len(marked)
    assert all(len({position for position, _ in match}) == len(match) for match in marked)
    return set(marked)


def automaton(pattern: Pattern) -> PCEA:
    try:
        return compile_pattern(pattern, SCHEMA, contains).pcea
    except PatternError:
        assume(False)
        raise


@SOME_ARE_REFUSED
@given(patterns(), streams(), st.integers(1, 5))
def test_results_are_the_matches_after_every_tuple(
    pattern: Pattern, stream: list[tuple[int, Row]], window: int
) -> None:
    evaluator = Evaluator(automaton(pattern), len(SCHEMA.relations), CountWindow(window))
    for position, (relation, row) in enumerate(stream):
        results = found(list(evaluator.feed(relation, row)))
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
def test_texts_mean_their_matches(text: str, stream: list[tuple[int, Row]], window: int) -> None:
    pattern = parse_pattern(text, SCHEMA)
    pcea = compile_pattern(pattern, SCHEMA, contains).pcea
    evaluator = Evaluator(pcea, len(SCHEMA.relations), CountWindow(window))
    for position, (relation, row) in enumerate(stream):
        results = found(list(evaluator.feed(relation, row)))
        assert results == matches(pattern, stream[: position + 1], position - window)
        assert evaluator.count() == len(results)


def chain_automaton(pattern: Pattern, resolved: Resolved) -> PCEA:
    """Everything one tuple after the other."""
    layout = Layout(resolved)
    return layout.pcea(chain(layout, pattern.expression, None, lambda _: [()]).complete)


@SOME_ARE_REFUSED
@given(patterns(), streams(max_tuples=7))
def test_layouts_agree(pattern: Pattern, stream: list[tuple[int, Row]]) -> None:
    resolved = resolve(pattern, SCHEMA, contains)
    try:
        automata = parallel_automaton(pattern, resolved), chain_automaton(pattern, resolved)
    except NotExpressibleError:
        assume(False)
        raise
    one, other = (Evaluator(pcea, len(SCHEMA.relations), CountWindow(5)) for pcea in automata)
    for relation, row in stream:
        assert found(list(one.feed(relation, row))) == found(list(other.feed(relation, row)))


@SOME_ARE_REFUSED
@given(patterns(), streams(max_tuples=5))
def test_every_result_has_one_run(pattern: Pattern, stream: list[tuple[int, Row]]) -> None:
    pcea = automaton(pattern)
    for position in range(len(stream)):
        runs = accepting_runs(pcea, stream, position)
        assert all(run.is_simple() for run in runs)
        shown = [tuple(sorted((k, tuple(sorted(v))) for k, v in run.valuation().items())) for run in runs]
        assert len(set(shown)) == len(shown)
