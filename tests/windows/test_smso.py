"""S-MSO formulas by brute force compared with their window expressions, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_windows.automata import regular as r
from skws_windows.automata import smso as m
from skws_windows.automata.regular import WindowExpression, expression
from skws_windows.automata.smso import window_expression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.guards.satisfiability import Satisfiability
from skws_windows.processor.stream_processor import Processor
from tests.oracles.formulas import formula_of, satisfied
from tests.strategies import examples
from tests.window_streams import ALPHABET, simple_guards, windows_by_definition, words

THEORY = Satisfiability(ALPHABET)


@st.composite
def formulas(
    draw: st.DrawFn, k: int, places: tuple[str, ...], sets: tuple[str, ...], depth: int
) -> m.Formula:
    """Formulas whose free variables are among ``places`` and ``sets``."""
    variable = st.sampled_from(places)
    kinds = ["satisfies", "before"] + ["member"] * bool(sets)
    if depth:
        kinds += ["not", "and", "and", "position", "set"]
    match draw(st.sampled_from(kinds)):
        case "satisfies":
            return m.Satisfies(draw(simple_guards(k)), draw(variable))
        case "before":
            return m.Precedes(draw(variable), draw(variable))
        case "member":
            return m.Member(draw(st.sampled_from(sets)), draw(variable))
        case "not":
            return m.Negation(draw(formulas(k, places, sets, depth - 1)))
        case "and":
            return m.Conjunction(
                draw(formulas(k, places, sets, depth - 1)), draw(formulas(k, places, sets, depth - 1))
            )
        case "position":
            name = draw(st.sampled_from(("x", "y")))
            return m.SomePosition(name, draw(formulas(k, (*places, name, name), sets, depth - 1)))
    return m.SomeSet("X", draw(formulas(k, places, (*sets, "X"), depth - 1)))


def windows_by_logic(formula: m.Formula, k: int, word: list[StreamRecord]) -> list[tuple[int, int]]:
    """Definition 6: quantifiers range up to e, so the word is cut there."""
    return [
        (b, e)
        for e in range(k, len(word))
        for b in range(k, e + 1)
        if satisfied(formula, word[: e + 1], {"b": b, "e": e}, k, ALPHABET)
    ]


def windows_of(window_expression: WindowExpression, word: list[StreamRecord]) -> list[tuple[int, int]]:
    return [(w.first, w.last) for w in Processor(window_expression, ALPHABET).process(word)]


@examples(70)
@given(
    st.integers(0, 2).flatmap(lambda k: st.tuples(st.just(k), formulas(k, ("b", "e"), (), 4))),
    st.lists(words(6), min_size=3, max_size=3),
)
def test_formulas_have_the_windows_of_their_expressions(
    case: tuple[int, m.Formula], sample_words: list[list[StreamRecord]]
) -> None:
    k, formula = case
    from_formula = window_expression(formula, k, THEORY)
    for word in sample_words:
        assert windows_of(from_formula, word) == windows_by_logic(formula, k, word)


HIGH, LOW = (
    g.Compare("<", g.GuardConstant(1), g.Field("x")),
    g.Compare("<", g.Field("x"), g.GuardConstant(1)),
)


SIDES = (
    r.EVERYTHING,
    r.IDENTITY,
    r.LetterBlock(HIGH),
    r.Then(r.EVERYTHING, r.LetterBlock(HIGH)),
    r.Then(r.LetterBlock(HIGH), r.LetterBlock(LOW)),
    r.Then(r.Repetition(r.LetterBlock(HIGH)), r.LetterBlock(LOW)),
)


@examples(15)
@given(
    st.integers(0, 1),
    st.sampled_from(SIDES),
    st.sampled_from(SIDES),
    st.lists(words(7), min_size=2, max_size=2),
)
def test_expressions_have_the_windows_of_their_formulas(
    k: int, before: r.Regular, window: r.Regular, sample_words: list[list[StreamRecord]]
) -> None:
    original = expression([(before, window)], k)
    formula = formula_of(original)
    from_formula = window_expression(formula, k, THEORY)
    for word in sample_words:
        assert windows_of(from_formula, word) == windows_by_definition([(before, window)], k, word)


def test_formulas_that_define_no_windows_are_rejected() -> None:
    with pytest.raises(ValueError, match="free variables b, x"):
        window_expression(m.Precedes("b", "x"), 0, THEORY)
    with pytest.raises(ValueError, match="looks back more than 0"):
        window_expression(m.Satisfies(g.Compare("<", g.Field("x", 1), g.Field("x")), "b"), 0, THEORY)
