"""Results of queries for two words: paths from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from skws_mesh.columnar.columns import Flags, Ints, distinct, ranges, slices
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.neighbours import Partners
from skws_mesh.delta.walks import Walks
from skws_mesh.delta.word_index import WordPairs

HUB: Final = 1 << 14
"""Pairs of walks about one tuple, beyond which their words are joined first."""
_AT_ONCE: Final = 1 << 16  # pairs of tuples whose words are compared together


class Paths(NamedTuple):
    """Paths of one length that complete an entry of the index, a column each; the first tuple has its word.

    ``members`` are the slots of their tuples, ``edges`` lead from each to the next. ``start``, ``end``: when
    all are alive.
    """

    entry: Ints
    members: Ints
    edges: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.entry)

    def taken(self, chosen: Ints) -> Paths:
        return Paths(*(column.take(chosen, axis=-1) for column in self))


class PathJoins:
    """Finds paths among walks."""

    def __init__(self, words: CarriedWords, pairs: WordPairs, partners: Partners) -> None:
        self._words = words
        self._pairs = pairs
        self._partners = partners

    def completed(self, levels: list[Walks]) -> Iterator[Paths]:
        """Paths over the tuples that walks begin at, or from these."""
        hubs = self._hubs(levels)
        for shorter, one in enumerate(levels):
            for length in range(max(1, shorter), len(levels) - shorter):
                other = levels[length]
                some = hubs if shorter else np.zeros_like(hubs)
                for rows, others in _parted(one, other, some, same=length == shorter):
                    yield from self.matched(one, rows, other, others)
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

    def matched(self, one: Walks, rows: Ints, other: Walks, others: Ints) -> Iterator[Paths]:
        """The paths that rows of some walks make with those of others beside them."""
        for begin in range(0, len(rows), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            place, entry = self.entries(one.ends.take(rows[part]), other.ends.take(others[part]))
            if len(place):
                yield _joined(one, rows[part].take(place), other, others[part].take(place), entry)

    def entries(self, one: Ints, other: Ints) -> tuple[Ints, Ints]:
        """The entries that pairs of tuples complete, as (position, entry)."""
        position, far = self._partners.among(one, other)
        of, near = self._partners.among(other.take(position), one.take(position))
        found, entry = self._pairs.between(near, far.take(of))
        return position.take(of.take(found)), entry

    def _about_hub(self, levels: list[Walks], owner: int) -> Iterator[Paths]:
        """As ``matched`` for one tuple with many neighbours: the words around it are joined first."""
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
                    yield _joined(one, rows, other, others, entry)


def _joined(one: Walks, rows: Ints, other: Walks, others: Ints, entry: Ints) -> Paths:
    """Paths from the ends of some walks to those of others from the same tuple.

    Without those that share another tuple, or are never alive as a whole.
    """
    start = np.maximum(one.start.take(rows), other.start.take(others))
    end = np.minimum(one.end.take(rows), other.end.take(others))
    kept = start < end
    near, back = one.paths(rows)
    far, onward = other.paths(others)
    for slots, its in product(near[1:], far[1:]):
        kept &= slots != its
    members = np.array([*near[:0:-1], *far])
    edges = np.array([*(edge ^ 1 for edge in back[::-1]), *onward])
    paths = Paths(entry, members, edges, start, end)
    return paths if kept.all() else paths.taken(np.flatnonzero(kept))


def _parted(one: Walks, other: Walks, hubs: Flags, *, same: bool) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows of walks from one tuple by different joins, but for hubs; each once if both are alike."""
    rows = np.flatnonzero(~hubs.take(one.owner))
    begin, end = _within(other.owner, one.owner.take(rows))
    since, until = (np.maximum(place, begin) for place in _within(other.branch, one.branch.take(rows)))
    first, counts = until, end - until
    if not same:
        rows = np.concatenate([rows, rows])
        first, counts = np.concatenate([begin, first]), np.concatenate([since - begin, counts])
    for part in slices(counts, _AT_ONCE):
        yield np.repeat(rows[part], counts[part]), ranges(first[part], counts[part])


def _within(ordered: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """Where numbers begin and end in an ordered column; all are small, and -1 at least."""
    bounds = np.zeros(max(int(ordered.max(initial=-1)), int(numbers.max(initial=-1))) + 3, dtype=np.int64)
    bounds[1:] = np.cumsum(np.bincount(ordered + 1, minlength=len(bounds) - 1))
    return bounds.take(numbers + 1), bounds.take(numbers + 2)


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
