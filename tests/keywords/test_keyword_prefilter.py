"""The prefilter of texts rules out no match; it relies on these facts about folding and stemming."""

from __future__ import annotations

import re
import sys
import unicodedata

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from whoosh.lang.porter2 import exceptional_forms

from skws.keywords.analysis import PIECE, fold, stem
from skws.keywords.chunk_table import FOLDING, ChunkTable, hopeless, unstemmed
from skws.keywords.keyword_query import Alternative, Fuzzy, Phrase, Prefix, Term, Wildcard
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
def test_words_begin_with_the_unstemmed_part_of_their_stem(word: str) -> None:
    assert word.startswith(unstemmed(stem(word)))


def test_irregular_words_begin_with_the_unstemmed_part_of_their_stem() -> None:
    for word in exceptional_forms:
        assert word.startswith(unstemmed(stem(word)))


def test_letters_outside_the_folding_class_never_fold_to_ascii() -> None:
    folded_letters = re.compile(FOLDING)
    for code in range(0x80, sys.maxunicode + 1):
        char = chr(code)
        if folded_letters.match(char) or not PIECE.match(char):
            continue
        folded = fold(char)
        assert folded, unicodedata.name(char)
        assert not folded[0].isascii(), unicodedata.name(char)


def test_short_words_rule_out_no_text() -> None:
    assert not hopeless([Term("tarantino"), Term("x")])("nothing of the kind")
    assert not hopeless([])("nothing of the kind")


@examples(300)
@given(st.text("01", min_size=1, max_size=4), st.lists(st.text("01 -", max_size=6), max_size=8))
@example("101", ["room 10", "101 main"])
@example("0101", ["010", "", "1", "0101"])
def test_a_match_across_texts_does_not_hide_one_in_the_next(word: str, texts: list[str]) -> None:
    """All texts are searched as one string, in which the first match may extend across texts."""
    table = ChunkTable(((1, Term(word)),))
    bitmaps = np.zeros(len(texts), dtype=np.int16)
    table.find_in([(texts, bitmaps)])
    assert bitmaps.tolist() == [word in re.split(r"[ -]", text) for text in texts]


_WORD = st.text("ab1", min_size=1, max_size=4)
_ALTERNATIVES = st.one_of(
    st.builds(Term, _WORD),
    st.builds(Prefix, _WORD),
    st.builds(Phrase, st.tuples(_WORD, _WORD)),
    st.builds(Fuzzy, st.text("ab", min_size=3, max_size=5), st.just(1)),
    st.builds(Wildcard, st.sampled_from(["a*b", "?1", "b?a*"])),
)


@examples(400)
@given(
    st.lists(_ALTERNATIVES, min_size=1, max_size=3),
    st.lists(st.text("ab1AB -_.&\t\n\x1c\xa0\u3000\u0301é", max_size=12), max_size=8),
)
@example([Term("ab")], ["xab ab", "a-b\x1cab1", "\xa0ab\u3000", "b", "ab"])
def test_a_column_matches_like_its_single_texts(alternatives: list[Alternative], texts: list[str]) -> None:
    table = ChunkTable(tuple((1 << bit, alternative) for bit, alternative in enumerate(alternatives)))
    bitmaps = np.zeros(len(texts), dtype=np.int16)
    table.find_in([(texts, bitmaps)])
    assert bitmaps.tolist() == [table.find(text) for text in texts]


def test_texts_without_any_keyword_are_ruled_out() -> None:
    alternatives: list[Alternative] = [Term("tarantino"), Prefix("trav"), Phrase(("pulp", "of", "fiction"))]
    is_hopeless = hopeless(alternatives)
    for text in ("A plain title", "Москва слезам не верит", "東京物語", "“the pulp”, he’d say"):
        assert is_hopeless(text)
    for text in ("Tra-volta", "taran‐tino", "a fiction", "Tarantíno", "Ein schöner Film"):
        assert not is_hopeless(text)
    assert not hopeless([Term("слез")])("Москва слезам не верит")
    assert hopeless([Term("слез")])("A plain title")
