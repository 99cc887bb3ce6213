"""The query language of keywords, with the prefixes of the query box."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from hypothesis import strategies as st

from skws.keywords.keyword_query import KeywordQuery
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from skws.spec.query_spec import Query
from skws_schema.errors import QueryError, UsageError
from skws_schema.model import AttributeType, Row, Schema, Value
from skws_schema.yaml.load import parse_schema
from skws_tui.services.typed import as_query, parse_typed
from tests.fuzz.fuzzing import ODD_TEXTS, Language, check_rejection, words_and_signs
from tests.oracles.bitmaps import bitmap

SCHEMA: Final = parse_schema("""
name: shop
window: 1 hour
synonyms: ["cheap, inexpensive", "car, automobile, motor car"]
relations:
  item:
    attributes:
      id: integer
      name: text
      about: {type: text, analyzer: simple}
      code: {type: text, analyzer: none}
      price: number
      sold: boolean
      made: timestamp
      maker: string
  sale: {attributes: {item: integer, note: text, at: timestamp}}
  shop: {attributes: {shop: integer, city: {type: text, analyzer: german}}, table: true}
joins: [item.id = sale.item]
""")

_WORDS: Final = (
    *("car", "cheap", "automobile", "lamps", "red", "running", "chairs", "desk", "café", "AT&T"),
    *("spider-man", "3.5", "münchen", "AB-12", "東京", "C++"),
)
_UNWANTED: Final = ("broken", "used", "stolen", "kaputt")
_WORD: Final = st.sampled_from(_WORDS)
_PHRASE: Final = st.lists(_WORD, min_size=1, max_size=3).map(lambda some: f'"{" ".join(some)}"')
_PREFIX: Final = st.sampled_from(("ca*", "che*", "ru*", "AB*", "lam*"))
_WILDCARD: Final = st.sampled_from(("c*r", "*ing", "d?sk", "l?m*", "*eap", "ca?s"))
_FUZZY: Final = st.sampled_from(("chiar~", "deks~", "runing~1", "automobil~2", "cheepp~2", "red~"))
_LEAF: Final = st.one_of(_WORD, _WORD, _WORD, _PHRASE, _PREFIX, _WILDCARD, _FUZZY)
_SCOPES: Final = st.sampled_from(("item:", "name:", "item.about:", "sale:", "note:", "ITEM.name:", "city:"))
_NUMBER: Final = st.sampled_from(("0", "1", "2", "2.5", "1e2", "-1"))
_TIME: Final = st.sampled_from(("2026-01-01", "2026-01-01T12:00:00Z", "1767225600", "2025-12-31"))
_COMPARISON: Final = st.sampled_from(("<", "<=", ">", ">=", "=", "!="))


def concatenated(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(p) if isinstance(p, str) else p for p in parts)).map("".join)


def _ranges(name: str, value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    ends = st.lists(value, min_size=2, max_size=2)
    return st.one_of(
        ends.map(lambda pair: f"{name}:{min(pair, key=float)}..{max(pair, key=float)}"),
        concatenated(f"{name}:", value, ".."),
        concatenated(f"{name}:..", value),
    )


_CONDITIONS: Final = {
    "item": st.one_of(
        concatenated("price", _COMPARISON, _NUMBER),
        concatenated("item.price", _COMPARISON, _NUMBER),
        _ranges("price", _NUMBER),
        concatenated("id", _COMPARISON, st.sampled_from(("0", "1", "2"))),
        concatenated("sold=", st.sampled_from(("true", "false"))),
        concatenated("made", _COMPARISON, _TIME),
        concatenated("made:2026-01-01..", st.sampled_from(("", "2026-06-30"))),
        concatenated("maker", _COMPARISON, st.sampled_from(("acme", "zed", '"acme ltd"'))),
        concatenated("name=", st.sampled_from(('"red car"', "car"))),
    ),
    "sale": st.one_of(
        concatenated("at", _COMPARISON, _TIME), concatenated("sale.item", _COMPARISON, st.sampled_from("012"))
    ),
    "shop": concatenated("shop", _COMPARISON, st.sampled_from("012")),
}
_CONDITION: Final = st.one_of(*_CONDITIONS.values())


def alternatives(term: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(term, min_size=2, max_size=3, unique=True).map(lambda some: f"({' OR '.join(some)})")


_TERM: Final = st.one_of(
    *(
        _LEAF,
        _LEAF,
        _LEAF,
        alternatives(_LEAF),
        concatenated(_SCOPES, _LEAF),
        concatenated(_SCOPES, alternatives(_LEAF)),
    ),
    concatenated("!", _CONDITION),
    alternatives(st.one_of(_LEAF, concatenated("!", _CONDITION))),
    concatenated("(", _LEAF, ")"),
)
_EXCLUSION: Final = st.one_of(
    concatenated("-", st.sampled_from(_UNWANTED)),
    concatenated("NOT ", st.sampled_from(_UNWANTED)),
    concatenated("-", _SCOPES, st.sampled_from(_UNWANTED)),
    concatenated("-", alternatives(st.sampled_from(_UNWANTED))),
    concatenated("-", _CONDITION),
    st.just("-shop:"),
)
_RESTRICTION: Final = st.one_of(_CONDITION, *(alternatives(one) for one in _CONDITIONS.values()))


@st.composite
def _texts(draw: st.DrawFn) -> str:
    terms = draw(st.lists(_TERM, min_size=1, max_size=5, unique=True))
    suffix = draw(st.lists(st.one_of(_EXCLUSION, _RESTRICTION), max_size=2))
    separator = draw(st.sampled_from((" ", " ", " ", "  ", " AND ", "\t")))
    cut = draw(st.integers(0, 4 * len(terms)))
    groups = [terms[:cut], terms[cut:]] if 0 < cut < len(terms) else [terms]
    return " ; ".join(
        [*(separator.join(group) for group in groups[:-1]), separator.join([*groups[-1], *suffix])]
    )


_DURATION: Final = st.sampled_from(("2 hours", "30 minutes", "1h 30m", "90 s"))
_EXPRESSION: Final = "open when price > 2 close when price < 1"
_PREFIXES: Final = st.one_of(
    *[st.just("")] * 4,
    concatenated("rank", st.sampled_from(("", " compact", " recency")), ": "),
    concatenated("rank half-life ", _DURATION, ": "),
    concatenated("top ", st.sampled_from(("1", "5", "100")), st.sampled_from(("", " group")), ": "),
    concatenated("top 3 group half-life ", _DURATION, ": "),
    concatenated("top 3 window ", _DURATION, ": "),
    concatenated("top 3 half-life ", _DURATION, " window ", _DURATION, ": "),
    st.just(f"window {_EXPRESSION}: "),
)

# Errors of the whole text, which have no position.
_TEXT_ERRORS: Final = (
    "the query is empty|no keyword is left|contains no word|nothing can match|"
    "only (excludes|restricts)|at most [0-9,]+ (keywords|characters)|needs? a keyword"
)
_PREFIX_ERRORS: Final = re.compile("half-life|window|ranking|best|expected", re.IGNORECASE)


def check(text: str, random: Random) -> bool:
    """Bitmaps equal those of the oracle; blanks and parentheses around a query change nothing."""
    typed = parse_typed(text)
    assert typed.pattern or text.strip().endswith(typed.text)
    try:
        query_spec = as_query(typed)
    except UsageError as error:
        return check_rejection(str(error), _PREFIX_ERRORS)
    assert Query.from_dict(query_spec.to_dict()) == query_spec
    if typed.pattern:
        return False
    try:
        query = parse_query(typed.text, SCHEMA)
    except QueryError as error:
        return check_rejection(str(error), rf"\n  .*\n *\^\Z|{_TEXT_ERRORS}")
    _check_notation(typed.text, query)
    matcher = Matcher(query, SCHEMA)
    for relation in range(len(SCHEMA.relations)):
        for _ in range(3):
            row = random_row(random, SCHEMA, relation)
            assert matcher.bitmap(relation, row) == _expected(query, relation, row), row
    return True


def _expected(query: KeywordQuery, relation: int, row: Row) -> int:
    bits = bitmap(query, SCHEMA, relation, row)
    # No tuple precedes itself.
    return EXCLUDED if sum(bool(bits & group) for group in query.sequence.groups) > 1 else bits


def _check_notation(text: str, query: KeywordQuery) -> None:
    padded = parse_query(f" {text}\n", SCHEMA)
    assert (padded.slots, padded.exclusions, padded.without) == (query.slots, query.exclusions, query.without)
    # A sign that is ignored at the end of the text is an operator without a term before a parenthesis.
    if text[-1].isalnum() and not set(';"') & set(text):
        parenthesized = parse_query(f"({text})", SCHEMA)
        assert (parenthesized.slots, parenthesized.exclusions, parenthesized.without) == (
            padded.slots,
            padded.exclusions,
            padded.without,
        )


def random_row(random: Random, schema: Schema, relation: int) -> Row:
    """A row of values from queries, with occasional NULLs."""
    return tuple(
        None if random.random() < 0.1 else _value(random, attribute.type)
        for attribute in schema.relations[relation].attributes
    )


def _value(random: Random, kind: AttributeType) -> Value:
    match kind:
        case AttributeType.INTEGER:
            return random.randint(0, 2)
        case AttributeType.NUMBER:
            return random.choice([-1.0, 0.5, 2.0, 2.5, 100.0])
        case AttributeType.BOOLEAN:
            return random.random() < 0.5
        case AttributeType.TIMESTAMP:
            return random.choice([1_767_225_600, 1_767_268_800, 1_735_689_600]) * 1_000_000
        case AttributeType.STRING:
            return random.choice(["acme", "zed", "acme ltd"])
    words = random.choices([*_WORDS, *_UNWANTED, "the", "chair", "cars", "runs", "motor car"], k=4)
    return random.choice([" ", " ", ", "]).join(words[: random.randint(0, 4)])


LANGUAGE: Final = Language("keywords", concatenated(_PREFIXES, _texts()), check, words_and_signs, ODD_TEXTS)
