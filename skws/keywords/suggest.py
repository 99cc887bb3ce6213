"""Spelling suggestions: words of the data that are similar to a typed word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from whoosh.spelling import ListCorrector

from skws.keywords.analysis import fold, tokens
from skws.keywords.keyword_query import Fuzzy, Slot, Term
from skws.spec.query_spec import last_word
from skws_schema.errors import shown
from skws_schema.model import Analyzer

_SHORT_WORD: Final = 5
"""Up to this length, words are similar only if one letter is wrong or two are exchanged."""

_LEAST_PREFIX: Final = 4
"""The least length of a word that counts as the beginning of others, and not as a typing error."""

_MOST_ERRORS: Final = 2
"""The most wrong letters of a mistyped word."""

_LEAST_NAME_PREFIX: Final = 2
"""The least length of a beginning for which names of relations and attributes are offered."""


class Vocabulary(Counter[str]):
    """The frequency of each searchable folded word; of more than ``limit`` words, only the most frequent."""

    def __init__(self, limit: int = 200_000) -> None:
        super().__init__()
        self._limit = limit

    def add(self, text: str, analyzer: Analyzer = Analyzer.ENGLISH) -> None:
        """Count the words of a text."""
        self.update(token.word for token in tokens(text, analyzer) if token.searchable)
        if len(self) > self._limit:
            self.keep(self._limit // 2)  # half, which amortises the cost of sorting

    def keep(self, most: int) -> None:
        """Keep the most frequent words."""
        if len(self) > most:
            frequent = dict(self.most_common(most))
            self.clear()
            self.update(frequent)


def completions(
    text: str, words: Callable[[str], Iterable[tuple[str, int]]], names: Iterable[str]
) -> Iterator[tuple[str, int]]:
    """Completions of the last word of a text: words of the data, with their counts, then names (0).

    ``words``: looks up the words with a folded beginning.
    """
    start = fold(last_word(text))
    if start:
        yield from ((word, count) for word, count in words(start) if word != start)
    if len(start) >= _LEAST_NAME_PREFIX:
        yield from ((name, 0) for name in names if fold(name).startswith(start))


def similar(slot: Slot, words: Mapping[str, int]) -> tuple[str, ...]:
    """The slot's text with similar words of the data, the likeliest first; empty if it is not a single word.

    If several words begin with it: the most frequent of them, if it is similar, and all of them, as
    ``braz*``. A fuzzy word has no similar words, since it matched none.
    """
    if not isinstance(slot.alternatives[0], Term) or any(isinstance(a, Fuzzy) for a in slot.alternatives):
        return ()
    scope, colon, word = slot.text.rpartition(":")
    return tuple(
        f"{scope}{colon}{each}" for each in _longer_words(word, words) or suggest(word, words, limit=1)
    )


def _longer_words(word: str, words: Mapping[str, int]) -> list[str]:
    """At most two texts for the words that begin with a word."""
    start = fold(word)
    longer_words = [other for other in words if other.startswith(start) and other != start]
    if len(start) < _LEAST_PREFIX or len(longer_words) < 2:
        return longer_words[: len(start) >= _LEAST_PREFIX]
    likeliest = min(longer_words, key=lambda other: (-words[other], other))
    return [*([likeliest] if len(likeliest) <= len(start) + _MOST_ERRORS else ()), f"{word}*"]


def why_missing(meant: Mapping[str, Sequence[str]], where: str = "") -> list[str]:
    """A line for each slot of ``meant_for``; ``where``: the rows that were examined."""
    return [
        f"no row{where} matches {shown(text)}"
        + (f"; did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else "")
        for text, suggestions in meant.items()
    ]


def meant_for(
    slots: Sequence[Slot], counts: Sequence[int], words: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """The texts of slots that no tuple satisfies, each with the result of ``similar``."""
    return {slot.text: similar(slot, words) for slot, count in zip(slots, counts, strict=True) if not count}


def suggest(word: str, vocabulary: Mapping[str, int], *, limit: int = 5) -> list[str]:
    """Up to ``limit`` words of ``vocabulary`` (frequencies of folded words) that are similar to ``word``.

    Sorted by distance (letters inserted, deleted or replaced: at most two, or one in a short word unless two
    are exchanged), then by frequency. Empty if the vocabulary has the word.
    """
    folded = fold(word)
    if not folded or folded in vocabulary:
        return []
    # The lengths rule out most words before the automaton reads them.
    corrector = ListCorrector(sorted(w for w in vocabulary if abs(len(w) - len(folded)) <= _MOST_ERRORS))
    distances: dict[str, int] = {}
    for distance in range(1, _MOST_ERRORS + 1):
        for candidate in corrector.suggest(folded, limit=len(vocabulary), maxdist=distance):
            if distance == 1 or len(folded) > _SHORT_WORD or sorted(candidate) == sorted(folded):
                distances.setdefault(candidate, distance)
    return sorted(distances, key=lambda each: (distances[each], -vocabulary[each], each))[:limit]
