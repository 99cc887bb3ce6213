"""The pattern language: parsing, automata, and errors with their position."""

from __future__ import annotations

from contextlib import suppress

import pytest

from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.pattern_parser import Agreement, Filter, Keyword, former_spellings, parse_pattern
from skws_patterns.pcea import PCEA, TextTest
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_schema.errors import PatternError
from skws_schema.model import Attribute, AttributeType, Op, Relation, Row, Schema
from skws_windows.window import CountWindow, TimeWindow
from tests.oracles.run_trees import by_label
from tests.patterns.pattern_matches import contains


def relation(name: str, *, table: bool = False) -> Relation:
    attributes = (
        Attribute("user", AttributeType.INTEGER),
        Attribute("memo", AttributeType.TEXT),
        Attribute("at", AttributeType.TIMESTAMP),
        Attribute("ok", AttributeType.BOOLEAN),
    )
    return Relation(name, attributes, search=("memo",), table=table)


SCHEMA = Schema(
    "bank", (relation("login"), relation("transfer"), relation("refund"), relation("branch", table=True)), ()
)
FULL = '(login l AND transfer t) ; refund r where l.user = t.user = r.user and t:"urgent" within 10 minutes'


def automaton(text: str) -> PCEA:
    return compile_pattern(parse_pattern(text, SCHEMA), SCHEMA, contains).pcea


def row(user: int, memo: str = "", at: int = 0, ok: bool = True) -> Row:
    return (user, memo, at, ok)


def test_every_part_of_a_pattern_is_parsed() -> None:
    pattern = parse_pattern(FULL, SCHEMA)
    agreement, keyword = pattern.conditions
    assert isinstance(agreement, Agreement)
    assert [str(r) for r in agreement.references] == ["l.user", "t.user", "r.user"]
    assert isinstance(keyword, Keyword)
    assert (keyword.variable, keyword.attribute, keyword.text) == ("t", None, "urgent")
    assert pattern.window == TimeWindow(600_000_000)
    assert parse_pattern(f"pattern: {FULL}", SCHEMA).expression == pattern.expression
    assert parse_pattern("login a within 1000 tuples", SCHEMA).window == CountWindow(1000)


def test_reserved_words_are_case_insensitive() -> None:
    upper = parse_pattern("login a AND transfer b WHERE a.user = b.user WITHIN 1 h", SCHEMA)
    lower = parse_pattern("login a and transfer b where a.user = b.user within 1 h", SCHEMA)
    assert (upper.expression, upper.conditions, upper.window) == (
        lower.expression,
        lower.conditions,
        lower.window,
    )


def test_filters_have_the_types_of_their_attributes() -> None:
    text = "login l where l.user >= 2 and 5 > l.user and l.ok = true and l.at < '2026-01-01T00:00:00Z'"
    pattern = parse_pattern(text, SCHEMA)
    operators = [c.operator for c in pattern.conditions if isinstance(c, Filter)]
    assert operators == [Op.AT_LEAST, Op.LESS, Op.EQUAL, Op.LESS]
    (transition,) = automaton(text).transitions
    assert transition.unary.holds(0, row(3))
    assert not transition.unary.holds(0, row(5))
    assert not transition.unary.holds(0, row(3, ok=False))
    assert not transition.unary.holds(0, row(3, at=1_767_225_600_000_000))
    assert transition.unary.holds(0, row(3, at=1_767_225_599_999_999))


def test_an_attribute_that_equals_itself_is_not_null() -> None:
    (transition,) = automaton("login l where l.user = l.user").transitions
    assert transition.unary.holds(0, row(3))
    assert not transition.unary.holds(0, (None, "", 0, True))


def test_a_constant_may_have_thousands_of_digits() -> None:
    digits = "9" * 5_000
    for text, user, expected in ((f"< {digits}", 5, 1), (f"> -{digits}", 5, 1), (f"= {digits}", 5, 0)):
        evaluator = TupleEvaluator(automaton(f"login l where l.user {text}"), 4, CountWindow(5))
        assert len(list(evaluator.feed(0, row(user)))) == expected


