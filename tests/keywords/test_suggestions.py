"""Suggestions are similar words of the data, by distance and then by frequency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.keywords.suggest import Vocabulary, suggest

COUNTS = {"travolta": 3, "tarantino": 2, "travis": 9, "pulp": 5, "pump": 7, "gulp": 9, "pup": 5}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("travlta", ["travolta"]),
        ("Tarentino", ["tarantino"]),
        ("TRÁVOLTA", []),
        ("puhp", ["pump", "pulp", "pup"]),
        ("travoltas", ["travolta"]),
        ("zzzzzz", []),
        ("gupl", ["gulp"]),
        ("pimpl", []),
        ("", []),
    ],
)
def test_suggestions_are_sorted_by_distance_then_frequency(word: str, expected: list[str]) -> None:
    assert suggest(word, COUNTS) == expected


def test_suggestions_are_limited() -> None:
    assert suggest("puhp", COUNTS, limit=1) == ["pump"]


def _distance(a: str, b: str) -> int:
    """The Levenshtein distance, by the textbook recurrence."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


@given(
    st.text("abcd", min_size=1, max_size=8),
    st.dictionaries(st.text("abcd", min_size=1, max_size=8), st.integers(1, 9)),
)
def test_suggestions_are_all_words_within_the_distance(word: str, counts: dict[str, int]) -> None:
    def near_enough(other: str) -> bool:
        may_have_two = len(word) > 5 or sorted(word) == sorted(other)
        return _distance(word, other) <= (2 if may_have_two else 1)

    neighbours = sorted((_distance(word, w), -n, w) for w, n in counts.items() if near_enough(w))
    assert suggest(word, counts, limit=100) == ([] if word in counts else [w for _, _, w in neighbours])


def test_a_vocabulary_counts_searchable_words() -> None:
    vocabulary = Vocabulary()
    vocabulary.add("The Spider-Man movies")
    vocabulary.add("A movies café")
    assert dict(vocabulary) == {"spider": 1, "man": 1, "spiderman": 1, "movies": 2, "cafe": 1}
    assert suggest("moveis", vocabulary) == ["movies"]
    assert "the" not in vocabulary


def test_a_full_vocabulary_retains_frequent_words() -> None:
    vocabulary = Vocabulary(limit=10)
    for number in range(100):
        vocabulary.add(f"pulp pulp rare{number}")
        assert len(vocabulary) <= 10
    assert vocabulary["pulp"] == 200
