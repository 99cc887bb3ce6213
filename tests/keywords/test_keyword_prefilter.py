"""The facts about folding and stemming that the prefilter of texts relies on."""

from __future__ import annotations

import re
import sys
import unicodedata

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whoosh.lang.porter2 import exceptional_forms

from skws.keywords.alphabet import PIECE, UNSPACED, fold
from skws.keywords.analysis import stem
from skws.keywords.query import Alternative, Phrase, Prefix, Term
from skws.keywords.table import _FOREIGN, _unstemmed, condition, hopeless
from tests.strategies import examples

_SUFFIXES = """
    s es ies ied ed edly eed eedly ing ingly y ly li ational tional ation ator izer ization alism aliti ality
    ousness ousli iviti ivity iveness biliti bility bly fulness fulli lessli enci ency anci ancy entli ogi
    ology alize icate iciti icity ical ative ful ness al ance ence er ic able ible ant ement ment ent ism ate
    iti ous ive ize sion tion e ll l sses us ss at bl iz bb dd ed ted ping ating bling izing
"""
_ENGLISH = st.builds(
    lambda root, suffixes: root + "".join(suffixes),
    st.text("abcdegilnorstuvwxyz", min_size=0, max_size=5),
    st.lists(st.sampled_from(_SUFFIXES.split()), min_size=0, max_size=3),
)


@examples(1_500)
@given(_ENGLISH)
def test_words_begin_as_their_stem_says(word: str) -> None:
    assert word.startswith(_unstemmed(stem(word)))


def test_words_with_stems_of_their_own_begin_as_their_stem_says() -> None:
    for word in exceptional_forms:
        assert word.startswith(_unstemmed(stem(word)))


def test_letters_left_out_of_the_condition_never_fold_to_ascii_or_to_nothing() -> None:
    foreign = re.compile(_FOREIGN)
    for code in range(0x80, sys.maxunicode + 1):
        char = chr(code)
        if foreign.match(char) or not PIECE.match(char):
            continue
        folded = fold(char)
        assert folded, unicodedata.name(char)
        assert not folded[0].isascii(), unicodedata.name(char)


def test_a_word_may_begin_after_a_letter_only_in_scripts_that_do_not_fold_to_ascii() -> None:
    for code in range(0x80, sys.maxunicode + 1):
        if UNSPACED.match(chr(code)):
            assert not fold(chr(code))[:1].isascii(), unicodedata.name(chr(code))


def test_some_alternatives_rule_nothing_out() -> None:
    assert condition([Term("tarantino"), Term("x")]) is None
    assert not hopeless([Term("tarantino"), Term("x")])("nothing of the kind")
    assert condition([]) is None


@pytest.mark.parametrize("count", [1, 40, 400])
def test_many_alternatives_cost_no_more_than_few(count: int) -> None:
    words = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}{i:03}enough" for i in range(count)]
    pattern = condition([Term(word) for word in words])
    assert pattern is not None
    assert len(pattern) < 25_000
    column = pa.array(["007", *words])
    assert pc.match_substring_regex(column, pattern).to_pylist() == [False] + [True] * count


def test_texts_without_any_keyword_are_ruled_out() -> None:
    alternatives: list[Alternative] = [Term("tarantino"), Prefix("trav"), Phrase(("pulp", "of", "fiction"))]
    pattern = condition(alternatives)
    assert pattern is not None
    for text in (
        "A plain title",
        "Ein schöner Film",
        "Москва слезам не верит",
        "contravene",
        "東京物語",
        "the pulp",
    ):
        assert not re.search(pattern, text)
    assert hopeless(alternatives)("A plain title")
    assert not hopeless(alternatives)("Tra-volta")
