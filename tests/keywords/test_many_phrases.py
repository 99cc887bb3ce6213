"""Many phrases are looked up by pairs of words in a text, and prefixes by length, with the same results."""

from __future__ import annotations

from itertools import permutations
from typing import SupportsIndex

from hypothesis import given
from hypothesis import strategies as st

import skws
from skws.keywords.analysis import Token, stems
from skws.keywords.keyword_query import Phrase, Prefix
from skws.keywords.leaves import WordPredicates, contains, pairs_of
from tests.strategies import examples

WORDS = ("red", "blue", "lake", "stone", "x-y")
SCHEMA = {"name": "notes", "relations": {"note": {"attributes": {"text": "text"}}}}


@given(
    st.lists(st.sampled_from(WORDS), max_size=8),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
)
@examples(500)
def test_word_pairs_do_not_change_phrase_matches(text: list[str], phrase_words: list[str]) -> None:
    joined_text, words = " ".join(text), stems(" ".join(text))
    phrase = Phrase(stems(" ".join(phrase_words)))
    assert contains(words, phrase, joined_text, pairs_of(words)) == contains(words, phrase, joined_text)


def test_many_phrases_find_the_results_of_single_phrases() -> None:
    queries = [f'"{" ".join(words)}"' for words in permutations(WORDS[:4], 3)]
    texts = [" ".join(words) for words in permutations(WORDS[:4])]
    rows = [{"time": time, "text": text} for time, text in enumerate(texts)]
    result_queries = sorted(result.query for result in skws.search(queries, {"note": rows}, schema=SCHEMA))
    assert result_queries == sorted(query for query in queries for text in texts if query.strip('"') in text)
    assert len(result_queries) == 48


class SlicedText(str):
    """Counts its slices."""

    slices = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        SlicedText.slices += 1
        return super().__getitem__(key)


def test_the_prefixes_of_a_long_word_are_looked_up_by_their_lengths() -> None:
    """Otherwise a word of a million characters would be cut a million times."""
    predicates, prefixes = WordPredicates(), ("ab", "abc", "abab", "b")
    for number, prefix in enumerate(prefixes):
        predicates.add(Prefix(prefix), number)
    predicates.add(Prefix("ab"), 4)
    word = SlicedText("ab" * 1_000)
    token = Token(0, len(word), 0, 1, word, word, whole=False, searchable=True)
    assert sorted(predicates.of(token)) == [0, 2, 4]
    assert SlicedText.slices <= len(prefixes)
    for number in (0, 4):
        predicates.remove(Prefix("ab"), number)
    assert list(predicates.of(token)) == [2]
