from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.errors import QueryError
from skws.keywords import MAX_SLOTS, KeywordQuery, Phrase, Prefix, Scope, Slot, Term, parse_query
from tests.keywords.texts_and_queries import ACTOR, DIRECTOR, MOVIE, PLOT, SCHEMA, TITLE, queries

FILM = Scope(MOVIE, None)
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
        ("AT&T", [("at&t", [Term("at&t")])]),
        ("C++", [("c++", [Term("c++")])]),
        (".NET", [(".net", [Term(".net")])]),
        ("(C#),", [("c#", [Term("c#")])]),
        ("Spider-Man", [("spider-man", [Term("spiderman"), Phrase(("spider", "man"))])]),
        ("spider--man", [("spider--man", [Phrase(("spider", "man"))])]),
        ("pulp - fiction", [("pulp", [Term("pulp")]), ("fiction", [Term("fiction")])]),
        ("to-be and/or pulp", [("to-be", [Term("tobe")]), ("pulp", [Term("pulp")])]),
        ("AC/DC", [("ac/dc", [Phrase(("ac", "dc"))])]),
        ('"M*A*S*H"', [('"m*a*s*h"', [Phrase(("m", "a", "s", "h"))])]),
    ],
)  # fmt: skip
def test_slots(text: str, slots: list[tuple[str, list[Term | Phrase | Prefix]]]) -> None:
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
def test_exclusions(text: str, exclusions: list[tuple[str, list[Term | Phrase | Prefix]]]) -> None:
    query = parse_query(text, SCHEMA)
    assert [(slot.text, list(slot.alternatives)) for slot in query.exclusions] == exclusions
    assert len(query.slots) == 1


def test_dropped_terms_are_kept_for_display() -> None:
    assert parse_query("the pulp of - the title:a fiction", SCHEMA).dropped == ("the", "of", "-", "title:a")


@pytest.mark.parametrize(
    ("text", "message", "caret"),
    [
        ("", "the query is empty", None),
        ("   ", "the query is empty", None),
        (
            "the of",
            "nothing left to look for: not searched are the, of (stop words, or no words at all)",
            None,
        ),
        ("!!!", "not searched are !!!", None),
        ('""', "nothing left to look for", None),
        ("-pulp", "'-pulp' only excludes; add a keyword", None),
        ("the -pulp", "only excludes; add a keyword to look for: not searched are the", None),
        ("pulp -pulps", "nothing can match: 'pulp' is both looked for and excluded", None),
        ("a" * 10_001, "a query may have 10,000 characters at most; this one has 10,001", None),
        ("a1 a2 a3 a4 a5 a6 a7 a8 a9", "8 keywords at most; this one has 9", None),
        ('pulp "fiction', "this quotation mark has no partner", 5),
        ('pulp fict"ion', "this quotation mark has no partner", 9),
        ("(pulp (fiction)", "this parenthesis is never closed", 0),
        ("pulp) fiction", "this parenthesis closes nothing", 4),
        ("pulp ()", "nothing between these parentheses", 5),
        ("(" * 41 + "pulp" + ")" * 41, "nested deeper than 40", None),
        ("pulp *", "'*' stands for the end of a word only", 5),
        ("*pulp", "'*' stands for the end of a word only", 0),
        ("pu*lp", "'*' stands for the end of a word only", 2),
        ("title:*", "'*' stands for the end of a word only", 6),
        ("gun -*", "'*' stands for the end of a word only", 5),
        ("!!*", "'*' needs at least one letter or digit", 0),
        ("pulp/fict*", "a prefix is one word", 0),
        ("pulp OR", 'OR needs a term after it (to search for the word, write "OR")', 5),
        ("OR pulp", "OR needs a term before it", 0),
        ("pulp AND OR gun", "AND needs a term after it", 5),
        ("(pulp OR) gun", "OR needs a term after it", 6),
        ("pulp NOT", "NOT is followed by no term", 5),
        ("pulp NOT OR", "NOT is followed by no term", 5),
        ("pulp NOT NOT gun", "an exclusion cannot be excluded", 9),
        ("pulp --gun", "an exclusion cannot be excluded", 6),
        ("pulp -(NOT gun)", "an exclusion cannot be an alternative or be excluded", None),
        ("pulp OR NOT gun", "an exclusion cannot be an alternative", None),
        ("pulp OR (x -gun)", "OR joins single words, phrases and prefixes", None),
        ("pulp OR (gun x)", "OR joins single words, phrases and prefixes", 9),
        ("pulp OR gun AND x", "OR joins single words, phrases and prefixes", None),
        ("pulp -(gun x)", "all of them together cannot be", 7),
        ("actr:pulp", "no relation or attribute 'actr'; did you mean 'actor'?", 0),
        ("x -actr:pulp", "no relation or attribute 'actr'; did you mean 'actor'?", 3),
        ("actor.nane:pulp", "relation 'actor' has no attribute 'nane'; did you mean 'name'?", 0),
        ("titel:pulp", "no relation or attribute 'titel'; did you mean 'title'?", 0),
        ("12:30", "no relation or attribute '12'; if the colon is part of the text, put quotes around it", 0),
        ("studio:x", "attribute 'studio' is searched in no relation (it is in movie)", 0),
        (
            "movie.studio:x",
            "attribute movie.studio is not searched; searched are: movie.title, movie.plot",
            0,
        ),
        ("plays:x", "relation 'plays' has no attribute that keywords are looked for in", 0),
        ("plays.role:x", "attribute plays.role is not searched; no attribute of 'plays' is", 0),
        ("movie:title:x", "movie: is followed by no term", 0),
        ("movie:-x", "movie: is followed by no term (a scope goes after the minus", 0),
        ("movie:(title:x OR y)", "'title' stands inside a group that has a scope already", 7),
        ("movie:((x) title:y)", "'title' stands inside a group that has a scope already", 11),
        ("; pulp", "there is no keyword before this ';'", 0),
        ("pulp ; ", "there is no keyword after this ';'", 5),
        ("pulp ;; fiction", "there is no keyword after this ';'", 5),
        ("pulp ; -fiction", "there is no keyword after this ';'", 5),
        ("pulp ; fiction OR", "OR needs a term after it", 15),
        ("pulp ; titel:x", "no relation or attribute 'titel'", 7),
        ("(pulp ; fiction)", "cannot stand in parentheses", 6),
        ("pulp gun ; fiction guns", "'guns' stands before ';' as well: no tuple comes before itself", 19),
    ],
)
def test_errors_say_what_and_where(text: str, message: str, caret: int | None) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(text, SCHEMA)
    shown = str(caught.value)
    assert message in shown
    if caret is not None:
        assert shown.endswith(f"\n  {text}\n  {' ' * caret}^")


