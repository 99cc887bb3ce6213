"""Inverted lists in arrays have the results of dictionaries of texts."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.texts import Texts
from skws.keywords.analysis import chunks
from skws.keywords.occurrences import occurrences
from skws.queries.keywords.word_lists import WordLists, WordNumbers
from skws_schema.model import Analyzer
from tests.strategies import examples

WORDS = 6


@given(st.lists(st.lists(st.lists(st.integers(0, WORDS - 1), max_size=6), max_size=5), max_size=60))
@examples(200)
def test_lists_built_in_batches_have_all_occurrences(batches: list[list[list[int]]]) -> None:
    """``batches``: of texts, with the words of each."""
    lists, expected, number = WordLists(), defaultdict[int, Counter[int]](Counter), 0
    for texts in batches:
        pairs = [(word, number + at) for at, text in enumerate(texts) for word in text]
        for word, text in pairs:
            expected[word][text] += 1
        words, texts_of_words = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        lists.add(np.ascontiguousarray(words), np.ascontiguousarray(texts_of_words))
        number += len(texts)
    for word in range(WORDS):
        text_numbers, counts_in_text = lists.of(word)
        assert list(zip(text_numbers.tolist(), counts_in_text.tolist(), strict=True)) == sorted(
            expected[word].items()
        )
    counts = lists.counts(np.arange(WORDS + 1)).tolist()
    assert counts == [len(expected[word]) for word in range(WORDS + 1)]


@pytest.mark.check
def test_small_runs_are_merged_and_large_ones_remain() -> None:
    lists = WordLists(largest_run=4000)
    max_runs = 0
    for text in range(20_000):
        lists.add(np.array([text % 7], dtype=np.int64), np.array([text], dtype=np.int64))
        max_runs = max(max_runs, len(lists.runs))
    sizes = [run.size for run in lists.runs]
    assert max_runs < 60
    assert max(sizes) <= 4000
    assert sum(sizes) == 20_000
    assert [len(lists.of(word)[0]) for word in (0, 6)] == [2858, 2857]


def test_repeated_words_of_a_text_are_counted() -> None:
    lists = WordLists()
    lists.add(np.zeros(100_000, dtype=np.int64), np.full(100_000, 3))
    lists.add(np.zeros(2, dtype=np.int64), np.array([4, 5]))
    assert [each.tolist() for each in lists.of(0)] == [[3, 4, 5], [100_000, 1, 1]]
    assert [each.tolist() for each in lists.of(1)] == [[], []]


TEXTS = st.lists(
    st.text(
        alphabet="ab \t\n\x0b\x1c\x1d\x85\u00a0\u1680\u2003\u2028\u3000\u200bé\U0001f600\ud800", max_size=12
    )
)


@given(TEXTS, st.sampled_from([Analyzer.ENGLISH, Analyzer.NONE]), st.integers(0, 3))
@examples(300)
def test_arrow_splits_texts_like_python(texts: list[str], analyzer: Analyzer, left_out: int) -> None:
    selected = Texts.of([texts]).some(np.arange(min(left_out, len(texts)), len(texts)))
    texts = texts[left_out:]
    for threshold in (0, 1000):
        result = occurrences(selected, analyzer, few_texts=threshold)
        chunks_by_text: list[list[str]] = [[] for _ in texts]
        for chunk, text in zip(result.which.tolist(), result.text.tolist(), strict=True):
            if result.chunks[chunk]:  # Arrow returns empty words around white space
                chunks_by_text[text].append(result.chunks[chunk])
        assert chunks_by_text == [chunks(text, analyzer) for text in texts]
        assert len(set(result.chunks)) == len(result.chunks)
    assert selected.lengths().tolist() == [len(text) for text in texts]


def test_words_outlive_the_cached_chunks() -> None:
    words = WordNumbers(Analyzer.ENGLISH, most_chunks=3)
    for _ in range(3):
        position, number = words.of(["running", "the", "Runs!", "up-to-date", "x" * 5000])
        numbers_by_text = defaultdict[int, list[int]](list)
        for text_number, word_number in zip(position.tolist(), number.tolist(), strict=True):
            numbers_by_text[text_number].append(word_number)
        assert numbers_by_text[0] == numbers_by_text[2] == [words.number("run")]
        assert 1 not in numbers_by_text
        assert words.number("date") in numbers_by_text[3]
    assert words.number("walk") is None
    assert words.beginning("run") == ["running", "runs"]
