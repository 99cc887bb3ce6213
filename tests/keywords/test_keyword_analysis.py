"""Texts are split into words, which are compared by their stems and synonyms."""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.keywords.analysis import MEMORABLE, PIECE, analyse, fold, stems, tokens
from skws.keywords.keyword_query import Phrase, Term
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from tests.keywords.test_analyzers import SCHEMA as ANALYSED
from tests.keywords.texts_and_queries import MOVIE, SCHEMA, terms, texts


def words(text: str) -> list[str]:
    return [token.word for token in tokens(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pulp Fiction", ["pulp", "fiction"]),
        ("AT&T", ["at", "t", "at&t"]),
        ("C++, C# and F#.", ["c++", "c#", "and", "f#"]),
        ("a fan# of Notepad++", ["a", "fan", "of", "notepad"]),
        (".NET", ["net", ".net"]),
        ("...Baby", ["baby"]),
        ("O'Neil", ["o", "neil", "oneil"]),
        ("O’Neil’s", ["o", "neil", "oneil"]),
        ("Hawai\u02bbi", ["hawaii"]),
        ("Tarantino's", ["tarantino"]),
        ("Spider-Man", ["spider", "man", "spiderman"]),
        ("snake_case", ["snake", "case", "snakecase"]),
        ("J.R.R. Tolkien", ["j", "r", "r", "jrr", "tolkien"]),
        ("node.js", ["node", "js", "node.js"]),
        ("2026\u201001-02", ["2026", "01", "02", "2026-01-02"]),
        ("3.14", ["3", "14", "3.14"]),
        ("Café CAFE\u0301", ["cafe", "cafe"]),
        ("Straße ﬁne Ｆｕｌｌ Ⅷ", ["strasse", "fine", "full", "viii"]),
        ("Ærø Łódź İstanbul", ["aero", "lodz", "istanbul"]),
        ("東京物語", ["東", "京", "物", "語"]),
        ("ガ ｶﾞ カ", ["ガ", "ガ", "カ"]),
        ("हिन्दी", ["हिन्दी"]),
        ("Ελλάδα ΚΙΝΟ", ["ελλαδα", "κινο"]),
        ("שָׁלוֹם كِتَاب", ["שלום", "كتاب"]),
        ("cr\u00adown", ["crown"]),
        ("❤\ufe0f !!! — …", []),
        ("", []),
    ],
)
def test_texts_are_split_into_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_terms_are_stemmed_and_exclude_stop_words() -> None:
    assert terms("The movies of a running man") == {"movi", "run", "man"}


def test_stems_include_stop_words() -> None:
    assert stems("Lord of the Rings") == ("lord", "of", "the", "ring")


def test_token_offsets_refer_to_the_text() -> None:
    text = "  Spider-Man's\tCafe\u0301 "
    assert [text[token.start : token.end] for token in tokens(text)] == [
        "Spider",
        "Man",
        "Spider-Man",
        "Cafe\u0301",
    ]
    assert [(token.position, token.width) for token in tokens(text)] == [(0, 1), (1, 1), (0, 2), (2, 1)]


@given(texts())
def test_tokens_are_in_order_at_their_offsets(text: str) -> None:
    pieces = [token for token in tokens(text) if not token.whole]
    assert [piece.position for piece in pieces] == list(range(len(pieces)))
    assert tuple(piece.stem for piece in pieces) == stems(text)
    end = 0
    for piece in pieces:
        assert end <= piece.start < piece.end <= len(text)
        end = piece.end
        assert words(text[piece.start : piece.end])[0] == piece.word


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text())
def test_case_and_composition_are_irrelevant(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(unicodedata.normalize("NFC", text)) == fold(text)
    if text.isascii():
        assert terms(text.upper()) == terms(text)


def test_long_runs_are_analysed_but_not_cached() -> None:
    run = "travolta," * 20
    assert len(run) > MEMORABLE
    assert analyse(run) is not analyse(run)
    assert analyse("travolta,") is analyse("travolta,")
    assert terms(run) == {"travolta"}


def test_every_mark_belongs_to_the_letter_before_it() -> None:
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    assert [mark for mark in marks if not PIECE.fullmatch(f"a{mark}")] == []


GROUPS = (("car", "automobile", "motor car"), ("film", "movie"), ("movie", "picture"), ("Häuser", "Gebäude"))
WITH_SYNONYMS = replace(SCHEMA, synonyms=GROUPS)


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
def test_a_word_matches_its_synonyms(query: str, title: str, bitmap: int) -> None:
    assert (
        Matcher(parse_query(query, WITH_SYNONYMS), WITH_SYNONYMS).bitmap(MOVIE, (1, title, None, None))
        == bitmap
    )


def test_synonyms_are_alternatives_of_the_typed_word() -> None:
    query = parse_query("Cars automobile pulp", WITH_SYNONYMS)
    assert query.keywords == ("cars", "pulp")
    assert query.slots[0].alternatives == (Term("car"), Term("automobil"), Phrase(("motor", "car")))
    assert query.synonyms == (
        ("cars", "automobile", "motor car"),
        ("automobile", "car", "motor car"),
    )
    assert parse_query("Cars automobile", SCHEMA).synonyms == ()


def test_synonyms_are_stemmed_by_each_analyzer() -> None:
    schema = replace(ANALYSED, synonyms=GROUPS)
    matcher = Matcher(parse_query("haus", schema), schema)
    row = (None, "das Gebäude", None, None, None, None)
    assert matcher.bitmap(0, row) == 1
    assert matcher.bitmap(0, (None, None, "Gebäude", None, None, None)) == 0
    assert matcher.bitmap(0, (None, None, None, "Gebäude", None, None)) == 0
