"""Results of queries: paths between two words, and trees around a tuple for three or more words.

A tree that contains a tuple is the union of the walks from this tuple to the
leaves. So it grows by one walk at a time, to a word that it does not contain
yet: walks from one tuple are joined at the node where they part. A tree may
grow in several ways, and is returned once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges, slices
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import NO_MEMBER
from skws_mesh.delta.neighbours import Partners
from skws_mesh.delta.walks import Walks
from skws_mesh.delta.words import NO_WORD, CarriedWords, WordPairs, WordSets
from skws_schema.budgets import check

HUB: Final = 1 << 14
"""The number of pairs of walks from one tuple beyond which their words are joined first."""
_AT_ONCE: Final = 1 << 16  # pairs of tuples whose words are compared together


class Paths(NamedTuple):
    """Paths of one length, a column each, that complete an index entry, whose word the first tuple has.

    ``members`` are the slots of their tuples; ``edges`` lead from each to the next. All are alive from
    ``start`` to ``end``.
    """

    entry: Ints
    members: Ints
    edges: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.entry)

    def take(self, chosen: Ints) -> Paths:
        return Paths(*(column.take(chosen, axis=-1) for column in self))


class PathJoins:
    """Finds paths among walks."""

    def __init__(self, words: CarriedWords, pairs: WordPairs, partners: Partners) -> None:
        self._words = words
        self._pairs = pairs
        self._partners = partners

    def completed(self, levels: list[Walks]) -> Iterator[Paths]:
        """The paths that walks complete, through the tuples at which walks begin, or beginning there."""
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
        """By owner: True if it has too many pairs of walks to try them one by one."""
        owners = int(levels[0].owner.max(initial=-1)) + 1
        counts = [np.bincount(walks.owner, minlength=owners) for walks in levels]
        pairs = np.zeros(owners, dtype=np.int64)
        for i in range(1, len(levels)):
            for j in range(i, len(levels) - i):
                pairs += counts[i] * counts[j]
        return pairs > HUB

    def matched(self, one: Walks, rows: Ints, other: Walks, others: Ints) -> Iterator[Paths]:
        """The paths formed by rows of walks, each with the row of other walks at the same position."""
        for begin in range(0, len(rows), _AT_ONCE):
            chunk = slice(begin, begin + _AT_ONCE)
            position, entry = self.entries(one.ends.take(rows[chunk]), other.ends.take(others[chunk]))
            if len(position):
                yield _joined(one, rows[chunk].take(position), other, others[chunk].take(position), entry)

    def entries(self, one: Ints, other: Ints) -> tuple[Ints, Ints]:
        """The entries that pairs of tuples complete, as (position, entry).

        Tuples may have thousands of words, so the words of each side are compared with the other tuple once.
        """
        of, far = self._partners.among(one, other)
        pairs = distinct(of)
        to, near = self._partners.among(other.take(pairs), one.take(pairs))
        near = near.take(np.argsort(to, kind="stable"))
        counts = np.bincount(to, minlength=len(pairs))
        which = np.searchsorted(pairs, of)
        first, counts = (np.cumsum(counts) - counts).take(which), counts.take(which)
        positions, entries = [NOTHING], [NOTHING]
        for part in slices(counts, PAIRS):
            times = counts[part]
            position, its = self._pairs.between(
                near.take(ranges(first[part], times)), np.repeat(far[part], times)
            )
            positions.append(np.repeat(of[part], times).take(position))
            entries.append(its)
        return np.concatenate(positions), np.concatenate(entries)

    def _about_hub(self, levels: list[Walks], owner: int) -> Iterator[Paths]:
        """Like ``matched``, for one tuple with many neighbours: the words around it are joined first."""
        mine = [
            walks.take(np.arange(*np.searchsorted(walks.owner, (owner, owner + 1)), dtype=np.int64))
            for walks in levels[1:-1]
        ]
        words_of_walks = [self._words.of(walks.ends) for walks in mine]
        there = distinct(np.concatenate([words for _, words in words_of_walks]))
        _, entries = self._pairs.from_words(there)
        near, far = self._pairs.words(entries)
        pairs = np.flatnonzero((near < far) & (there.take(np.searchsorted(there, far), mode="clip") == far))
        entries, near, far = entries.take(pairs), near.take(pairs), far.take(pairs)
        if not len(entries):
            return
        by_word = [_by_word(*each) for each in words_of_walks]
        for i, one in enumerate(mine):
            for j, other in enumerate(mine):
                if i + j + 3 > len(levels):
                    continue
                for entry, rows, others in _products(entries, near, by_word[i], far, by_word[j]):
                    yield _joined(one, rows, other, others, entry)


def _joined(one: Walks, rows: Ints, other: Walks, others: Ints, entry: Ints) -> Paths:
    """Paths from the ends of some walks to those of others from the same tuple.

    Paths are left out if they pass a tuple twice or are never alive as a whole.
    """
    start = np.maximum(one.start.take(rows), other.start.take(others))
    end = np.minimum(one.end.take(rows), other.end.take(others))
    alive = start < end
    near, back = one.paths(rows)
    far, onward = other.paths(others)
    for slots, its in product(near[1:], far[1:]):
        alive &= slots != its
    members = np.array([*near[:0:-1], *far])
    edges = np.array([*(edge ^ 1 for edge in back[::-1]), *onward])
    paths = Paths(entry, members, edges, start, end)
    return paths if alive.all() else paths.take(np.flatnonzero(alive))


def _parted(one: Walks, other: Walks, hubs: Flags, *, same: bool) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows: walks from one tuple by different joins, except at hubs; each once if ``same``."""
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
    """The start and end of each number in a sorted column; all numbers are small, and at least -1."""
    bounds = np.zeros(max(int(ordered.max(initial=-1)), int(numbers.max(initial=-1))) + 3, dtype=np.int64)
    bounds[1:] = np.cumsum(np.bincount(ordered + 1, minlength=len(bounds) - 1))
    return bounds.take(numbers + 1), bounds.take(numbers + 2)


