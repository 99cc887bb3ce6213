"""The window language: semantics, errors, and no crash on any text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.errors import UsageError
from skws_schema.model import COMPARED, Attribute, AttributeType, Relation, Schema
from skws_windows.automata import regular as r
from skws_windows.automata.regular import LetterBlock, Limits, Selection
from skws_windows.guards.alphabet import Alphabet, StreamRecord, holds
from skws_windows.language.window_parser import parse_expression, parse_pairs, parse_regular
from skws_windows.processor.stream_processor import Processor
from skws_windows.window import (
    FOREVER,
    MICROSECOND,
    CountWindow,
    TimeWindow,
    Unbounded,
    Window,
    duration_text,
    parse_duration,
    parse_window,
)
from tests.strategies import examples
from tests.window_streams import ALPHABET, guards, matches, regulars, words

USERS = Alphabet(
    Schema(
        "users",
        (
            Relation("login", (Attribute("user", AttributeType.STRING),)),
            Relation("logout", (Attribute("user", AttributeType.STRING),)),
            Relation(
                "reading",
                (Attribute("user", AttributeType.STRING), Attribute("temp", AttributeType.NUMBER)),
            ),
        ),
        (),
    )
)


def windows_of(text: str, word: list[StreamRecord], alphabet: Alphabet = ALPHABET) -> list[tuple[int, int]]:
    return [(w.first, w.last) for w in Processor(parse_expression(text, alphabet), alphabet).process(word)]


def temperatures(*values: float) -> list[StreamRecord]:
    return [StreamRecord(0, i * 1_000_000, (None, value, None)) for i, value in enumerate(values)]


HEAT = temperatures(1, 3, 4, 2, 0, 0, 5, 0)


def test_regular_expressions_have_their_windows() -> None:
    assert windows_of("match [y > 2] .", HEAT) == [(1, 2), (2, 3), (6, 7)]
    assert windows_of("match [y > 2]+ after . [y < 3]", HEAT) == []
    assert windows_of("match [y > 2]+ after [y < 3]", HEAT) == [(1, 1), (1, 2)]
    assert windows_of("match .{3,3} after ()", HEAT) == [(0, 2)]
    expression = parse_pairs([(".*", "[y > 2] ([y > 1])*"), (".*", "[y < 1]")], ALPHABET, lookback=2)
    assert expression.k == 2
    windows = [(w.first, w.last) for w in Processor(expression, ALPHABET).process(HEAT)]
    assert windows == [(2, 2), (2, 3), (4, 4), (5, 5), (6, 6), (7, 7)]


# The lengths of the windows of one key from its first record on.
REPETITIONS = {
    "[y > 0]?": [1],
    "[y > 0]*": [1, 2, 3, 4],
    "[y > 0]+ [y = 0]": [5],
    "[y > 0]{2}": [2],
    "[y > 0]{2,}": [2, 3, 4],
    "[y > 0]{2,3}": [2, 3],
    "[y > 0]{0,2}": [1, 2],
    "([y = 1] | [y = 1] [y = 3]){1} .": [2, 3],
    ".? [y = 3]": [2],
}


@pytest.mark.parametrize(("text", "lengths"), REPETITIONS.items())
def test_repetitions_have_the_specified_number(text: str, lengths: list[int]) -> None:
    windows = windows_of(f"match {text} after ()", HEAT)
    assert sorted(last + 1 for first, last in windows if first == 0) == lengths


@pytest.mark.parametrize(
    ("condition", "positions"),
    [("x - x = 0", [0, 1, 3]), ("0 * x < y", [0, 1, 3]), ("x[-1] - x[-1] != 1", [1, 2])],
)
def test_a_term_that_is_cancelled_still_needs_a_value(condition: str, positions: list[int]) -> None:
    """A comparison with a missing value is false, and a condition looks back as far as it is written."""
    word = [StreamRecord(0, i, (x, 1.0, None)) for i, x in enumerate((1, 2, None, 3))]
    assert windows_of(f"match [{condition}]", word) == [(position, position) for position in positions]


def test_the_largest_allowed_limit_is_accepted() -> None:
    assert parse_expression("open when x[-100] > 1 close when b", ALPHABET).k == 100
    assert parse_expression("match .{200}", ALPHABET).pairs
    assert parse_expression("match (.{100}){5}", ALPHABET).pairs
    window_expression = parse_expression("match . at most 999999999999999999 records", ALPHABET)
    assert window_expression.limits == Limits(1, 10**18 - 1, None)
    assert str(parse_regular("[x > 9999999999999999999]", ALPHABET)) == "[9999999999999999999 < x]"
    assert str(parse_regular("[y > 0.0]", ALPHABET)) == "[0.0 < y]"


def test_omitted_parts_have_defaults() -> None:
    assert parse_expression("open when x > 1 close when b", ALPHABET).selection is Selection.FIRST
    assert parse_expression("match [x > 1]", ALPHABET).selection is Selection.EVERY
    assert parse_expression("after m until n per s, x", ALPHABET).per == ("s", "x")
    assert parse_expression("after m until n within 1h 30m", ALPHABET).limits == Limits(
        1, None, 5_400_000_000
    )
    assert parse_expression("LONGEST Open When b Close When b", ALPHABET).selection is Selection.LONGEST


CONDITIONS = {
    "x >= 2 and not b": "2 <= x and not (b = true)",
    "2 * x + y[-1] - 1 < x / 2": "4 * x + 2 * y[-1] + -2 < x",
    "-x = -(y + 1)": "-1 * x = -1 * y + -1",
    "s in ('a', \"b\\\"\") or s:'red'": "s = 'a' or s = 'b\"' or s:'red'",
    "'red'": "m.s:'red'",
    "contains 'red'": "m.s:'red'",
    "not s contains 'red' and s:blue": "not (s:'red') and s:'blue'",
    "m[-2] and n.x is not null": "m[-2] and not (n.x is null)",
    "time > '1970-01-01T00:00:01'": "1000000 < time",
    "time - time[-1] > 1 minute 30 s": "90000000 < time + -1 * time[-1]",
    "(x > 1 or x < 0) and b == false": "(1 < x or x < 0) and b = false",
    "1 < 2 and `x` <> 3": "x != 3",
    "2 < 1 or 'a' = 'b'": "false",
    "x + 0 > 1 and x + 1 > 1": "1 < x and 1 < x + 1",
    "2 * x >= y": "y <= 2 * x",
    "x is null": "x is null",
    "time > '1970-01-01T01:00:01+01:00'": "1000000 < time",
}


@pytest.mark.parametrize(("text", "meaning"), CONDITIONS.items())
def test_conditions_have_their_meaning(text: str, meaning: str) -> None:
    letter = parse_regular(f"[{text}]", ALPHABET)
    assert isinstance(letter, LetterBlock)
    assert str(letter.guard) == meaning


def test_names_of_relations_are_suggested_too() -> None:
    with pytest.raises(UsageError, match="no field or relation 'lohin'; did you mean 'login'"):
        parse_expression("after lohin until logout", USERS)
    with pytest.raises(UsageError, match="not the end"):
        parse_expression("", USERS)


@pytest.mark.parametrize(
    "text", ["open when login close when logout per login", "after login until logout per logout"]
)
def test_a_relation_in_place_of_a_field_is_reported(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"'log(in|out)' is a relation; expected a field, such as log"
    ) as error:
        parse_expression(text, USERS)
    assert "did you mean" not in str(error.value)


def test_keywords_need_a_text_attribute() -> None:
    numbers = Alphabet(Schema("n", (Relation("a", (Attribute("v", AttributeType.INTEGER),)),), ()))
    with pytest.raises(UsageError, match="no searched text"):
        parse_expression("open when 'red' close when v = 1", numbers)


@pytest.mark.parametrize("text", ["not " * 2000 + "b", "x" + " + 1" * 2000 + " > 1", "-" * 3000 + "x > 1"])
def test_long_chains_are_accepted_or_rejected(text: str) -> None:
    message = ""
    try:
        letter = parse_regular(f"[{text}]", ALPHABET)
    except UsageError as error:
        message = str(error)
    else:
        assert isinstance(letter, LetterBlock)
    assert not message or "nested too deeply" in message


def test_attributes_of_different_types_need_their_relation() -> None:
    mixed_schema = Schema(
        "mixed",
        (
            Relation("a", (Attribute("v", AttributeType.INTEGER), Attribute("open", AttributeType.BOOLEAN))),
            Relation("b", (Attribute("v", AttributeType.STRING), Attribute("time", AttributeType.NUMBER))),
        ),
        (),
    )
    with pytest.raises(UsageError, match=r"write a\.v or b\.v"):
        parse_expression("open when v = 1 close when true", Alphabet(mixed_schema))
    window_expression = parse_expression(
        "open when a.v = 1 and open close when b.v = 'x' and time > 1", Alphabet(mixed_schema)
    )
    assert len(window_expression.guards) == 4


def timeless(regular: r.Regular) -> bool:
    """Times are shown as microseconds, which is not the syntax of expressions."""
    return "time" not in str(regular)


@examples(100)
@given(
    st.one_of(regulars(2), guards(2).map(LetterBlock)).filter(timeless),
    st.lists(words(5, 2), min_size=4, max_size=4),
)
def test_expressions_are_shown_in_their_own_syntax(
    regular: r.Regular, sample_words: list[list[StreamRecord]]
) -> None:
    parsed = parse_regular(str(regular), ALPHABET)
    for word in sample_words:
        assert matches(parsed, word, 2) == matches(regular, word, 2)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("20 minutes", TimeWindow(1200 * MICROSECOND)),
        ("1h 30m", TimeWindow(5400 * MICROSECOND)),
        ("1.5 Weeks", TimeWindow(907_200 * MICROSECOND)),
        ("250ms", TimeWindow(250_000)),
        ("1 tuple", CountWindow(1)),
        ("1000 records", CountWindow(1000)),
        (" None ", Unbounded()),
    ],
)
def test_window_specifications_are_parsed(text: str, window: Window) -> None:
    assert parse_window(text) == window


DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"match .{{{DIGITS}}}", "more than 200 repetitions"),
        (f"match .{{1,{DIGITS}}}", "more than 200 repetitions"),
        (f"match [y > y[-{DIGITS}]]", "can look back at most 100 records"),
        (f"match [y > {DIGITS}]", "at most 19 digits"),
        (f"match . at most {DIGITS} records", "from 1 to 10\\^18"),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_expression(text, ALPHABET)


def test_a_window_of_too_many_tuples_is_refused() -> None:
    with pytest.raises(UsageError, match="too long"):
        parse_window(f"{DIGITS} tuples")


HUGE = " * ".join(["9999999999999999999"] * 20)


@pytest.mark.parametrize(
    "term", ["1e308 * 10.0", "y / 1e-320", "y * 1e200 * 1e200", HUGE, f"{HUGE} * 1.5", f"y * {HUGE}"]
)
def test_products_that_do_not_fit_in_a_double_are_refused(term: str) -> None:
    """Comparisons with infinity are misleading, and z3 does not support it."""
    with pytest.raises(UsageError, match="fit in a double"):
        parse_expression(f"match [y < {term}]", ALPHABET)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("y / 49 = 1", "y = 49"),
        ("y / -7 / 7 < 2", "-1 * y < 98"),
        ("49 / 49 = y", "1.0 = y"),
        ("(y - y[-1]) / 3 >= x / 2", "3 * x <= 2 * y + -2 * y[-1]"),
        ("y / 3 + y / 6 + 1 > 0", "0 < 9 * y + 18"),
        ("(x - x + 1) / 4 < y", "0 * x + 1 < 4 * y"),
        ("x / 2 in (1, 3)", "x = 2 or x = 6"),
    ],
)
def test_a_division_by_a_whole_number_is_exact(condition: str, text: str) -> None:
    """Both sides are multiplied by it, since in doubles 49 * (1 / 49) is less than 1."""
    assert str(parse_regular(f"[{condition}]", ALPHABET)) == f"[{text}]"


@examples(60)
@given(st.integers(-60, 60), st.integers(1, 99), st.integers(1, 99), st.sampled_from(["<", "<=", "=", ">"]))
def test_divisions_hold_as_fractions_do(value: int, first: int, second: int, operator: str) -> None:
    regular = parse_regular(f"[y / {first} - x / {second} {operator} 1]", ALPHABET)
    assert isinstance(regular, LetterBlock)
    expected = COMPARED[operator](Fraction(value, first) - Fraction(7, second), 1)
    assert holds(regular.guard, [StreamRecord(0, 0, (7, float(value), None))], ALPHABET) == expected


def test_a_quotient_is_no_field() -> None:
    with pytest.raises(UsageError, match="expected a field"):
        parse_regular("[y / 2 is null]", ALPHABET)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("at most 3 records at least 5 records", "no window has at least 5 and at most 3 records"),
        ("at most 3 records within 1 s at most 5 records", "a limit of this kind is given twice"),
        ("within 1 s within 1 minute", "a limit of this kind is given twice"),
    ],
)
def test_limits_that_contradict_or_replace_each_other_are_refused(limits: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_expression(f"match [y > 1]+ {limits}", ALPHABET)


def test_brackets_in_quotes_are_not_nested() -> None:
    text = f"[s = '{'(' * 70}' and s != \"{'[' * 70}\"]"
    assert isinstance(parse_regular(text, ALPHABET), LetterBlock)
    with pytest.raises(UsageError, match="nested deeper than 60"):
        parse_regular(f"[{'(' * 70}y > 1{')' * 70}]", ALPHABET)


@pytest.mark.parametrize("length", [1, 1_500_000, 90_000_001, (1 << 56) + 11, FOREVER // 4 - 1])
def test_every_duration_is_parsed_back(length: int) -> None:
    assert parse_duration(duration_text(length)) == length


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("y * 1e300 > 1", [0, 1, 2]), ("y + y[-1] > 1.7e308", [1]), ("y * 1e300 - y * 1e300 = 0", [0, 1, 2])],
)
def test_sums_beyond_the_range_of_doubles_are_infinite_without_a_warning(
    condition: str, expected: list[int]
) -> None:
    assert windows_of(f"match [{condition}]", temperatures(1e308, 1e308, 1.0)) == [(i, i) for i in expected]
