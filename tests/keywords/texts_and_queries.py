"""A schema, and strategies for texts and queries that often match in unusual ways."""

from __future__ import annotations

from hypothesis import strategies as st

from skws.keywords.analysis import tokens
from skws_schema.model import Attribute, AttributeType, Relation, Schema

SCHEMA = Schema(
    "movies",
    (
        Relation(
            "director",
            (Attribute("did", AttributeType.INTEGER), Attribute("name", AttributeType.TEXT)),
            search=("name",),
        ),
        Relation(
            "movie",
            (
                Attribute("mid", AttributeType.INTEGER),
                Attribute("title", AttributeType.TEXT),
                Attribute("plot", AttributeType.TEXT),
                Attribute("studio", AttributeType.STRING),
            ),
            search=("title", "plot"),
        ),
        Relation("plays", (Attribute("mid", AttributeType.INTEGER), Attribute("role", AttributeType.STRING))),
        Relation(
            "actor",
            (Attribute("aid", AttributeType.INTEGER), Attribute("name", AttributeType.TEXT)),
            search=("name",),
        ),
        Relation("BoxOffice_total", (Attribute("note", AttributeType.TEXT),), search=("note",)),
    ),
    (),
)
DIRECTOR, MOVIE, PLAYS, ACTOR, TOTAL = range(5)
NAME, TITLE, PLOT = 1, 1, 2

_WORD_LIST = """
    tarantino travolta movie fiction pulp spider man the it of cafe strasse die sky run net c++ c# at t o neil
    3 14 usa u s a x 東 京 кино sensible relate happy box office total actor fine naïve हिन्दी
"""
WORDS = tuple(_WORD_LIST.split())

_ENDINGS = ("", "", "", "s", "ing", "ed", "'s", "’s", "ity", "ly", "ness", "#", "++", ".", "!")
_INSERTIONS = (
    "",
    "",
    "",
    "",
    "",
    "\u0301",
    "\u00ad",
    "-",
    "'",
    "’",
    "_",
    "\u200d",
    "\u0327",
    "\u02bc",
    "\u2010",
)
_SEPARATORS = (
    *(" ", " ", " ", "  ", "\t", "\u00a0", "\u2028", "-", "'", "’"),
    *("&", ".", "_", ", ", "…", " .", "", "ー", "/"),
)
_LOOKALIKE_GROUPS = "ａáâåªⒶ éēｅℯ ıİïⅰｉ öøºⓞ ſşｓ ŧţｔ ñⁿ ůµ çⅽ© K ﬁﬀƒ ³③ ¹½ ⅴ ⅿ㎡ ʳ®"
_LOOKALIKES = dict(
    zip(
        "aeiostnuckf31vmr",
        _LOOKALIKE_GROUPS.split(),
        strict=True,
    )
)


@st.composite
def words(draw: st.DrawFn) -> str:
    """A word that may be a variant of one of ``WORDS``."""
    characters = []
    for char in draw(st.sampled_from(WORDS)):
        variation = draw(st.integers(0, 11))
        lookalike = draw(st.sampled_from(_LOOKALIKES.get(char, char))) if variation == 0 else char
        characters.append(lookalike.upper() if variation == 1 else lookalike)
        if variation == 2:
            characters.append(draw(st.sampled_from(_INSERTIONS)))
    return "".join(characters) + draw(st.sampled_from(_ENDINGS))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Words with arbitrary separators, or arbitrary text."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.text(max_size=12))
    parts = draw(st.lists(st.tuples(words(), st.sampled_from(_SEPARATORS)), max_size=6))
    return "".join(part for pair in parts for part in pair)


def _leaves() -> st.SearchStrategy[str]:
    word = st.sampled_from(
        (*WORDS, "spider-man", "o'neil", "at&t", "u.s.a", "3.14", ".net", "movies", "東京")
    )
    compound = st.lists(st.sampled_from((*WORDS[:6], "3", "14", "t", "o")), min_size=2, max_size=3).flatmap(
        lambda parts: st.sampled_from("-._'&").map(lambda sign: sign.join(parts))
    )
    phrase = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(
        lambda parts: f'"{" ".join(parts)}"'
    )
    scope = st.sampled_from(("", "", "", "movie:", "movie.plot:", "name:", "actor:"))
    wildcard = st.sampled_from(("*ino", "t*v*ta", "f?ction", "s*n*", "*i?y", "?ulp"))
    fuzzy = st.sampled_from(("travlota~", "tarrantinos~2", "pilp~", "reltae~2", "fine~1", "the~", "t-ulp~"))
    prefix = st.sampled_from(WORDS).map(lambda text: text[:3] + "*")
    leaf = st.one_of(word, word, phrase, prefix, wildcard, fuzzy, compound)
    return st.tuples(scope, leaf).map("".join)


CONDITIONS = (
    *("movie.mid<5", "movie.mid>=3", "movie.mid:2..7", "movie.mid!=4", "movie.mid:(1 OR 3)", "movie.mid<4.5"),
    *("studio:pulp", "studio>m", "studio!=the", "studio:..s", "movie.studio=it", 'title="pulp"', "plot<t"),
)
"""Conditions on ``movie``."""


def queries(*, conditions: bool = False) -> st.SearchStrategy[str]:
    """Texts of queries, most of them well-formed, with conditions on ``movie`` if ``conditions``."""
    condition = st.sampled_from(CONDITIONS).map("!{}".format)
    leaf = st.one_of(_leaves(), _leaves(), condition) if conditions else _leaves()
    alternation = st.lists(leaf, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})")
    slot = st.one_of(leaf, leaf, alternation)
    exclusion = st.one_of(_leaves(), alternation).map("-{}".format)
    if conditions:
        restriction = st.sampled_from(CONDITIONS)
        alternatives = st.lists(restriction, min_size=2, max_size=2).map(
            lambda parts: f"({' OR '.join(parts)})"
        )
        exclusion = st.one_of(
            exclusion, restriction, restriction, alternatives, restriction.map("-{}".format)
        )
    return st.tuples(
        st.lists(slot, min_size=1, max_size=4), st.one_of(st.just([]), st.lists(exclusion, max_size=2))
    ).map(lambda parts: " ".join((*parts[0], *parts[1])))


def rows() -> st.SearchStrategy[tuple[int, str | None, str | None, str | None]]:
    """Rows of ``movie``."""
    value = st.one_of(texts(), texts(), texts(), st.none())
    return st.tuples(st.integers(0, 9), value, value, value)


def has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def terms(text: str) -> frozenset[str]:
    """The stems that find a text."""
    return frozenset(token.stem for token in tokens(text) if token.searchable)
