from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.keywords.alphabet import PIECE, fold
from skws.keywords.analysis import MEMORABLE, analyse, stems, terms, tokens
from tests.keywords.texts_and_queries import texts


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
def test_words_of_a_text(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_terms_are_stemmed_and_without_stop_words() -> None:
    assert terms("The movies of a running man") == {"movi", "run", "man"}


def test_stems_keep_stop_words_in_their_places() -> None:
    assert stems("Lord of the Rings") == ("lord", "of", "the", "ring")


def test_offsets_are_those_of_the_text() -> None:
    text = "  Spider-Man's\tCafe\u0301 "
    assert [text[token.start : token.end] for token in tokens(text)] == [
        "Spider",
        "Man",
        "Spider-Man",
        "Cafe\u0301",
    ]
    assert [(token.position, token.width) for token in tokens(text)] == [(0, 1), (1, 1), (0, 2), (2, 1)]


@given(texts())
def test_tokens_stand_in_order_where_they_say(text: str) -> None:
    pieces = [token for token in tokens(text) if not token.whole]
    assert [piece.position for piece in pieces] == list(range(len(pieces)))
    assert tuple(piece.stem for piece in pieces) == stems(text)
    assert {token.stem for token in tokens(text) if token.searchable} == terms(text)
    end = 0
    for piece in pieces:
        assert end <= piece.start < piece.end <= len(text)
        end = piece.end
        assert words(text[piece.start : piece.end])[0] == piece.word


@given(st.text())
def test_folding_is_done_once_and_for_all(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text())
def test_case_and_composition_are_irrelevant(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(unicodedata.normalize("NFC", text)) == fold(text)
    if text.isascii():
        assert terms(text.upper()) == terms(text)


def test_long_runs_are_analysed_but_not_remembered() -> None:
    run = "travolta," * 20
    assert len(run) > MEMORABLE
    assert analyse(run) is not analyse(run)
    assert analyse("travolta,") is analyse("travolta,")
    assert terms(run) == {"travolta"}


def test_every_mark_belongs_to_the_letter_before_it() -> None:
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    assert [mark for mark in marks if not PIECE.fullmatch(f"a{mark}")] == []
