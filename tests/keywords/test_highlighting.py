from __future__ import annotations

import pytest
from hypothesis import assume, given

from skws.keywords.highlight import highlight
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws_schema.errors import QueryError
from tests.keywords.texts_and_queries import MOVIE, SCHEMA, queries, texts


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("fiction pulp", "Pulp Fictions!", [("Pulp", 1), ("Fictions", 0)]),
        ('"pulp fiction"', "pulp Pulp Fiction", [("Pulp Fiction", 0)]),
        ('"pulp fiction" fiction', "fiction, pulp fiction", [("fiction", 1), ("pulp fiction", 0)]),
        ("cafe", "Le Cafe\u0301 du Marché", [("Cafe\u0301", 0)]),
        ("spider-man man", "Spider-Man, man", [("Spider-Man", 0), ("man", 1)]),
        ("trav* OR pulp", "Pulp travels", [("Pulp", 0), ("travels", 0)]),
        ("京 東", "東京", [("東", 1), ("京", 0)]),
        ("plot:pulp", "Pulp", []),
        ("pulp", "", []),
    ],
)
def test_spans_of_a_title(query: str, text: str, expected: list[tuple[str, int]]) -> None:
    spans = highlight(parse_query(query, SCHEMA), SCHEMA, "movie", "title", text)
    assert [(text[start:end], slot) for start, end, slot in spans] == expected


def test_columns_that_are_not_searched_have_no_spans() -> None:
    assert highlight(parse_query("pulp", SCHEMA), SCHEMA, "movie", "studio", "pulp") == []


@given(queries(), texts())
def test_spans_are_sorted_apart_and_there_if_and_only_if_the_value_matches(typed: str, text: str) -> None:
    try:
        query = parse_query(typed, SCHEMA)
    except QueryError:
        assume(False)
    assume(not query.exclusions)
    spans = highlight(query, SCHEMA, "movie", "plot", text)
    bitmap = Matcher(query, SCHEMA).bitmap(MOVIE, (1, None, text, None))
    assert bool(spans) == bool(bitmap)
    assert all(bitmap >> slot & 1 for _, _, slot in spans)
    end = 0
    for start, stop, _ in spans:
        assert end <= start < stop <= len(text)
        end = stop


@pytest.mark.parametrize(
    ("query", "attribute", "text", "spans"),
    [
        ("travlota~", "title", "with Travolta's", [(5, 13, 0)]),
        ("t?av*a x", "title", "Travolta x", [(0, 8, 0), (9, 10, 1)]),
        ("x !movie.mid<10", "mid", "7", [(0, 1, 1)]),
        ("x !movie.mid<10", "mid", "10", []),
        ("x movie.mid<10", "mid", "7", []),
        ("x !studio:'a'", "studio", "'a'", [(0, 3, 1)]),
        ("pulp !title=pulp", "title", "pulp", [(0, 4, 0)]),
    ],
)
def test_likenesses_wildcards_and_conditions(
    query: str, attribute: str, text: str, spans: list[tuple[int, int, int]]
) -> None:
    assert highlight(parse_query(query, SCHEMA), SCHEMA, "movie", attribute, text) == spans