class _ByWord(NamedTuple):
    """Rows sorted by a word."""

    words: Ints
    rows: Ints


def _by_word(rows: Ints, words: Ints) -> _ByWord:
    order = np.argsort(words, kind="stable")
    return _ByWord(words.take(order), rows.take(order))


def _products(
    entries: Ints, near: Ints, one: _ByWord, far: Ints, other: _ByWord
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """For each entry, all rows with its word, each paired with all rows with its other word."""
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


NO_NODE: Final = -1
_WORD: Final = (1 << 32) - 1
_TABLE: Final = 256  # tuples whose words are flagged in one table, which then fits the processor's caches
_COLUMNS: Final = 1 << 13
_TREES_AT_ONCE: Final = 1 << 14  # candidates


class Candidates(NamedTuple):
    """Pairs of a tuple and a query, a row each: all words of the query are found around the tuple.

    ``owner`` is the position of the tuple, as in ``Walks``; ``place`` that of the query in ``WordSets``.
    """

    owner: Ints
    place: Ints


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees of tuples, a column each; the first node is the tuple around which they grow.

    ``place``: the position of the query. ``bitmaps``: the keywords of each node; ``members``: the slots;
    ``parents``: the parent of each node; ``edges``: the edge from there. These have a row for each node of
    the largest tree; shorter columns are padded with NO_MEMBER and NO_NODE.
    """

    of: Ints
    place: Ints
    size: Ints
    bitmaps: Ints
    members: Ints
    parents: Ints
    edges: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.of)

    @property
    def covered(self) -> Ints:
        """The keywords that some node contains."""
        keywords: Ints = np.bitwise_or.reduce(self.bitmaps, axis=0)
        return keywords

    def take(self, chosen: Ints) -> Trees:
        return Trees(
            *(
                column.take(chosen, axis=-1)
                for column in (
                    *(self.of, self.place, self.size, self.bitmaps, self.members, self.parents, self.edges),
                    *(self.start, self.end),
                )
            )
        )


class _Branches(NamedTuple):
    """Walks from the tuples of candidates to words of their queries, in order of the candidates.

    ``bitmaps``, ``members`` and ``edges`` have a row for each step, NO_MEMBER after the end of a walk.
    """

    of: Ints
    bitmaps: Ints
    members: Ints
    edges: Ints
    start: Ints
    end: Ints


class TreeJoins:
    """Finds trees among walks. ``width``: the most nodes of any tree."""

    def __init__(self, live: LiveTuples, words: CarriedWords, sets: WordSets, width: int) -> None:
        self._live = live
        self._words = words
        self._sets = sets
        self._width = width

    def candidates(self, levels: Sequence[Walks]) -> Candidates:
        """The tuples at which walks begin, with all queries whose words are at the ends of these walks."""
        near = distinct(np.concatenate([_words_at(walks, self._words)[0] for walks in levels]))
        owners = near >> 32
        owner, place = [NOTHING], [NOTHING]
        for begin in range(0, int(owners.max(initial=-1)) + 1, _TABLE):
            first, end = np.searchsorted(owners, (begin, begin + _TABLE))
            candidates = self._among(near[first:end], begin)
            owner.append(candidates.owner)
            place.append(candidates.place)
        return Candidates(np.concatenate(owner), np.concatenate(place))

    def _among(self, near: Ints, begin: int) -> Candidates:
        """The candidates of the tuples from ``begin`` on, given all words around each, sorted."""
        owners, words = near >> 32, near & _WORD
        there = np.zeros((_TABLE, _COLUMNS), dtype=bool)  # words share columns; most words are absent
        there[owners - begin, words % _COLUMNS] = True
        position, place = self._sets.by_rarest(words)
        owner = owners.take(position)
        for exact in (False, True):
            for number in range(self._sets.most):
                word = self._sets.word(place, number)
                if exact:
                    codes = owner << 32 | word
                    hits = near.take(np.searchsorted(near, codes), mode="clip") == codes
                else:
                    hits = there.ravel().take((owner - begin) * _COLUMNS + word % _COLUMNS)
                remaining = np.flatnonzero(hits | (word == NO_WORD))
                owner, place = owner.take(remaining), place.take(remaining)
        return Candidates(owner, place)

    def around(self, levels: Sequence[Walks], candidates: Candidates) -> Iterator[Trees]:
        """The minimal total trees around candidates, each once."""
        begun, *longer = levels
        ends = [_words_at(walks, self._words) for walks in longer]
        ordered = [
            (codes.take(order), row.take(order)) for codes, row in ends for order in [np.argsort(codes)]
        ]
        for begin in range(0, len(candidates.owner), _TREES_AT_ONCE):
            check()
            chunk = slice(begin, begin + _TREES_AT_ONCE)
            some = Candidates(candidates.owner[chunk], candidates.place[chunk])
            total = np.zeros(len(some.place), dtype=np.int64)
            for number in range(self._sets.most):
                total |= (self._sets.word(some.place, number) != NO_WORD).astype(np.int64) << number
            branches = self._branches(longer, ordered, some)
            trees = list(self._grown(self._begun(begun, some), branches, total))
            if trees:
                yield _once(_minimal(_together(trees)))

    def _begun(self, begun: Walks, candidates: Candidates) -> Trees:
        """The trees that consist only of the tuple of a candidate."""
        row = np.searchsorted(begun.owner, candidates.owner)
        slots, number = begun.ends.take(row), len(row)
        members, parents = (
            np.full((self._width, number), none, dtype=np.int64) for none in (NO_MEMBER, NO_NODE)
        )
        members[0] = slots
        bitmaps = np.zeros((self._width, number), dtype=np.int64)
        bitmaps[0] = self._bitmaps(slots, candidates.place)
        return Trees(
            np.arange(number, dtype=np.int64),
            candidates.place,
            np.ones(number, dtype=np.int64),
            bitmaps,
            members,
            parents,
            parents.copy(),
            begun.start.take(row),
            begun.end.take(row),
        )

    def _bitmaps(self, slots: Ints, place: Ints) -> Ints:
        """The keywords that each tuple contains of the query at its position."""
        bitmaps = np.zeros(len(slots), dtype=np.int64)
        for number in range(self._sets.most):
            bitmaps |= self._words.contain(slots, self._sets.word(place, number)).astype(np.int64) << number
        return bitmaps

    def _branches(
        self, longer: Sequence[Walks], ends: Sequence[tuple[Ints, Ints]], candidates: Candidates
    ) -> _Branches:
        """``ends``: for each of ``longer`` the sorted words at their ends, as ``_words_at`` returns them."""
        nothing = np.empty((self._width - 1, 0), dtype=np.int64)
        parts = [(NOTHING, nothing, nothing, nothing, NOTHING, NOTHING)]
        for walks, (codes, rows) in zip(longer, ends, strict=True):
            hits = [NOTHING]
            for number in range(self._sets.most):
                wanted = candidates.owner << 32 | self._sets.word(candidates.place, number)
                first = np.searchsorted(codes, wanted)
                counts = np.searchsorted(codes, wanted, side="right") - first
                of = np.repeat(np.arange(len(wanted), dtype=np.int64), counts)
                hits.append(of << 32 | rows.take(ranges(first, counts)))
            both = distinct(np.concatenate(hits))
            of, row = both >> 32, both & _WORD
            members = np.full((self._width - 1, len(row)), NO_MEMBER, dtype=np.int64)
            edges = np.full_like(members, NO_NODE)
            bitmaps = np.zeros_like(members)
            (_, *slots), steps = walks.paths(row)
            for step, (slot, edge) in enumerate(zip(slots, steps, strict=True)):
                members[step], edges[step] = slot, edge
                bitmaps[step] = self._bitmaps(slot, candidates.place.take(of))
            parts.append((of, bitmaps, members, edges, walks.start.take(row), walks.end.take(row)))
        branches = _Branches(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))
        order = np.argsort(branches.of, kind="stable")
        return _Branches(*(column.take(order, axis=-1) for column in branches))

    def _grown(self, trees: Trees, branches: _Branches, total: Ints) -> Iterator[Trees]:
        """The total trees, each at least once: ``trees`` with walks to the first word that they lack."""
        missing = total.take(trees.of) & ~trees.covered
        yield trees.take(np.flatnonzero(missing == 0))
        lacking = np.flatnonzero(missing)
        trees, first_missing = trees.take(lacking), (missing & -missing).take(lacking)
        covers = np.bitwise_or.reduce(branches.bitmaps, axis=0)
        first = np.searchsorted(branches.of, trees.of)
        counts = np.searchsorted(branches.of, trees.of, side="right") - first
        for part in slices(counts, PAIRS):
            rows = np.repeat(np.arange(len(trees), dtype=np.int64)[part], counts[part])
            others = ranges(first[part], counts[part])
            chosen = np.flatnonzero(covers.take(others) & first_missing.take(rows))
            grown = _attached(trees.take(rows.take(chosen)), branches, others.take(chosen))
            if len(grown):
                yield from self._grown(grown, branches, total)


def _words_at(walks: Walks, words: CarriedWords) -> tuple[Ints, Ints]:
    """The words at the ends of walks: owner and word in one integer, and the row of the walk."""
    row, found = words.of(walks.ends)
    return walks.owner.take(row) << 32 | found, row


def _attached(trees: Trees, branches: _Branches, others: Ints) -> Trees:
    """Trees with one more walk each, if the union is a tree of live tuples that is not too large."""
    start = np.maximum(trees.start, branches.start.take(others))
    end = np.minimum(trees.end, branches.end.take(others))
    fits = start < end
    width = len(trees.members)
    size, at = trees.size.copy(), np.zeros(len(trees), dtype=np.int64)
    for step in range(width - 1):
        slots, edges = branches.members[step].take(others), branches.edges[step].take(others)
        walks = fits & (slots != NO_MEMBER)
        among, next_node = np.zeros(len(trees), dtype=bool), np.full(len(trees), NO_NODE, dtype=np.int64)
        for node in range(1, width):
            same = trees.members[node] == slots
            among |= same
            next_node[same & (trees.parents[node] == at) & (trees.edges[node] == edges)] = node
        parts = walks & (next_node == NO_NODE)  # the walk leaves the tree here, or has left it
        fits &= ~parts | (~among & (size < width))
        new = np.flatnonzero(parts & fits)
        last = size.take(new)
        trees.members[last, new], trees.edges[last, new] = slots.take(new), edges.take(new)
        trees.parents[last, new] = at.take(new)
        trees.bitmaps[last, new] = branches.bitmaps[step].take(others.take(new))
        next_node[new] = last
        size[new] += 1
        at = np.where(walks, next_node, at)
    grown = Trees(
        *(trees.of, trees.place, size, trees.bitmaps, trees.members, trees.parents, trees.edges, start, end)
    )
    return grown.take(np.flatnonzero(fits))


def _minimal(trees: Trees) -> Trees:
    """The trees in which each leaf has a keyword that no other node has."""
    once, several = np.zeros(len(trees), dtype=np.int64), np.zeros(len(trees), dtype=np.int64)
    for bitmap in trees.bitmaps:
        several |= once & bitmap
        once |= bitmap
    minimal = np.ones(len(trees), dtype=bool)
    for node, (bitmap, member) in enumerate(zip(trees.bitmaps, trees.members, strict=True)):
        joins = (trees.parents == node).sum(axis=0) + (trees.parents[node] != NO_NODE)
        leaf = (member != NO_MEMBER) & (joins == 1)
        minimal &= ~leaf | ((bitmap & ~several) != 0)
    return trees.take(np.flatnonzero(minimal))


def _once(trees: Trees) -> Trees:
    """Each tree once, however it has grown; it is identified by its joins, sorted by their ends."""
    before = np.take_along_axis(trees.members, np.maximum(trees.parents, 0), axis=0)
    order = np.argsort(-trees.members[1:], axis=0, kind="stable")
    ordered = [np.take_along_axis(each[1:], order, axis=0) for each in (trees.members, before, trees.edges)]
    keys = np.vstack([trees.of, *ordered])
    _, first = np.unique(keys, axis=1, return_index=True)
    return trees.take(np.sort(first))


def _together(parts: Sequence[Trees]) -> Trees:
    names = Trees.__slots__
    return Trees(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))
