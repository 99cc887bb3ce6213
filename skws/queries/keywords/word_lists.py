"""Inverted lists of words in memory: arrays that grow by batches of texts.

Lists consist of *runs*. A run has, for each word, the texts that contain it, in order. Each batch of texts
makes a run. Eight runs of about the same size are merged into one, so n occurrences are in about log n runs,
and each is moved about log n / 3 times.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from skws.keywords.analysis import MEMORABLE, analyse
from skws.keywords.keyword_query import Alternative, Fuzzy, Prefix, Wildcard
from skws.keywords.leaves import has_form, parts, within
from skws_mesh.columnar.columns import NOTHING, Ints, ranges
from skws_schema.model import Analyzer

_RUNS_MERGED: Final = 8  # runs that become one
_TEXT: Final = np.uint64(32)


class _Run(NamedTuple):
    """``words`` in order; word i has the occurrences from ``first[i]`` to before ``first[i + 1]``."""

    words: Ints
    first: Ints
    texts: Ints
    frequencies: Ints

    @property
    def size(self) -> int:
        return len(self.texts)

    @property
    def order(self) -> int:
        """The size class: equal for runs of about the same size."""
        return self.size.bit_length() // 3

    @classmethod
    def of(cls, words: Ints, texts: Ints, frequencies: Ints) -> _Run:
        """A run of occurrences in order of their words."""
        first = np.flatnonzero(np.diff(words, prepend=words[:1] - 1))
        bounds = np.append(first, len(words))
        return cls(words.take(first).astype(np.int32), bounds, texts, frequencies)

    def places(self, words: Ints) -> tuple[Ints, Ints]:
        """The begins and ends of the occurrences of words."""
        indexes = np.searchsorted(self.words, words)
        indexes[indexes == len(self.words)] = 0
        is_present = self.words.take(indexes) == words
        return np.where(is_present, self.first.take(indexes), 0), np.where(
            is_present, self.first.take(indexes + 1), 0
        )


class WordLists:
    """The texts that contain each word, and the number of its occurrences. Words and texts are numbers.

    ``largest_run``: the most occurrences of a run that is made of others; by default, half a second's work.
    """

    def __init__(self, largest_run: int = 1 << 22) -> None:
        self.runs: list[_Run] = []
        self._largest_run = largest_run

    def add(self, words: Ints, texts: Ints) -> None:
        """Add occurrences in any order; the texts come after the present ones."""
        codes = np.sort(words.view(np.uint64) << _TEXT | texts.view(np.uint64))
        if not len(codes):
            return
        first = np.flatnonzero(np.diff(codes, prepend=~codes[:1]))
        frequencies = np.diff(np.append(first, len(codes)))
        codes = codes.take(first)
        words = (codes >> _TEXT).view(np.int64)
        self.runs.append(_Run.of(words, codes.astype(np.uint32).view(np.int32), _narrow(frequencies)))
        self._merge()

    def of(self, word: int) -> tuple[Ints, Ints]:
        """The texts that contain a word, in order, and the number of its occurrences in each."""
        one_word = np.array([word], dtype=np.int64)
        texts, frequencies = [NOTHING], [NOTHING]
        for run in self.runs:
            (begin,), (end,) = run.places(one_word)
            texts.append(run.texts[begin:end])
            frequencies.append(run.frequencies[begin:end])
        return np.concatenate(texts), np.concatenate(frequencies)

    def counts(self, words: Ints) -> Ints:
        """The number of texts that contain each word."""
        text_counts = np.zeros(len(words), dtype=np.int64)
        for run in self.runs:
            begin, end = run.places(words)
            text_counts += end - begin
        return text_counts

    def _merge(self) -> None:
        """Merge the last eight runs while the first of them is of no larger size class than the last one."""
        while len(runs := self.runs[-_RUNS_MERGED:]) == _RUNS_MERGED:
            if runs[0].order > runs[-1].order or sum(run.size for run in runs) > self._largest_run:
                return
            words = np.concatenate([np.repeat(run.words, np.diff(run.first)) for run in runs])
            texts = np.concatenate([run.texts for run in runs])
            order = np.argsort(words, kind="stable")  # texts of a word stay in order
            frequencies = np.concatenate([run.frequencies for run in runs]).take(order)
            self.runs[-_RUNS_MERGED:] = [_Run.of(words.take(order), texts.take(order), frequencies)]


def _narrow(numbers: Ints) -> Ints:
    """The same numbers in the smallest sufficient integer type."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