def test_a_keyword_is_searched_in_the_searched_attributes_or_the_named_one() -> None:
    attributes = tuple(Attribute(name, AttributeType.TEXT) for name in ("title", "memo", "note"))
    schema = Schema("texts", (Relation("letter", attributes, search=("title", "memo")),), ())
    columns = []
    for condition in ('l:"a"', "l:a", 'l ~ "a"', 'l.memo:"a"', "l.memo:a"):
        pattern = parse_pattern(f"letter l where {condition}", schema)
        (transition,) = compile_pattern(pattern, schema, contains).pcea.transitions
        (test,) = transition.unary.tests
        assert isinstance(test, TextTest)
        columns.append(test.columns)
    assert columns == [(0, 1)] * 3 + [(1,)] * 2


def test_former_spellings_are_reported() -> None:
    text = "login l ; refund r where l.user = r.user and l ~ \"a\" and l.memo ~ 'b' and l:c"
    assert former_spellings(text) == (
        'l ~ "a" is now written l:"a"; later versions accept only that',
        "l.memo ~ 'b' is now written l.memo:'b'; later versions accept only that",
    )


def test_quoted_texts_may_contain_quotes() -> None:
    (keyword,) = parse_pattern(r'login l where l:"a \"b\" \\ c"', SCHEMA).conditions
    assert isinstance(keyword, Keyword)
    assert keyword.text == 'a "b" \\ c'


def test_a_variable_defaults_to_the_name_of_its_relation() -> None:
    assert automaton("login ; refund where login.user = refund.user").labels == {"login", "refund"}


def test_keywords_in_order() -> None:
    pattern = parse_pattern('"fraud" ; \'"re; fund"\'', SCHEMA)
    evaluator = TupleEvaluator(compile_pattern(pattern, SCHEMA, contains).pcea, 4, CountWindow(10))
    stream = [(2, row(1, '"re; fund"')), (0, row(2, "fraud")), (1, row(3, "x")), (2, row(4, '"re; fund"'))]
    matches = [list(evaluator.feed(relation, values)) for relation, values in stream]
    assert [len(results) for results in matches] == [0, 0, 0, 1]
    assert by_label(matches[3][0]) == {"fraud": {1}, '"re; fund"': {3}}


@pytest.mark.parametrize(
    "text",
    ["(" * 3000, "(" * 3000 + "login" + ")" * 3000, "login ; " * 300 + "login", "login ; " * 63 + "login"],
)
def test_very_large_patterns_are_rejected_or_compiled(text: str) -> None:
    with suppress(PatternError):
        automaton(text)


def test_a_star_matches_every_stream_with_the_attributes() -> None:
    note = Relation("note", (Attribute("text", AttributeType.STRING),))
    schema = Schema("more", (*SCHEMA.relations, note), ())

    def relations(text: str) -> set[int]:
        pattern = parse_pattern(text, schema)
        return {t.unary.relation for t in compile_pattern(pattern, schema, contains).pcea.transitions}

    assert relations("* t") == {0, 1, 2, 4}
    assert relations("* t where t.user = 1") == {0, 1, 2}
    assert relations('* t where t:"x"') == {0, 1, 2}
    assert relations("* t where t.text = 'x'") == {4}
    with pytest.raises(PatternError, match="no stream has what t needs: text, user"):
        relations("* t where t.text = 'x' and t.user = 1")


def test_repetitions_of_repetitions() -> None:
    """A repetition doubles its operand, but leaves an operand unchanged that is a repetition already."""
    deep = parse_pattern("(" * 30 + "login a" + "+)" * 30, SCHEMA)
    assert deep.expression == parse_pattern("login a+", SCHEMA).expression
    nested = "login a"
    for variable in "bcdefghij":
        nested = f"({nested} ; refund {variable})+"
    with pytest.raises(PatternError, match="nested too deeply") as error:
        parse_pattern(nested, SCHEMA)
    assert "^^^" in str(error.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("login l ; no transfer t where l.user = t.user within 1 hour", "no"),
        ("login l AND NOT transfer t", "NOT"),
        ("login l ; !transfer t", "!"),
        ("login l unless transfer t within 1 hour", "unless"),
        ("login l ; transfer t within 1 hour without refund", "without"),
    ],
)
def test_absence_is_rejected_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(PatternError) as error:
        parse_pattern(text, SCHEMA)
    message, _, carets = str(error.value).splitlines()
    assert message.startswith(f"there is no {word!r}: a match is reported when its last tuple arrives")
    assert carets.count("^") == len(word)


@pytest.mark.parametrize("text", ["login no ; transfer t refund", "login l where l.memo = 'not' x"])
def test_other_uses_of_these_words_are_not_absence(text: str) -> None:
    with pytest.raises(PatternError, match="unexpected"):
        parse_pattern(text, SCHEMA)
