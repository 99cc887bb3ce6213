from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skws.keywords.parse import MAX_SLOTS, parse_query
from skws.keywords.query import Condition, KeywordQuery, Phrase, Prefix, Scope, Slot, Term
from skws.keywords.scope import with_left_out
from skws_schema.errors import QueryError
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
def test_relations_that_are_left_out(text: str, without: set[int]) -> None:
    query = parse_query(text, SCHEMA)
    assert query.without == without
    assert query.keywords[0].startswith("pulp")
    assert bool(query.exclusions) == (not without)
    for alternative in (each for slot in query.slots for each in slot.alternatives):
        assert not any(alternative.applies(relation, column) for relation in without for column in range(9))


def test_an_option_says_it_in_the_text() -> None:
    assert with_left_out("pulp ; x", ["plays", "movie"]) == "pulp ; x -plays: -movie:"
    assert with_left_out("pulp", []) == "pulp"
    for name in ("", "a b", "-plays", "plays:x", "a;b", 'a"b', "(a)"):
        with pytest.raises(QueryError, match="expected the name of a relation"):
            with_left_out("pulp", [name])


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("pulp fiction", []),
        (
            "pulp, (fiction gun). -x!",
            ["not searched, as too common or no words: .", "ignored, as no part of a word: ',' '!'"],
        ),
        ("Mission: Impossible", ["ignored, as no part of a word: ':'"]),
        ("#pulp* Tarantino's", ["ignored, as no part of a word: '#'"]),
        ("the pulp & -", ["not searched, as too common or no words: the, &, -"]),
        ("pulp \x1b,", ["not searched, as too common or no words:  ,"]),
        ("pulp,\x1b", ["ignored, as no part of a word: ',\\x1b'"]),
        ("AC/DC C++ .NET rock 'n' roll 100%", ["ignored, as no part of a word: \"'\" '%'"]),
    ],
)
def test_what_is_not_searched_is_told(text: str, notes: list[str]) -> None:
    assert list(parse_query(text, SCHEMA).notes) == notes


_SIGNS = "~?^!+|&[]{}<>=%/\\#@$,.;:'`_-*()\"\u201c\u2013\uff1f\uff1a\uff08"


_QUOTED = re.compile('["\u201c\u201d\u201e][^"\u201c\u201d\u201e]*["\u201c\u201d\u201e]')
_WITHIN = re.compile(r'(?<=[ab])[^\s"()]*(?=[ab])')


@examples(600)
@given(st.text(f"ab{_SIGNS}{_SIGNS} \t", max_size=16))
def test_nothing_typed_is_passed_over(text: str) -> None:
    """Each character is part of a term or operator, white space, or told; else the text is refused."""
    query = _parsed(text)
    if isinstance(query, str):
        return
    _check_invariants(query)
    slots = [slot.text for slot in (*query.slots, *query.exclusions)]
    left_out = [SCHEMA.relations[relation].name for relation in query.without]
    told = "".join([*slots, *left_out, *query.dropped, *query.ignored])
    # What stands in quotes or within a word is part of a term, which is shown once if it comes twice.
    around = _WITHIN.sub("", _QUOTED.sub("", text))
    operators = '();-*:"\u201c\u201d\u201e'
    assert {char for char in around if not char.isspace()} <= {*told, *operators}


