"""Queries are parsed into keywords and exclusions; every typed character is used or reported."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skws.keywords.keyword_query import Condition, KeywordQuery, Phrase, Prefix, Scope, Slot, Term
from skws.keywords.parse import MAX_SLOTS, parse_query
from skws.keywords.scope import with_left_out
from skws_schema.errors import QueryError
from skws_schema.model import Join
from tests.keywords.texts_and_queries import ACTOR, DIRECTOR, MOVIE, PLOT, SCHEMA, TITLE
from tests.strategies import examples

FILM = Scope(MOVIE, None)
PLAYS = SCHEMA.index["plays"]
NAMES = (Scope(DIRECTOR, 1), Scope(ACTOR, 1))


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("tarantino travolta", [("tarantino", [Term("tarantino")]), ("travolta", [Term("travolta")])]),
        ("tarantino AND travolta", [("tarantino", [Term("tarantino")]), ("travolta", [Term("travolta")])]),
        ("Movies", [("movies", [Term("movi")])]),
        ("movie movies MOVIE", [("movie", [Term("movi")])]),
        ("and or not pulp", [("pulp", [Term("pulp")])]),
        ('"Pulp  Fiction"', [('"pulp fiction"', [Phrase(("pulp", "fiction"))])]),
        ("“pulp fiction”", [('"pulp fiction"', [Phrase(("pulp", "fiction"))])]),
        ('pulp "pulps"', [("pulp", [Term("pulp")])]),
        ('"the"', [('"the"', [Phrase(("the",))])]),
        ('"OR"', [('"or"', [Phrase(("or",))])]),
        ("Trav*", [("trav*", [Prefix("trav")])]),
        ("Caf\u00e9*", [("caf\u00e9*", [Prefix("cafe")])]),
        ("spider-m*", [("spider-m*", [Prefix("spiderm")])]),
        ("東京*", [("東京*", [Phrase(("東", "京"))])]),
        ("(tarantino OR rodriguez)", [("tarantino|rodriguez", [Term("tarantino"), Term("rodriguez")])]),
        ("pulp OR gun fiction", [("pulp|gun", [Term("pulp"), Term("gun")]), ("fiction", [Term("fiction")])]),
        ("(pulp OR gun)OR(x)", [("pulp|gun|x", [Term("pulp"), Term("gun"), Term("x")])]),
        ("the OR pulp", [("pulp", [Term("pulp")])]),
        ("((pulp))", [("pulp", [Term("pulp")])]),
        ("(pulp fiction)", [("pulp", [Term("pulp")]), ("fiction", [Term("fiction")])]),
        ('gun OR "a gun" OR x*', [('gun|"a gun"|x*', [Term("gun"), Phrase(("a", "gun")), Prefix("x")])]),
        ("actor:Travolta", [("actor:travolta", [Term("travolta", scope=Scope(ACTOR, None))])]),
        ("ACTOR:travolta", [("actor:travolta", [Term("travolta", scope=Scope(ACTOR, None))])]),
        ("actor.name:trav*", [("actor.name:trav*", [Prefix("trav", scope=Scope(ACTOR, 1))])]),
        ("name:john", [("name:john", [Term("john", scope=scope) for scope in NAMES])]),
        ("title:pulp", [("title:pulp", [Term("pulp", scope=Scope(MOVIE, TITLE))])]),
        ('plot:"two men"', [('plot:"two men"', [Phrase(("two", "men"), scope=Scope(MOVIE, PLOT))])]),
        ("movie:(gun OR x)", [("movie:gun|movie:x", [Term("gun", scope=FILM), Term("x", scope=FILM)])]),
        ("movie:(gun x)", [("movie:gun", [Term("gun", scope=FILM)]), ("movie:x", [Term("x", scope=FILM)])]),
        ("movie:gun gun", [("movie:gun", [Term("gun", scope=FILM)]), ("gun", [Term("gun")])]),
        ("Mission: Impossible", [("mission", [Term("mission")]), ("impossible", [Term("imposs")])]),
        ("AT&T", [("at&t", [Term("at&t"), Phrase(("at", "t"), "at&t")])]),
        ("C++", [("c++", [Term("c++")])]),
        (".NET", [(".net", [Term(".net"), Phrase(("net",), ".net")])]),
        ("(C#),", [("c#", [Term("c#")])]),
        ("Spider-Man", [("spider-man", [Term("spiderman"), Phrase(("spider", "man"))])]),
        ("spider--man", [("spider--man", [Phrase(("spider", "man"))])]),
        ("pulp - fiction", [("pulp", [Term("pulp")]), ("fiction", [Term("fiction")])]),
        ("to-be and/or pulp", [("to-be", [Term("tobe")]), ("pulp", [Term("pulp")])]),
        ("AC/DC", [("ac/dc", [Phrase(("ac", "dc"))])]),
        ('"M*A*S*H"', [('"m*a*s*h"', [Phrase(("m", "a", "s", "h"))])]),
    ],
)  # fmt: skip
def test_keywords_are_parsed_into_slots(
    text: str, slots: list[tuple[str, list[Term | Phrase | Prefix]]]
) -> None:
    query = parse_query(text, SCHEMA)
    assert [(slot.text, list(slot.alternatives)) for slot in query.slots] == slots
    assert query.keywords == tuple(text for text, _ in slots)
    assert not query.exclusions


@pytest.mark.parametrize(
    ("text", "exclusions"),
    [
        ("pulp -trailer", [("trailer", [Term("trailer")])]),
        ("pulp NOT trailer", [("trailer", [Term("trailer")])]),
        ("-trailer pulp -trailers", [("trailer", [Term("trailer")])]),
        ('pulp -"the trailer"', [('"the trailer"', [Phrase(("the", "trailer"))])]),
        ("pulp -movie:trail*", [("movie:trail*", [Prefix("trail", scope=FILM)])]),
        ("pulp -(gun OR x)", [("gun|x", [Term("gun"), Term("x")])]),
        ("pulp NOT(gun) -x", [("gun", [Term("gun")]), ("x", [Term("x")])]),
        ("movie:(pulp -gun)", [("movie:gun", [Term("gun", scope=FILM)])]),
        ("spider-man -the", []),
    ],
)
def test_exclusions_are_parsed(text: str, exclusions: list[tuple[str, list[Term | Phrase | Prefix]]]) -> None:
    query = parse_query(text, SCHEMA)
    assert [(slot.text, list(slot.alternatives)) for slot in query.exclusions] == exclusions
    assert len(query.slots) == 1


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("pulp -plays:", {PLAYS}),
        ("pulp NOT plays: fiction", {PLAYS}),
        ("-PLAYS: pulp -movie: -plays:", {PLAYS, MOVIE}),
        ("(pulp -plays:)", {PLAYS}),
        ("pulp -movie: ; fiction", {MOVIE}),
        ("pulp OR fiction -plays:", {PLAYS}),
        ("pulp plays: -x", set()),
    ],
)
def test_excluded_relations_are_parsed(text: str, without: set[int]) -> None:
    query = parse_query(text, SCHEMA)
    assert query.without == without
    assert query.keywords[0].startswith("pulp")
    assert bool(query.exclusions) == (not without)
    for alternative in (term for slot in query.slots for term in slot.alternatives):
        assert not any(alternative.applies(relation, column) for relation in without for column in range(9))


def test_excluded_names_of_an_option_are_appended_to_the_text() -> None:
    assert with_left_out("pulp ; x", ["plays", "movie"]) == "pulp ; x -plays: -movie:"
    assert with_left_out("pulp", []) == "pulp"
    assert with_left_out("pulp", ["movie.did"]) == "pulp -movie.did:"
    for name in ("", "a b", "-plays", "plays:x", "a;b", 'a"b', "(a)", "a.", ".b", "a.b.c"):
        with pytest.raises(QueryError, match="expected the name of a relation"):
            with_left_out("pulp", [name])


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("pulp fiction", []),
        (
            "pulp, (fiction gun). -x!",
            ["not searched (too common, or not a word): .", "ignored (not part of a word): ',' '!'"],
        ),
        ("Mission: Impossible", ["ignored (not part of a word): ':'"]),
        ("#pulp* Tarantino's", ["ignored (not part of a word): '#'"]),
        ("the pulp & -", ["not searched (too common, or not a word): the, &, -"]),
        ("pulp \x1b,", ["not searched (too common, or not a word):  ,"]),
        ("pulp,\x1b", ["ignored (not part of a word): ',\\x1b'"]),
        ("AC/DC C++ .NET rock 'n' roll 100%", ["ignored (not part of a word): \"'\" '%'"]),
    ],
)
def test_ignored_parts_are_noted(text: str, notes: list[str]) -> None:
    assert list(parse_query(text, SCHEMA).notes) == notes


_SIGNS = "~?^!+|&[]{}<>=%/\\#@$,.;:'`_-*()\"\u201c\u2013\uff1f\uff1a\uff08"


QUOTED_TEXT = re.compile('["\u201c\u201d\u201e][^"\u201c\u201d\u201e]*["\u201c\u201d\u201e]')
WORD_INTERIOR = re.compile(r'(?<=[ab])[^\s"()]*(?=[ab])')


@examples(600)
@given(st.text(f"ab{_SIGNS}{_SIGNS} \t", max_size=16))
def test_every_typed_character_is_used_or_reported(text: str) -> None:
    """Each character is in a term or operator, is white space or is reported, unless the text is rejected."""
    query = parsed_or_error(text)
    if isinstance(query, str):
        return
    _check_invariants(query)
    slots = [slot.text for slot in (*query.slots, *query.exclusions)]
    excluded_names = [SCHEMA.relations[relation].name for relation in query.without]
    excluded_names += [SCHEMA.joins[join].name for join in query.without_joins]
    reported = "".join([*slots, *excluded_names, *query.dropped, *query.ignored])
    # Text in quotes or within a word is part of a term, which is shown once if it is repeated.
    uncovered = WORD_INTERIOR.sub("", QUOTED_TEXT.sub("", text))
    operators = '();-*:"\u201c\u201d\u201e'
    assert {char for char in uncovered if not char.isspace()} <= {*reported, *operators}


_PARTS = ("movie.mid", "studio", "title", "plays:", "pulp", "Zed", "5", "7", '"a b"', "a", "2024-01-01")
OPERATORS = (
    "<",
    "<=",
    ">",
    "=",
    "==",
    "!=",
    "!",
    "-",
    "..",
    "~",
    "~2",
    "*",
    "?",
    "(",
    ")",
    " OR ",
    ":",
    " ; ",
    ",",
)


@examples(1500)
@given(st.lists(st.sampled_from((*_PARTS, *OPERATORS, *OPERATORS, " ", " ", " ")), max_size=9).map("".join))
@example("pulp movie.mid<5!movie.mid:..7")
@example("pulp !studio:(a OR Zed) -studio>=5")
def test_every_character_of_conditions_and_fuzzy_terms_is_used_or_reported(text: str) -> None:
    """Unless the text is rejected."""
    query = parsed_or_error(text)
    if isinstance(query, str):
        return
    _check_invariants(query)
    slots = [slot.text for slot in (*query.slots, *query.exclusions)]
    excluded_names = [SCHEMA.relations[relation].name for relation in query.without]
    excluded_names += [SCHEMA.joins[join].name for join in query.without_joins]
    reported = "".join([*slots, *excluded_names, *query.dropped, *query.ignored]).lower()
    operators = "();-*:or!" + '"'
    assert {char for char in text.lower() if not char.isspace()} <= {*reported, *operators}
    assert sum(map(text.count, "<>=~?")) <= sum(map(reported.count, "<>=~?")) or _repeats(text)


def _repeats(text: str) -> bool:
    """True if a part is repeated: terms with the same meaning are shown once."""
    words = re.split(r"[\s()]+", text.lower())
    return len(set(words)) < len(words)


@example("x", "", "@*")
@given(st.text("xz", min_size=1, max_size=3), st.text(_SIGNS, max_size=3), st.text(_SIGNS, max_size=3))
def test_signs_around_a_word_are_shown_or_reported(word: str, before: str, after: str) -> None:
    query = parsed_or_error(f"{before}{word}{after} pulp")
    if isinstance(query, str) or set('();"\u201c') & {*before, *after} or "-" in before:
        return
    # The star of a prefix is shown next to the word: for "x@*", "@" is reported and "x*" is searched.
    slot_text = next(slot.text for slot in query.slots if word in slot.text).removesuffix("*")
    start, end = f"{before}{word}{after}".removesuffix("*").split(slot_text, 1)
    assert {part for part in (start, end) if part} <= {*query.ignored}


def test_dropped_terms_are_available_for_display() -> None:
    assert parse_query("the pulp of - the title:a fiction", SCHEMA).dropped == ("the", "of", "-", "title:a")


# Texts that golden scripts cannot contain; keywords/query_syntax_errors has the others.
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the query is empty"),
        ("   ", "the query is empty"),
        ("a" * 10_001, "a query may have at most 10,000 characters; this one has 10,001"),
        ("(" * 41 + "pulp" + ")" * 41, "nested deeper than 40"),
    ],
)
def test_invalid_queries_are_rejected_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        parse_query(text, SCHEMA)


@pytest.mark.parametrize("term", ['"pulp fiction"', "(pulp OR fiction)"])
@pytest.mark.parametrize("sign", ["^", "~"])
def test_a_sign_is_an_operator_next_to_a_term_only(term: str, sign: str) -> None:
    with pytest.raises(QueryError, match=re.escape(f"'{sign}' is")):
        parse_query(f"{term}{sign} heist", SCHEMA)
    assert parse_query(f"{term} {sign} heist", SCHEMA).dropped == (sign,)


def test_alternatives_in_another_order_are_one_keyword() -> None:
    query = parse_query("(pulp OR heist) fiction (heist OR pulp)", SCHEMA)
    assert query.keywords == ("pulp|heist", "fiction")
    assert query.repeated == ("heist|pulp",)


def test_the_caret_points_to_the_error_in_a_long_query() -> None:
    text = "pulp\x1b[31m " * 20 + '"fiction'
    with pytest.raises(QueryError) as error:
        parse_query(text, SCHEMA)
    _, line, caret = str(error.value).split("\n")
    assert line[caret.index("^") :].startswith('"fiction')
    assert "\x1b" not in line
    assert len(line) < 80


@pytest.mark.parametrize(
    ("text", "keywords", "groups"),
    [
        ("pulp; fiction", ("pulp", "fiction"), (0b1, 0b10)),
        ("pulp pulp fiction ;gun -car ; tarantino", ("pulp", "fiction", "gun", "tarantino"), (3, 4, 8)),
        ('"pulp ; fiction" ; gun', ('"pulp ; fiction"', "gun"), (1, 2)),
        ('"pulp ; fiction"', ('"pulp ; fiction"',), ()),
        ("(pulp OR fiction) gun ; title:car", ("pulp|fiction", "gun", "title:car"), (3, 4)),
    ],
)
def test_semicolons_separate_ordered_groups(
    text: str, keywords: tuple[str, ...], groups: tuple[int, ...]
) -> None:
    query = parse_query(text, SCHEMA)
    assert (query.keywords, query.sequence.groups) == (keywords, groups)


JOINED = replace(
    SCHEMA,
    joins=(
        Join.of("movie", "plays", (("mid", "mid"),)),
        Join("shot_by", "director", "movie", (("did", "mid"),)),
        Join("made", "director", "movie", (("did", "mid"), ("name", "title"))),
    ),
)


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("pulp -shot_by:", {1}),
        ("pulp NOT made: -SHOT_BY:", {1, 2}),
        ("pulp -plays.mid:", {0}),
        ("pulp -movie.Mid: ; fiction", {0, 1, 2}),
        ("pulp -did:", {1, 2}),
        ("pulp -actor: -TITLE:", {2}),
    ],
)
def test_excluded_joins_are_parsed(text: str, joins: set[int]) -> None:
    query = parse_query(text, JOINED)
    assert query.without_joins == joins
    assert query.without == ({ACTOR} if "actor" in text else set())
    assert not query.notes
    name = text.split("-")[-1].split(":")[0]
    assert parse_query(f"{text} -{name}:", JOINED).notes == (f"repeated, counted once: -{name}:",)


@pytest.mark.parametrize(
    ("condition", "is_noted"),
    [
        ("title<9", True),
        ("!title>=1.234,50", True),
        ("-title>2.9.14", True),
        ('title<"9"', False),
        ("title<k", False),
        ("title=9", False),
        ("movie.mid<1990", False),
    ],
)
def test_a_text_compared_with_a_number_is_noted(condition: str, is_noted: bool) -> None:
    note = f"compared as text, not as a number: {condition.lstrip('-')} (movie.title is of type text)"
    assert parse_query(f"pulp {condition}", SCHEMA).notes == ((note,) if is_noted else ())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mid", "'mid' is in several joins; write one of movie.mid, plays.mid"),
        ("movie.plot", "'movie.plot' is not a relation, a join or an attribute of a join"),
        ("shot_bi", "did you mean 'shot_by'?"),
        ("plays.mit", "did you mean 'plays.mid'?"),
    ],
)
def test_an_invalid_excluded_join_is_rejected(name: str, reason: str) -> None:
    with pytest.raises(QueryError, match=re.escape(reason)):
        parse_query(f"pulp -{name}:", JOINED)


def test_a_removed_join_cannot_be_excluded() -> None:
    schema_without_join = replace(JOINED, evolution=replace(JOINED.evolution, removed_joins=frozenset({1})))
    with pytest.raises(QueryError, match="'shot_by' is not a relation"):
        parse_query("pulp -shot_by:", schema_without_join)


def test_an_empty_group_is_rejected_with_the_reason() -> None:
    with pytest.raises(QueryError, match="no keyword after this ';'; 'the' is a stop word"):
        parse_query("pulp ; the", SCHEMA)


def test_a_query_may_have_the_maximum_number_of_slots() -> None:
    query = parse_query(" ".join(f"w{i} W{i}" for i in range(MAX_SLOTS)), SCHEMA)
    assert len(query.slots) == MAX_SLOTS


def test_queries_are_picklable_and_comparable() -> None:
    query = parse_query('trav* "pulp fiction" ; name:x -gun the', SCHEMA, match_names=True)
    assert pickle.loads(pickle.dumps(query)) == query
    assert hash(query) == hash(parse_query(query.text, SCHEMA, match_names=True))
    assert query != parse_query(query.text, SCHEMA)


def parsed_or_error(text: str) -> KeywordQuery | str:
    """The query, or the error message."""
    try:
        return parse_query(text, SCHEMA)
    except QueryError as error:
        return str(error)


def _check_invariants(query: KeywordQuery) -> None:
    assert 1 <= len(query.slots) <= MAX_SLOTS
    for slots in (query.slots, query.exclusions):
        assert all(slot.alternatives for slot in slots)
        assert len({frozenset(slot.alternatives) for slot in slots}) == len(slots)
    word_slots = [
        slot for slot in query.slots if not any(isinstance(a, Condition) for a in slot.alternatives)
    ]
    assert all(isinstance(slot, Slot) and slot.text == slot.text.lower() for slot in word_slots)
