"""Synonyms in queries: a single word stands for all of its groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from skws.keywords.query import Phrase, Term
from tests.keywords.test_analyzers import SCHEMA as ANALYSED
from tests.keywords.texts_and_queries import MOVIE, SCHEMA

GROUPS = (("car", "automobile", "motor car"), ("film", "movie"), ("movie", "picture"), ("Häuser", "Gebäude"))
WITH = replace(SCHEMA, synonyms=GROUPS)


@pytest.mark.parametrize(
    ("query", "title", "bitmap"),
    [
        ("cars", "An Automobile", 1),
        ("automobile", "two cars", 1),
        ("car", "the motor cars", 1),
        ("car", "the motor", 0),
        ('"car"', "an automobile", 0),
        ('"motor car"', "an automobile", 0),
        ("car*", "an automobile", 0),
        ("carr~", "an automobile", 0),
        ("title:car", "an automobile", 1),
        ("plot:car", "an automobile", 0),
        ("film", "a picture", 0),
        ("movies", "film", 1),
        ("movie", "picture", 1),
        ("-car pulp", "pulp automobile", EXCLUDED),
        ("pulp OR car", "automobile", 1),
    ],
)
def test_a_word_and_a_title(query: str, title: str, bitmap: int) -> None:
    assert Matcher(parse_query(query, WITH), WITH).bitmap(MOVIE, (1, title, None, None)) == bitmap


def test_synonyms_are_alternatives_of_the_word_that_is_typed() -> None:
    query = parse_query("Cars automobile pulp", WITH)
    assert query.keywords == ("cars", "pulp")
    assert query.slots[0].alternatives == (Term("car"), Term("automobil"), Phrase(("motor", "car")))
    assert query.synonyms == (
        ("cars", "automobile", "motor car"),
        ("automobile", "car", "motor car"),
    )
    assert parse_query("Cars automobile", SCHEMA).synonyms == ()


def test_each_analyzer_finds_them_by_its_stems() -> None:
    schema = replace(ANALYSED, synonyms=GROUPS)
    matcher = Matcher(parse_query("haus", schema), schema)
    texts = (None, "das Gebäude", None, None, None, None)
    assert matcher.bitmap(0, texts) == 1
    assert matcher.bitmap(0, (None, None, "Gebäude", None, None, None)) == 0
    assert matcher.bitmap(0, (None, None, None, "Gebäude", None, None)) == 0