_PARTS = ("movie.mid", "studio", "title", "plays:", "pulp", "Zed", "5", "7", '"a b"', "a", "2024-01-01")
_JOINTS = (
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
@given(st.lists(st.sampled_from((*_PARTS, *_JOINTS, *_JOINTS, " ", " ", " ")), max_size=9).map("".join))
@example("pulp movie.mid<5!movie.mid:..7")
@example("pulp !studio:(a OR Zed) -studio>=5")
def test_nothing_of_conditions_and_likenesses_is_passed_over(text: str) -> None:
    """As above, for texts of which many are conditions, forms and mistyped words."""
    query = _parsed(text)
    if isinstance(query, str):
        return
    _check_invariants(query)
    slots = [slot.text for slot in (*query.slots, *query.exclusions)]
    left_out = [SCHEMA.relations[relation].name for relation in query.without]
    told = "".join([*slots, *left_out, *query.dropped, *query.ignored]).lower()
    operators = "();-*:or!" + '"'
    assert {char for char in text.lower() if not char.isspace()} <= {*told, *operators}
    assert sum(map(text.count, "<>=~?")) <= sum(map(told.count, "<>=~?")) or _repeats(text)


def _repeats(text: str) -> bool:
    """True if a part comes again: terms that mean the same are shown once."""
    words = re.split(r"[\s()]+", text.lower())
    return len(set(words)) < len(words)


@example("x", "", "@*")
@given(st.text("xz", min_size=1, max_size=3), st.text(_SIGNS, max_size=3), st.text(_SIGNS, max_size=3))
def test_a_word_is_shown_with_all_that_is_around_it(word: str, before: str, after: str) -> None:
    query = _parsed(f"{before}{word}{after} pulp")
    if isinstance(query, str) or set('();"\u201c') & {*before, *after} or "-" in before:
        return
    # The star of a prefix is shown beside the word: the sign in "x@*" is told, and "x*" is searched.
    shown = next(slot.text for slot in query.slots if word in slot.text).removesuffix("*")
    start, end = f"{before}{word}{after}".removesuffix("*").split(shown, 1)
    assert {part for part in (start, end) if part} <= {*query.ignored}


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
        ("the -pulp", "only excludes; add a keyword to look for: not searched are the", None),
        ("pulp -pulps", "nothing can match: 'pulp' is both looked for and excluded", None),
        ("a" * 10_001, "a query may have 10,000 characters at most; this one has 10,001", None),
        ("a1 a2 a3 a4 a5 a6 a7 a8 a9", "8 keywords at most; this one has 9", None),
        ('pulp fict"ion', "this quotation mark has no partner", 9),
        ("(" * 41 + "pulp" + ")" * 41, "nested deeper than 40", None),
        ("title:*", "'*' goes with the letters of a word", 6),
        ("gun -*", "'*' goes with the letters of a word", 5),
        ("*a", "a word with wildcards needs at least 2 letters or digits", 0),
        ("x n*de.js", "beside them are letters and digits only", 2),
        ("東*京", "of a script with blanks between words", 0),
        ("!!*", "'*' needs at least one letter or digit", 0),
        ("pulp/fict*", "a prefix is one word", 0),
        ("OR pulp", "OR needs a term before it", 0),
        ("pulp AND OR gun", "AND needs a term after it", 5),
        ("(pulp OR) gun", "OR needs a term after it", 6),
        ("pulp NOT", "NOT is followed by no term", 5),
        ("pulp NOT OR", "NOT is followed by no term", 5),
        ("pulp NOT NOT gun", "an exclusion cannot be excluded", 9),
        ("pulp --gun", "an exclusion cannot be excluded", 6),
        ("pulp -(NOT gun)", "an exclusion cannot be an alternative or be excluded", None),
        ("pulp OR NOT gun", "an exclusion cannot be an alternative", None),
        ("pulp OR (x -gun)", "OR joins single words, phrases and conditions", None),
        ("pulp OR (gun x)", "OR joins single words, phrases and conditions", 9),
        ("pulp OR gun AND x", "OR joins single words, phrases and conditions", None),
        ("pulp -(gun x)", "all of them together cannot be", 7),
        ("x -actr:pulp", "no relation or attribute 'actr'; did you mean 'actor'?", 3),
        ("actor.nane:pulp", "relation 'actor' has no attribute 'nane'; did you mean 'name'?", 0),
        ("titel:pulp", "no relation or attribute 'titel'; did you mean 'title'?", 0),
        ("12:30", "no relation or attribute '12'; if the colon is part of the text, put quotes around it", 0),
        ("studio:x", "'studio:x' only restricts; add a keyword, or '!' before a condition", None),
        ("movie.studio:x of", "only restricts; add a keyword", None),
        ("plays:x", "relation 'plays' has no attribute that keywords are looked for in", 0),
        ("mid:3 x", "'mid' is in 2 relations; write one of movie.mid, plays.mid", 0),
        ("x mid<3", "'mid' is in 2 relations; write one of movie.mid, plays.mid", 2),
        ("x movie.mid<abc", "movie.mid is of type integer: expected a number, got 'abc'", 2),
        ("x movie.mid=1.5", "movie.mid is of type integer: expected an integer, got '1.5'", 2),
        ("x movie.mid<1e30", "expected an integer of 64 bits", 2),
        ("x movie.mid<<3", "no comparison '<<'; expected one of < <= = >= > !=", 2),
        ('x title:"a b".."c d"', "title is searched for words, which have no range; write title>=...", 2),
        ("x movie.mid:7..3", "the range 7..3 ends before it begins", 2),
        ("x movie.mid:3*", "movie.mid is compared as a whole: it takes no '*', '?' or '~'", 12),
        ("x movie.mit<3", "relation 'movie' has no attribute 'mit'; did you mean 'mid'?", 2),
        ("x midd<3", "no attribute 'midd' to compare with; did you mean 'mid'?", 2),
        ("x zzzzz=3", "to search for the text itself, put quotes around it", 2),
        ("movie:mid<3 x", "movie: is followed by no term (a condition is written movie.mid<...)", 0),
        ("movie:(x mid<3)", "'mid' stands inside a group that has a scope already", 9),
        ("x OR movie.mid<3", "an alternative to keywords begins with '!'", None),
        ("x (movie.mid<3 OR plays.mid<3)", "restrict one relation; these are on movie, plays", None),
        ("x -!movie.mid<3", "'!' asks for a tuple, which '-' excludes", None),
        ("x !title:pulp", "'!' goes before a condition", 2),
        ("x -movie: movie.mid<3", "'movie.mid<3' restricts 'movie', which is left out", 2),
        ("x movie.mid<", "a condition is an attribute, a comparison and a value without blanks", 11),
        ("x movie.mid< 3", "a condition is an attribute, a comparison and a value without blanks", 11),
        ("pulp ; movie.mid<3", "there is no keyword after this ';'", 5),
        ("movie:title:x", "movie: is followed by no term", 0),
        ("movie:-x", "movie: is followed by no term (a scope goes after the minus", 0),
        ("movie:(title:x OR y)", "'title' stands inside a group that has a scope already", 7),
        ("movie:((x) title:y)", "'title' stands inside a group that has a scope already", 11),
        ("pulp ;; fiction", "there is no keyword after this ';'", 5),
        ("pulp ; -fiction", "there is no keyword after this ';'", 5),
        ("pulp ; fiction OR", "OR needs a term after it", 15),
        ("pulp ; titel:x", "no relation or attribute 'titel'", 7),
        ("(pulp ; fiction)", "cannot stand in parentheses", 6),
        ("~timeout", "'~' stands only at the end of a word, for typing errors", 0),
        ("time~out", "'~' stands only at the end of a word", 4),
        ('"pulp fiction"~5', "'~' stands only at the end of a word", 14),
        ("trav*~", "'~' stands only at the end of a word", 5),
        ("x timeout~3", "'~3': expected '~' or '~1' for one typing error, '~2' for two", 2),
        ("x no~", "'no' has 2 letters: '~' needs 3 to 64", 2),
        ("four~2", "'four' has 4 letters: '~2' needs 5 to 64", 0),
        ("ac/dc~", "'~' applies to one word", 0),
        ("東~", "'~' needs a script with blanks between words", 0),
        ("pulp fiction?", "'?' stands for one character inside of a word (t?avolta)", 12),
        ("pulp\uff1f", "full-width", 4),
        ("pulp^2", "there is no '^'", 4),
        ("(pulp OR x)^2", "there is no '^'", 11),
        ("pulp +fiction", "all keywords are looked for, without '+'", 5),
        ('pulp +"two men"', "all keywords are looked for, without '+'", 5),
        ("pulp !gun", "an exclusion begins with '-', not with '!', which goes before a condition", 5),
        ("pulp !(gun OR x)", "an exclusion begins with '-', not with '!'", 5),
        ("pulp \u2013gun", "this is another dash", 5),
        ("(pulp)-gun", "needs a blank before its '-'", 6),
        ('"pulp"-movie:gun', "needs a blank before its '-'", 6),
        ("pulp && gun", "AND is written AND, or left out; put quotes around it", 5),
        ("[pulp TO x]", "a range is written price:100..500, and there are no classes of characters", 0),
        ("movie:{pulp", "a range is written", 6),
        ("title=pulp", "'title=pulp' only restricts", None),
        ("x > 5", "a condition is an attribute, a comparison and a value without blanks", 2),
        ("pulp\\-x", "'\\' changes no meaning", 4),
        ("pul%", "'*' stands for any characters of a word (tra*ta), and '?' for one", 3),
        ("/pulp|x/", "no regular expressions", 0),
        ("movie::pulp", "there is nothing before this colon", 6),
        ("title\uff1apulp", "full-width", 5),
        ("x 'pulp fiction'", "double quotes make a phrase", 2),
        (
            "pulp NEAR/3 gun",
            'there is no NEAR/3 between keywords (to search for the word, write "NEAR/3")',
            5,
        ),
        ("pulp XOR gun", "there is no XOR between keywords", 5),
        ("pulp -play:", "no relation 'play', which '-play:' would leave out; did you mean 'plays'?", 5),
        ("pulp -title:", "no relation 'title'", 5),
        ("pulp NOT zzz:", "there are director, movie, plays, actor", 5),
        ("pulp (gun OR -plays:)", "leaves a relation out of the whole query", 13),
        ("movie:(pulp -plays:)", "'plays' stands inside a group that has a scope already", 12),
        ("movie:-plays:", "movie: is followed by no term (a scope goes after the minus", 0),
        ("pulp --plays:", "an exclusion cannot be excluded", 6),
        ("movie:pulp -movie:", "'movie:pulp' is looked for in what is left out", 11),
        ("-plays:", "'-plays:' only excludes", None),
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
    spelled = [slot for slot in query.slots if not any(isinstance(a, Condition) for a in slot.alternatives)]
    assert all(isinstance(slot, Slot) and slot.text == slot.text.lower() for slot in spelled)
