"""Closure properties, and automata of expressions, all checked by membership of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.budgets import OverBudgetError, within_steps
from skws_windows.automata import regular as r
from skws_windows.automata.k_sla import (
    clean,
    complement,
    determinise,
    product,
    trim,
    union,
)
from skws_windows.automata.regular import to_automaton
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.guards.satisfiability import Satisfiability
from tests.strategies import examples
from tests.window_streams import ALPHABET, accepted, matches, regulars, words

THEORY = Satisfiability(ALPHABET)
KS = st.integers(0, 2)
SOME = examples(40)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, r.Regular, r.Regular, list[list[StreamRecord]]]:
    k = draw(KS)
    return k, draw(regulars(k)), draw(regulars(k)), draw(st.lists(words(6, k), min_size=4, max_size=8))


Case = tuple[int, r.Regular, r.Regular, list[list[StreamRecord]]]


@examples(80)
@given(cases())
def test_automata_of_expressions_accept_their_words(case: Case) -> None:
    k, left, right, sample_words = case
    for regular in (left, right):
        automaton = to_automaton(regular, k)
        for word in sample_words:
            assert accepted(automaton, word) == matches(regular, word, k)


@SOME
@given(cases())
def test_closure_under_boolean_operations(case: Case) -> None:
    k, left, right, sample_words = case
    a, b = to_automaton(left, k), to_automaton(right, k)
    intersection, union_of_both, negation = product(a, b), union(a, b), complement(a, THEORY)
    assert {each.k for each in (intersection, union_of_both, negation)} == {k}
    for word in sample_words:
        in_a, in_b = matches(left, word, k), matches(right, word, k)
        assert accepted(intersection, word) == (in_a and in_b)
        assert accepted(union_of_both, word) == (in_a or in_b)
        assert accepted(negation, word) == (not in_a)


@pytest.mark.check
@SOME
@given(cases())
def test_deterministic_automata_have_one_run_on_every_word(case: Case) -> None:
    k, left, _, sample_words = case
    nondeterministic = to_automaton(left, k)
    automaton = determinise(nondeterministic, THEORY)
    for arcs in automaton.outgoing.values():
        for i, (guard, _) in enumerate(arcs):
            assert not any(THEORY.is_possible(g.conjunction([guard, other])) for other, _ in arcs[i + 1 :])
        assert not THEORY.is_possible(g.negation(g.disjunction(guard for guard, _ in arcs)))
    for word in sample_words:
        assert accepted(automaton, word) == accepted(nondeterministic, word)


@SOME
@given(cases())
def test_cleaning_and_trimming_preserve_the_language(case: Case) -> None:
    k, left, _, sample_words = case
    automaton = to_automaton(left, k)
    cleaned = clean(automaton, THEORY)
    assert all(THEORY.is_possible(guard) for guard in cleaned.guards)
    for word in sample_words:
        assert accepted(trim(cleaned), word) == accepted(automaton, word)


def test_repetitions_accept_the_right_lengths() -> None:
    letter = r.LetterBlock(g.TOP)
    word = [StreamRecord(0, 0, (1, None, None))] * 6
    lengths = [
        [n for n in range(7) if matches(regular, word[:n], 0)]
        for regular in (r.repeat(letter, 2, 4), r.repeat(letter, 3, None), r.repeat(letter, 0, 1))
    ]
    assert lengths == [[2, 3, 4], [3, 4, 5, 6], [0, 1]]


def test_unsatisfiable_guards_are_removed() -> None:
    unsatisfiable = g.conjunction(
        [g.Compare("<", g.Field("x"), g.GuardConstant(0)), g.Compare("<", g.GuardConstant(0), g.Field("x"))]
    )
    automaton = to_automaton(
        r.Then(r.ANY, r.Either(r.LetterBlock(unsatisfiable), r.LetterBlock(g.OfRelation("n")))), 0
    )
    assert len(clean(automaton, THEORY).transitions) == len(automaton.transitions) - 1
    assert trim(clean(to_automaton(r.LetterBlock(unsatisfiable), 0), THEORY)).transitions == ()


@pytest.mark.check
def test_too_many_macrostates_are_an_error() -> None:
    high = r.LetterBlock(g.Compare("<", g.GuardConstant(1), g.Field("x")))
    short_window, long_window = (r.Then(r.Then(r.EVERYTHING, high), r.repeat(r.ANY, n, n)) for n in (3, 12))
    with within_steps(200):
        assert determinise(to_automaton(short_window, 0), THEORY).states < 50
        with pytest.raises(OverBudgetError):
            complement(to_automaton(long_window, 0), THEORY)
