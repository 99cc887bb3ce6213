"""Large numbers of phrases are looked up by pairs of words in a text, with the same results."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

import skws
from skws.keywords.analysis import stems
from skws.keywords.keyword_query import Phrase
from skws.keywords.leaves import contains, pairs_of
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