def test_the_caret_stands_below_the_place_in_a_long_query_with_control_characters() -> None:
    text = "pulp\x1b[31m " * 20 + '"fiction'
    with pytest.raises(QueryError) as caught:
        parse_query(text, SCHEMA)
    _, line, caret = str(caught.value).split("\n")
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
def test_semicolons_part_groups_of_keywords(
    text: str, keywords: tuple[str, ...], groups: tuple[int, ...]
) -> None:
    query = parse_query(text, SCHEMA)
    assert (query.keywords, query.sequence.groups) == (keywords, groups)


def test_a_group_without_words_says_why() -> None:
    with pytest.raises(QueryError, match="no keyword after this ';': not searched are the"):
        parse_query("pulp ; the", SCHEMA)


def test_most_slots() -> None:
    query = parse_query(" ".join(f"w{i} W{i}" for i in range(MAX_SLOTS)), SCHEMA)
    assert len(query.slots) == MAX_SLOTS


def test_a_query_is_a_value() -> None:
    query = parse_query('trav* "pulp fiction" ; name:x -gun the', SCHEMA, match_names=True)
    assert pickle.loads(pickle.dumps(query)) == query
    assert hash(query) == hash(parse_query(query.text, SCHEMA, match_names=True))
    assert query != parse_query(query.text, SCHEMA)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=30), st.text("ab(\") *-:;.ORNTAD&'“”\u0301\t東", max_size=24)))
def test_any_text_is_a_query_or_a_query_error(text: str) -> None:
    query = _parsed(text)
    if isinstance(query, KeywordQuery):
        _check_invariants(query)
    else:
        assert query


@settings(deadline=None)
@given(queries())
def test_well_formed_queries_have_distinct_satisfiable_slots(text: str) -> None:
    query = _parsed(text)
    if isinstance(query, KeywordQuery):
        _check_invariants(query)
    else:
        assert any(reason in query for reason in ("nothing left", "nothing can match", "only excludes"))


def _parsed(text: str) -> KeywordQuery | str:
    """The query, or the message of the error."""
    try:
        return parse_query(text, SCHEMA)
    except QueryError as error:
        return str(error)


def _check_invariants(query: KeywordQuery) -> None:
    assert 1 <= len(query.slots) <= MAX_SLOTS
    for slots in (query.slots, query.exclusions):
        assert all(slot.alternatives for slot in slots)
        assert len({frozenset(slot.alternatives) for slot in slots}) == len(slots)
    assert all(isinstance(slot, Slot) and slot.text == slot.text.lower() for slot in query.slots)
