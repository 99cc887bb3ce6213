"""Results of queries for two words: paths from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from skws_mesh.columnar.columns import Flags, Ints, distinct, ranges, slices
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.partners import Partners
from skws_mesh.delta.walks import Walks
from skws_mesh.delta.word_pairs import WordPairs

HUB: Final = 1 << 14
"""Pairs of walks about one tuple, beyond which their words are joined first."""


class Ends(NamedTuple):
    """Walks from one tuple, two a row, whose ends complete an entry of the index; ``from_`` has its word."""

    from_: Walks
    to: Walks
    entry: Ints


class PathJoins:
    """Finds paths among walks."""

    def __init__(self, words: CarriedWords, pairs: WordPairs, partners: Partners) -> None:
        self._words = words
        self._pairs = pairs
        self._partners = partners

    def completed(self, levels: list[Walks]) -> Iterator[Ends]:
        """Walks from the last tuple of a path, to both of its ends."""
        begun, *longer = levels
        hubs = self._hubs(levels)
        for walks in longer:
            yield from self.matched(begun, np.searchsorted(begun.owner, walks.owner), walks)
        for shorter, one in enumerate(longer, 1):
            for length in range(shorter, len(levels) - shorter):
                other = levels[length]
                for rows, others in _cross(one, other, hubs, same=length == shorter):
                    yield from self._joined(one, rows, other, others)
        for owner in np.flatnonzero(hubs).tolist():
            yield from self._about_hub(levels, owner)

    def _hubs(self, levels: list[Walks]) -> Flags:
        """By owner: whether pairs of walks about it are too many to be tried one by one."""
        owners = int(levels[0].owner.max(initial=-1)) + 1
        counts = [np.bincount(walks.owner, minlength=owners) for walks in levels]
        pairs = np.zeros(owners, dtype=np.int64)
        for i in range(1, len(levels)):
            for j in range(i, len(levels) - i):
                pairs += counts[i] * counts[j]
        return pairs > HUB

    def _joined(self, one: Walks, rows: Ints, other: Walks, others: Ints) -> Iterator[Ends]:
        """Pairs of walks that make a path, with the entries that it completes."""
        kept = _make_path(one, rows, other, others)
        rows, others = rows.take(kept), others.take(kept)
        yield from self.matched(one, rows, other, others)

    def matched(self, one: Walks, rows: Ints, other: Walks, others: Ints | None = None) -> Iterator[Ends]:
        """The entries for the two ends of paths: rows of some walks beside all, or rows, of others."""
        ends, far = one.ends.take(rows), other.ends if others is None else other.ends.take(others)
        for begin in range(0, len(ends), PAIRS >> 2):
            part = slice(begin, begin + (PAIRS >> 2))
            place, entry = self.entries(ends[part], far[part])
            if len(place):
                place += begin
                to = place if others is None else others.take(place)
                yield Ends(one.taken(rows.take(place)), other.taken(to), entry)

    def entries(self, one: Ints, other: Ints) -> tuple[Ints, Ints]:
        """The entries that pairs of tuples complete, as (position, entry)."""
        position, words = self._partners.among(one, other)
        of, near = self._words.of(one.take(position))
        found, entry = self._pairs.between(near, words.take(of))
        return position.take(of.take(found)), entry

    def _about_hub(self, levels: list[Walks], owner: int) -> Iterator[Ends]:
        """As ``_joined`` for one tuple with many neighbours: the words around it are joined first."""
        mine = [
            walks.taken(np.arange(*np.searchsorted(walks.owner, (owner, owner + 1)), dtype=np.int64))
            for walks in levels[1:-1]
        ]
        found = [self._words.of(walks.ends) for walks in mine]
        there = distinct(np.concatenate([words for _, words in found]))
        _, entries = self._pairs.from_words(there)
        near, far = self._pairs.words(entries)
        known = np.flatnonzero((near < far) & (there.take(np.searchsorted(there, far), mode="clip") == far))
        entries, near, far = entries.take(known), near.take(known), far.take(known)
        if not len(entries):
            return
        by_word = [_by_word(*each) for each in found]
        for i, one in enumerate(mine):
            for j, other in enumerate(mine):
                if i + j + 3 > len(levels):
                    continue
                for entry, rows, others in _products(entries, near, by_word[i], far, by_word[j]):
                    kept = _make_path(one, rows, other, others)
                    if len(kept):
                        yield Ends(
                            one.taken(rows.take(kept)), other.taken(others.take(kept)), entry.take(kept)
                        )


def _make_path(one: Walks, rows: Ints, other: Walks, others: Ints) -> Ints:
    """The places of the pairs of walks from one tuple that share no other, and are alive together."""
    kept = np.maximum(one.start.take(rows), other.start.take(others)) < np.minimum(
        one.end.take(rows), other.end.take(others)
    )
    for near in one.members.T[1:]:
        column = np.ascontiguousarray(near).take(rows)
        for far in other.members.T[1:]:
            kept &= column != np.ascontiguousarray(far).take(others)
    return np.flatnonzero(kept)


def _cross(one: Walks, other: Walks, hubs: Flags, *, same: bool) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows of walks from one tuple, but for hubs; each pair once where both are the same."""
    first = np.searchsorted(other.owner, one.owner)
    end = np.searchsorted(other.owner, one.owner, side="right")
    if same:
        first = np.arange(1, len(one) + 1)
    counts = np.where(hubs.take(one.owner), 0, end - first)
    for part in slices(counts, PAIRS):
        rows = np.repeat(np.arange(len(one), dtype=np.int64)[part], counts[part])
        if len(rows):
            yield rows, ranges(first[part], counts[part])


class _ByWord(NamedTuple):
    """Rows in order of a word."""

    words: Ints
    rows: Ints


def _by_word(rows: Ints, words: Ints) -> _ByWord:
    order = np.argsort(words, kind="stable")
    return _ByWord(words.take(order), rows.take(order))


def _products(
    entries: Ints, near: Ints, one: _ByWord, far: Ints, other: _ByWord
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """For each entry all rows with its word beside all rows with its other word."""
    first = np.searchsorted(one.words, near)
    rows = np.searchsorted(one.words, near, side="right") - first
    second = np.searchsorted(other.words, far)
    others = np.searchsorted(other.words, far, side="right") - second
    of = np.repeat(np.arange(len(entries), dtype=np.int64), rows)
    left = one.rows.take(ranges(first, rows))
    counts = others.take(of)
    for part in slices(counts, PAIRS):
        times = counts[part]
        yield (
            np.repeat(entries.take(of[part]), times),
            np.repeat(left[part], times),
            other.rows.take(ranges(second.take(of[part]), times)),
        )
