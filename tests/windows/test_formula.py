"""S-MSO formulas as text: parsing, their windows, and errors."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.budgets import within_steps
from skws_schema.errors import UsageError
from skws_windows.automata import smso as m
from skws_windows.automata.regular import Selection, WindowExpression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.language.window_parser import (
    formula_expression,
    parse_expression,
    parse_formula,
    parse_pairs,
)
from skws_windows.processor.stream_processor import Processor
from tests.strategies import examples
from tests.window_streams import ALPHABET, words

HIGH = g.Compare("<", g.GuardConstant(1), g.Field("x"))


def windows_of(
    window_expression: WindowExpression, word: list[StreamRecord]
) -> list[tuple[object, int, int]]:
    return [(w.key, w.first, w.last) for w in Processor(window_expression, ALPHABET).process(word)]


SUCCESSOR = "x < y and not exists z: x < z < y"
ALTERNATING = (
    "exists Odd: Odd(b) and (not Odd(e)) and forall x, y: "
    f"(b <= x and y <= e and ({SUCCESSOR})) -> (Odd(x) or Odd(y)) and not (Odd(x) and Odd(y))"
)


@pytest.mark.check
@pytest.mark.parametrize(
    ("formula", "expression"),
    [
        (
            "[x > 0](b) and b < e and [x < 1](e) and forall y: b < y < e -> not [x < 1](y)",
            "every open when x > 0 close when x < 1",
        ),
        ("[x > x[-1]](b) and b = e", "match [x > x[-1]]"),
        ("forall y: b <= y -> [x > x[-1]](y)", "match [x > x[-1]]+"),
        ("not exists y: y < b", "match .+ after ()"),
        (
            "exists y: (y < b and [n](y) and not exists z: y < z < b) and [x = 1](e)",
            "match .* [x = 1] after .* [n]",
        ),
        ("[n](e) or [x > 0](b) and b != e", "match .* [n] | [x > 0] .+"),
        ("exists y: b < y < e and ([x > 0](y) -> [n](y))", "match . .* [not x > 0 or n] .* ."),
        (ALTERNATING, "match (. .)+"),
        ("exists S: (S(e) and forall y: S(y) -> y >= b and [x > 0](y))", "match .* [x > 0]"),
        ("[true](b) and e >= b", "match .+"),
        ("e < b", "match [false]"),
    ],
)
@examples(12)
@given(words=st.lists(words(8), min_size=3, max_size=3), per=st.sampled_from(((), ("x",), ("s",))))
def test_formulas_have_the_windows_of_equivalent_expressions(
    formula: str, expression: str, words: list[list[StreamRecord]], per: tuple[str, ...]
) -> None:
    for selection in Selection:
        from_formula, from_expression = both_expressions(
            formula, expression.removeprefix("every "), selection, per
        )
        for word in words:
            assert windows_of(from_formula, word) == windows_of(from_expression, word)


@cache
def both_expressions(
    formula: str, expression: str, selection: Selection, per: tuple[str, ...]
) -> tuple[WindowExpression, WindowExpression]:
    by_key = f" per {per[0]}" if per else ""
    from_formula = formula_expression(formula, ALPHABET, selection=selection, per=per)
    return from_formula, parse_expression(f"{selection} {expression}{by_key}", ALPHABET)


def test_a_longer_lookback_omits_more_records() -> None:
    word = [StreamRecord(0, 0, (1, None, None))] * 4
    windows = [windows_of(formula_expression("b = e", ALPHABET, lookback=k), word) for k in (0, 2)]
    assert windows == [windows_of(parse_pairs([(".*", ".")], ALPHABET, lookback=k), word) for k in (0, 2)]
    assert [first for _, first, _ in windows[1]] == [2, 3]


B, E = m.Satisfies(HIGH, "b"), m.Satisfies(HIGH, "e")


@pytest.mark.parametrize(
    ("text", "formula"),
    {
        "not [x > 1](b) and [x > 1](e)": m.Conjunction(m.Negation(B), E),
        "[x > 1](b) or [x > 1](e) and b < e": m.either(B, m.Conjunction(E, m.Precedes("b", "e"))),
        "[x > 1](b) -> [x > 1](e) -> b < e": m.implies(B, m.implies(E, m.Precedes("b", "e"))),
        "b <= e": m.at_most("b", "e"),
        "b > e": m.Precedes("e", "b"),
        "exists y: b < y and y < e": m.SomePosition(
            "y", m.Conjunction(m.Precedes("b", "y"), m.Precedes("y", "e"))
        ),
        "not exists y: y < b or [x > 1](e)": m.Negation(
            m.SomePosition("y", m.either(m.Precedes("y", "b"), E))
        ),
        "(EXISTS y: y < b) AND [x > 1](e)": m.Conjunction(m.SomePosition("y", m.Precedes("y", "b")), E),
        "forall x, Y: Y(x)": m.Negation(m.SomePosition("x", m.SomeSet("Y", m.Negation(m.Member("Y", "x"))))),
        "exists exist: exist < e": m.SomePosition("exist", m.Precedes("exist", "e")),
    }.items(),
)
def test_formulas_are_parsed(text: str, formula: m.Formula) -> None:
    assert parse_formula(text, ALPHABET) == formula


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("[x > 1](b) and y < e", "no variable 'y'; bind it by 'exists y:' or 'forall y:'", 15),
        ("exists pos: [x > 1](pso)", "no variable 'pso'; did you mean 'pos'?", 20),
        ("(exists y: y < e) and y < b", "no variable 'y'", 22),
        ("exists y: Y(y)", "no variable 'Y'; bind it by", 10),
        ("exists b: b < e", "b is a record of the window", 7),
        ("exists Y: Y < e", "expected a record, found the set Y", 10),
        ("exists y: y(b)", "expected a set, found the record y", 10),
        ("[xx > 1](b)", "no field or relation 'xx'", 1),
        ("[x > 's'](b)", "a value of type integer cannot be compared with one of type text", 5),
        ("[x](b)", "expected a condition, found a value of type integer", 1),
        ("[x > 1](b", r"expected '\)', not the end", 9),
        ("[x > 1] and b < e", r"expected '\(', not 'and'", 8),
        ("[x > 1](b) and", "or a name, not the end", 14),
        ("exists y y < e", "expected ',' or ':', not 'y'", 9),
        ("b ~ e", "not '~'", 2),
    ],
)
def test_errors_point_at_their_position(text: str, message: str, position: int) -> None:
    with pytest.raises(UsageError, match=message) as error:
        formula_expression(text, ALPHABET)
    text_line, caret = str(error.value).splitlines()[-2:]
    assert text_line == f"  {text}"
    assert caret.index("^") - 2 == position


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            " and ".join(f"[x > y[-{i}]](e)" for i in range(1, 10)),
            "its 9 conditions have more than 256 combinations",
        ),
        ("(" * 61 + "b < e" + ")" * 61, "brackets nested deeper than 60"),
        ("not " * 2400 + "b < e", "nested too deeply"),
        ("b < e and " * 1200, "at most 10,000 characters; this one has 12,000"),
    ],
)
def test_formulas_that_are_too_large_are_rejected(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        formula_expression(text, ALPHABET)


def test_a_formula_may_have_many_variables() -> None:
    variables = ", ".join(f"X{i}" for i in range(25))
    assert formula_expression(f"exists {variables}: X0(b)", ALPHABET).pairs


def test_formulas_whose_automata_explode_are_rejected() -> None:
    sets = ", ".join(f"X{i}" for i in range(9))
    body = " and ".join(f"(X{i}(b) or X{i + 1}(e))" for i in range(8))
    with within_steps(10_000):
        with pytest.raises(UsageError, match="the formula is too large: its automata need more than"):
            formula_expression(f"exists {sets}: {body}", ALPHABET)
        assert formula_expression("exists X: X(b) and not X(e)", ALPHABET).pairs