class WordNumbers:
    """The numbers of stems, by which texts are found, in the order of their first occurrence.

    ``words``: each folded word, with its stem. ``most_chunks``: the most chunks whose stems stay in memory.
    """

    def __init__(self, analyzer: Analyzer, most_chunks: int = 500_000) -> None:
        self.words: dict[str, str] = {}
        self._analyzer = analyzer
        self._most_chunks = most_chunks
        self._numbers: dict[str, int] = {}
        self._sorted: list[str] = []
        self._forget_chunks()

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, stem: str) -> int | None:
        """The number of a stem; None if no text has it."""
        return self._numbers.get(stem)

    def of(self, chunks: Sequence[str]) -> tuple[Ints, Ints]:
        """The stems of chunks, as (position in ``chunks``, number); a stem may be repeated."""
        if len(self._bounds) > self._most_chunks:
            self._forget_chunks()
        number_of_chunk = self._chunks
        numbers = [
            number_of_chunk[each] if each in number_of_chunk else self._look_up(each) for each in chunks
        ]
        chunk_numbers = np.array(numbers, dtype=np.int64)
        bounds = np.frombuffer(self._bounds, dtype=np.int64)
        begins = bounds.take(chunk_numbers)
        counts = bounds.take(chunk_numbers + 1) - begins
        position = np.repeat(np.arange(len(chunk_numbers)), counts)
        return position, np.frombuffer(self._stems, dtype=np.int64).take(ranges(begins, counts))

    def beginning(self, start: str) -> list[str]:
        """The words that begin with a prefix."""
        if len(self._sorted) < len(self.words):
            self._sorted = sorted(self.words)
        first = bisect_left(self._sorted, start)
        return self._sorted[first : bisect_left(self._sorted, start + chr(sys.maxunicode), first)]

    def satisfying(self, alternative: Alternative) -> Iterator[str]:
        """The stems of the words that match a prefix, a wildcard form or a word with typing errors."""
        words: Iterable[str] = self.words
        match alternative:
            case Prefix(start=start):
                words = self.beginning(start)
            case Wildcard(form=form):
                words = (word for word in words if has_form(word, form))
            case Fuzzy(word=typed, distance=most):
                pieces = parts(typed, most)
                words = (w for w in words if any(p in w for p in pieces) and within(w, typed, most))
        return (self.words[word] for word in words)

    def numbers(self, words: Iterable[str]) -> Ints:
        """The numbers of the stems of words."""
        return np.array([self._numbers[self.words[word]] for word in words], dtype=np.int64)

    def _look_up(self, chunk: str) -> int:
        """The number of a new chunk."""
        # A compound and its first piece may have the same place and stem, which count once.
        words = [token for token in analyse(chunk, self._analyzer).tokens if token.searchable]
        self.words.update((token.word, token.stem) for token in words)
        numbers = self._numbers
        for _, stem in dict.fromkeys((word.start, word.stem) for word in words):
            self._stems.append(numbers.setdefault(stem, len(numbers)))
        self._bounds.append(len(self._stems))
        number = len(self._bounds) - 2
        if len(chunk) <= MEMORABLE:
            self._chunks[chunk] = number
        return number

    def _forget_chunks(self) -> None:
        self._chunks: dict[str, int] = {}
        self._stems = array("q")  # the stems of each chunk, one chunk after the other
        self._bounds = array("q", [0])
