"""Results of queries: paths between two words, and trees around a tuple for three or more words.

A tree that contains a tuple is the union of the walks from this tuple to the
leaves. So it grows by one walk at a time, to a word that it does not contain
yet: walks from one tuple are joined at the node where they part. A tree may
grow in several ways, and is returned once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
_CHUNK_PAIRS: Final = 1 << 16  # pairs of tuples whose words are compared together


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

    def take(self, indices: Ints) -> Paths:
        return Paths(*(column.take(indices, axis=-1) for column in self))


class PathJoins:
    """Finds paths among walks."""

    def __init__(self, words: CarriedWords, pairs: WordPairs, partners: Partners) -> None:
        self._words = words
        self._pairs = pairs
        self._partners = partners

    def find(self, levels: list[Walks]) -> Iterator[Paths]:
        """The paths that walks complete, through the tuples at which walks begin or from there."""
        hubs = self._hubs(levels)
        for shorter, left in enumerate(levels):
            for length in range(max(1, shorter), len(levels) - shorter):
                right = levels[length]
                skipped = hubs if shorter else np.zeros_like(hubs)
                for left_rows, right_rows in _row_pairs(left, right, skipped, same=length == shorter):
                    yield from self.match(left, left_rows, right, right_rows)
        for owner in np.flatnonzero(hubs).tolist():
            yield from self._hub_paths(levels, owner)

    def _hubs(self, levels: list[Walks]) -> Flags:
        """By owner: True if it has too many pairs of walks to try them one by one."""
        owners = int(levels[0].owner.max(initial=-1)) + 1
        counts = [np.bincount(walks.owner, minlength=owners) for walks in levels]
        pairs = np.zeros(owners, dtype=np.int64)
        for i in range(1, len(levels)):
            for j in range(i, len(levels) - i):
                pairs += counts[i] * counts[j]
        return pairs > HUB

    def match(self, left: Walks, left_rows: Ints, right: Walks, right_rows: Ints) -> Iterator[Paths]:
        """The paths formed by rows of walks, each with the row of other walks at the same position."""
        for begin in range(0, len(left_rows), _CHUNK_PAIRS):
            chunk = slice(begin, begin + _CHUNK_PAIRS)
            position, entry = self.entries(
                left.ends.take(left_rows[chunk]), right.ends.take(right_rows[chunk])
            )
            if len(position):
                yield _join(
                    left, left_rows[chunk].take(position), right, right_rows[chunk].take(position), entry
                )

    def entries(self, left: Ints, right: Ints) -> tuple[Ints, Ints]:
        """The entries that pairs of tuples complete, as (position, entry).

        Tuples may have thousands of words, so the words of each side are compared with the other tuple once.
        """
        pair_positions, far = self._partners.candidates(left, right)
        pairs = distinct(pair_positions)
        pair_numbers, near = self._partners.candidates(right.take(pairs), left.take(pairs))
        near = near.take(np.argsort(pair_numbers, kind="stable"))
        counts = np.bincount(pair_numbers, minlength=len(pairs))
        indices = np.searchsorted(pairs, pair_positions)
        first, counts = (np.cumsum(counts) - counts).take(indices), counts.take(indices)
        positions, entries = [NOTHING], [NOTHING]
        for part in slices(counts, PAIRS):
            repeats = counts[part]
            position, part_entries = self._pairs.between(
                near.take(ranges(first[part], repeats)), np.repeat(far[part], repeats)
            )
            positions.append(np.repeat(pair_positions[part], repeats).take(position))
            entries.append(part_entries)
        return np.concatenate(positions), np.concatenate(entries)

    def _hub_paths(self, levels: list[Walks], owner: int) -> Iterator[Paths]:
        """Like ``match``, for one tuple with many neighbours: the words around it are joined first."""
        hub_walks = [
            walks.take(np.arange(*np.searchsorted(walks.owner, (owner, owner + 1)), dtype=np.int64))
            for walks in levels[1:-1]
        ]
        words_of_walks = [self._words.of(walks.ends) for walks in hub_walks]
        hub_words = distinct(np.concatenate([words for _, words in words_of_walks]))
        _, entries = self._pairs.from_words(hub_words)
        near, far = self._pairs.words(entries)
        pairs = np.flatnonzero(
            (near < far) & (hub_words.take(np.searchsorted(hub_words, far), mode="clip") == far)
        )
        entries, near, far = entries.take(pairs), near.take(pairs), far.take(pairs)
        if not len(entries):
            return
        by_word = [_by_word(*rows_and_words) for rows_and_words in words_of_walks]
        for i, left in enumerate(hub_walks):
            for j, right in enumerate(hub_walks):
                if i + j + 3 > len(levels):
                    continue
                for entry, left_rows, right_rows in _products(entries, near, by_word[i], far, by_word[j]):
                    yield _join(left, left_rows, right, right_rows, entry)


def _join(left: Walks, left_rows: Ints, right: Walks, right_rows: Ints, entry: Ints) -> Paths:
    """Paths from the ends of some walks to those of others from the same tuple.

    Paths are left out if they pass a tuple twice or are never alive as a whole.
    """
    start = np.maximum(left.start.take(left_rows), right.start.take(right_rows))
    end = np.minimum(left.end.take(left_rows), right.end.take(right_rows))
    alive = start < end
    near, near_edges = left.paths(left_rows)
    far, far_edges = right.paths(right_rows)
    for near_slots, far_slots in product(near[1:], far[1:]):
        alive &= near_slots != far_slots
    members = np.array([*near[:0:-1], *far])
    edges = np.array([*(edge ^ 1 for edge in near_edges[::-1]), *far_edges])
    paths = Paths(entry, members, edges, start, end)
    return paths if alive.all() else paths.take(np.flatnonzero(alive))


def _row_pairs(left: Walks, right: Walks, hubs: Flags, *, same: bool) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows: walks from one tuple by different joins, except at hubs; each once if ``same``."""
    left_rows = np.flatnonzero(~hubs.take(left.owner))
    begin, end = _bounds(right.owner, left.owner.take(left_rows))
    lower, upper = (
        np.maximum(bounds, begin) for bounds in _bounds(right.branch, left.branch.take(left_rows))
    )
    first, counts = upper, end - upper
    if not same:
        left_rows = np.concatenate([left_rows, left_rows])
        first, counts = np.concatenate([begin, first]), np.concatenate([lower - begin, counts])
    for part in slices(counts, _CHUNK_PAIRS):
        yield np.repeat(left_rows[part], counts[part]), ranges(first[part], counts[part])


def _bounds(sorted_numbers: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """The start and end of each number in a sorted column; all numbers are small, and at least -1."""
    bounds = np.zeros(
        max(int(sorted_numbers.max(initial=-1)), int(numbers.max(initial=-1))) + 3, dtype=np.int64
    )
    bounds[1:] = np.cumsum(np.bincount(sorted_numbers + 1, minlength=len(bounds) - 1))
    return bounds.take(numbers + 1), bounds.take(numbers + 2)


class _ByWord(NamedTuple):
    """Rows sorted by a word."""

    words: Ints
    rows: Ints


def _by_word(rows: Ints, words: Ints) -> _ByWord:
    order = np.argsort(words, kind="stable")
    return _ByWord(words.take(order), rows.take(order))


def _products(
    entries: Ints, near: Ints, left: _ByWord, far: Ints, right: _ByWord
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """For each entry, all rows with its word, each paired with all rows with its other word."""
    first = np.searchsorted(left.words, near)
    near_counts = np.searchsorted(left.words, near, side="right") - first
    second = np.searchsorted(right.words, far)
    far_counts = np.searchsorted(right.words, far, side="right") - second
    entry_numbers = np.repeat(np.arange(len(entries), dtype=np.int64), near_counts)
    left_rows = left.rows.take(ranges(first, near_counts))
    counts = far_counts.take(entry_numbers)
    for part in slices(counts, PAIRS):
        repeats = counts[part]
        yield (
            np.repeat(entries.take(entry_numbers[part]), repeats),
            np.repeat(left_rows[part], repeats),
            right.rows.take(ranges(second.take(entry_numbers[part]), repeats)),
        )


NO_NODE: Final = -1
_WORD: Final = (1 << 32) - 1
_TABLE_ROWS: Final = 256
"""Tuples whose words are flagged in one table, which then fits the processor's caches."""
_TABLE_COLUMNS: Final = 1 << 13
_CHUNK_CANDIDATES: Final = 1 << 14  # candidates


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

    candidate: Ints
    place: Ints
    size: Ints
    bitmaps: Ints
    members: Ints
    parents: Ints
    edges: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.candidate)

    @property
    def covered(self) -> Ints:
        """The keywords that some node contains."""
        keywords: Ints = np.bitwise_or.reduce(self.bitmaps, axis=0)
        return keywords

    def columns(self) -> tuple[Ints, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def take(self, indices: Ints) -> Trees:
        return Trees(*(column.take(indices, axis=-1) for column in self.columns()))


class _Branches(NamedTuple):
    """Walks from the tuples of candidates to words of their queries, in order of the candidates.

    ``bitmaps``, ``members`` and ``edges`` have a row for each step, NO_MEMBER after the end of a walk.
    """

    candidate: Ints
    bitmaps: Ints
    members: Ints
    edges: Ints
    start: Ints
    end: Ints


class TreeJoins:
    """Finds trees among walks. ``width``: the most nodes of any tree; ``sizes``: of those of each query."""

    def __init__(
        self,
        live: LiveTuples,
        words: CarriedWords,
        sets: WordSets,
        width: int,
        sizes: Callable[[Ints], Ints],
    ) -> None:
        self._live = live
        self._words = words
        self._sets = sets
        self._width = width
        self._sizes = sizes

    def candidates(self, levels: Sequence[Walks]) -> Candidates:
        """The tuples at which walks begin, with all queries whose words are at the ends of these walks."""
        near = distinct(np.concatenate([_words_at(walks, self._words)[0] for walks in levels]))
        owners = near >> 32
        owner, place = [NOTHING], [NOTHING]
        for begin in range(0, int(owners.max(initial=-1)) + 1, _TABLE_ROWS):
            first, end = np.searchsorted(owners, (begin, begin + _TABLE_ROWS))
            candidates = self._table_candidates(near[first:end], begin)
            owner.append(candidates.owner)
            place.append(candidates.place)
        return Candidates(np.concatenate(owner), np.concatenate(place))

    def _table_candidates(self, near: Ints, begin: int) -> Candidates:
        """The candidates of the tuples from ``begin`` on, given all words around each, sorted."""
        owners, words = near >> 32, near & _WORD
        # Words share columns; most words are absent.
        flags = np.zeros((_TABLE_ROWS, _TABLE_COLUMNS), dtype=bool)
        flags[owners - begin, words % _TABLE_COLUMNS] = True
        position, place = self._sets.by_rarest(words)
        owner = owners.take(position)
        for exact in (False, True):
            for number in range(self._sets.most):
                word = self._sets.word(place, number)
                if exact:
                    codes = owner << 32 | word
                    hits = near.take(np.searchsorted(near, codes), mode="clip") == codes
                else:
                    hits = flags.ravel().take((owner - begin) * _TABLE_COLUMNS + word % _TABLE_COLUMNS)
                remaining = np.flatnonzero(hits | (word == NO_WORD))
                owner, place = owner.take(remaining), place.take(remaining)
        return Candidates(owner, place)

    def trees(self, levels: Sequence[Walks], candidates: Candidates) -> Iterator[Trees]:
        """The minimal total trees around candidates, each once."""
        starts, *longer = levels
        ends = [_words_at(walks, self._words) for walks in longer]
        sorted_ends = [
            (codes.take(order), row.take(order)) for codes, row in ends for order in [np.argsort(codes)]
        ]
        for begin in range(0, len(candidates.owner), _CHUNK_CANDIDATES):
            check()
            chunk = slice(begin, begin + _CHUNK_CANDIDATES)
            batch = Candidates(candidates.owner[chunk], candidates.place[chunk])
            total = np.zeros(len(batch.place), dtype=np.int64)
            for number in range(self._sets.most):
                total |= (self._sets.word(batch.place, number) != NO_WORD).astype(np.int64) << number
            sizes = self._sizes(self._sets.query(batch.place))
            branches = self._branches(longer, sorted_ends, batch, sizes)
            trees = list(self._grow(self._single_nodes(starts, batch), branches, total, sizes))
            if trees:
                yield _unique(_minimal(_concat(trees)))

    def _single_nodes(self, starts: Walks, candidates: Candidates) -> Trees:
        """The trees that consist only of the tuple of a candidate."""
        row = np.searchsorted(starts.owner, candidates.owner)
        slots, count = starts.ends.take(row), len(row)
        members, parents = (
            np.full((self._width, count), filler, dtype=np.int64) for filler in (NO_MEMBER, NO_NODE)
        )
        members[0] = slots
        bitmaps = np.zeros((self._width, count), dtype=np.int64)
        bitmaps[0] = self._bitmaps(slots, candidates.place)
        return Trees(
            np.arange(count, dtype=np.int64),
            candidates.place,
            np.ones(count, dtype=np.int64),
            bitmaps,
            members,
            parents,
            parents.copy(),
            starts.start.take(row),
            starts.end.take(row),
        )

    def _bitmaps(self, slots: Ints, place: Ints) -> Ints:
        """The keywords that each tuple contains of the query at its position."""
        bitmaps = np.zeros(len(slots), dtype=np.int64)
        for number in range(self._sets.most):
            bitmaps |= self._words.contain(slots, self._sets.word(place, number)).astype(np.int64) << number
        return bitmaps

    def _branches(
        self, longer: Sequence[Walks], ends: Sequence[tuple[Ints, Ints]], candidates: Candidates, sizes: Ints
    ) -> _Branches:
        """``ends``: for each of ``longer`` the sorted words at their ends, as ``_words_at`` returns them.

        ``sizes``: the most nodes of each candidate's trees.
        """
        nothing = np.empty((self._width - 1, 0), dtype=np.int64)
        parts = [(NOTHING, nothing, nothing, nothing, NOTHING, NOTHING)]
        for joins, (walks, (codes, rows)) in enumerate(zip(longer, ends, strict=True), start=1):
            hits = [NOTHING]
            fitting = np.flatnonzero(sizes > joins)
            owner, place = candidates.owner.take(fitting), candidates.place.take(fitting)
            for number in range(self._sets.most):
                targets = owner << 32 | self._sets.word(place, number)
                first = np.searchsorted(codes, targets)
                counts = np.searchsorted(codes, targets, side="right") - first
                numbers = np.repeat(fitting, counts)
                hits.append(numbers << 32 | rows.take(ranges(first, counts)))
            pairs = distinct(np.concatenate(hits))
            numbers, row = pairs >> 32, pairs & _WORD
            members = np.full((self._width - 1, len(row)), NO_MEMBER, dtype=np.int64)
            edges = np.full_like(members, NO_NODE)
            bitmaps = np.zeros_like(members)
            (_, *slots), steps = walks.paths(row)
            for step, (slot, edge) in enumerate(zip(slots, steps, strict=True)):
                members[step], edges[step] = slot, edge
                bitmaps[step] = self._bitmaps(slot, candidates.place.take(numbers))
            parts.append((numbers, bitmaps, members, edges, walks.start.take(row), walks.end.take(row)))
        branches = _Branches(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))
        order = np.argsort(branches.candidate, kind="stable")
        return _Branches(*(column.take(order, axis=-1) for column in branches))

    def _grow(self, trees: Trees, branches: _Branches, total: Ints, sizes: Ints) -> Iterator[Trees]:
        """The total trees, each at least once: ``trees`` with walks to the first word that they lack."""
        missing = total.take(trees.candidate) & ~trees.covered
        yield trees.take(np.flatnonzero(missing == 0))
        incomplete = np.flatnonzero(missing)
        trees, first_missing = trees.take(incomplete), (missing & -missing).take(incomplete)
        branch_keywords = np.bitwise_or.reduce(branches.bitmaps, axis=0)
        first = np.searchsorted(branches.candidate, trees.candidate)
        counts = np.searchsorted(branches.candidate, trees.candidate, side="right") - first
        for part in slices(counts, PAIRS):
            rows = np.repeat(np.arange(len(trees), dtype=np.int64)[part], counts[part])
            branch_rows = ranges(first[part], counts[part])
            indices = np.flatnonzero(branch_keywords.take(branch_rows) & first_missing.take(rows))
            larger = _attach(trees.take(rows.take(indices)), branches, branch_rows.take(indices), sizes)
            if len(larger):
                yield from self._grow(larger, branches, total, sizes)


def _words_at(walks: Walks, words: CarriedWords) -> tuple[Ints, Ints]:
    """The words at the ends of walks: owner and word in one integer, and the row of the walk."""
    row, end_words = words.of(walks.ends)
    return walks.owner.take(row) << 32 | end_words, row


def _attach(trees: Trees, branches: _Branches, branch_rows: Ints, sizes: Ints) -> Trees:
    """Attach a walk to each tree, if the union is a tree of live tuples that is not too large.

    ``sizes``: the most nodes of each candidate's trees.
    """
    start = np.maximum(trees.start, branches.start.take(branch_rows))
    end = np.minimum(trees.end, branches.end.take(branch_rows))
    fits = start < end
    width, most = len(trees.members), sizes.take(trees.candidate)
    size, nodes = trees.size.copy(), np.zeros(len(trees), dtype=np.int64)
    for step in range(width - 1):
        slots, edges = branches.members[step].take(branch_rows), branches.edges[step].take(branch_rows)
        continues = fits & (slots != NO_MEMBER)
        is_member, next_node = np.zeros(len(trees), dtype=bool), np.full(len(trees), NO_NODE, dtype=np.int64)
        for node in range(1, width):
            matches = trees.members[node] == slots
            is_member |= matches
            next_node[matches & (trees.parents[node] == nodes) & (trees.edges[node] == edges)] = node
        diverges = continues & (next_node == NO_NODE)  # the walk leaves the tree here, or has left it
        fits &= ~diverges | (~is_member & (size < most))
        new = np.flatnonzero(diverges & fits)
        last = size.take(new)
        trees.members[last, new], trees.edges[last, new] = slots.take(new), edges.take(new)
        trees.parents[last, new] = nodes.take(new)
        trees.bitmaps[last, new] = branches.bitmaps[step].take(branch_rows.take(new))
        next_node[new] = last
        size[new] += 1
        nodes = np.where(continues, next_node, nodes)
    larger = replace(trees, size=size, start=start, end=end)
    return larger.take(np.flatnonzero(fits))


def _minimal(trees: Trees) -> Trees:
    """The trees in which each leaf has a keyword that no other node has."""
    keywords, shared = np.zeros(len(trees), dtype=np.int64), np.zeros(len(trees), dtype=np.int64)
    for bitmap in trees.bitmaps:
        shared |= keywords & bitmap
        keywords |= bitmap
    is_minimal = np.ones(len(trees), dtype=bool)
    for node, (bitmap, member) in enumerate(zip(trees.bitmaps, trees.members, strict=True)):
        joins = (trees.parents == node).sum(axis=0) + (trees.parents[node] != NO_NODE)
        is_leaf = (member != NO_MEMBER) & (joins == 1)
        is_minimal &= ~is_leaf | ((bitmap & ~shared) != 0)
    return trees.take(np.flatnonzero(is_minimal))


def _unique(trees: Trees) -> Trees:
    """Each tree once, however it has grown; it is identified by its joins, sorted by their ends."""
    parent_slots = np.take_along_axis(trees.members, np.maximum(trees.parents, 0), axis=0)
    order = np.argsort(-trees.members[1:], axis=0, kind="stable")
    sorted_columns = [
        np.take_along_axis(column[1:], order, axis=0) for column in (trees.members, parent_slots, trees.edges)
    ]
    keys = np.vstack([trees.candidate, *sorted_columns])
    _, first = np.unique(keys, axis=1, return_index=True)
    return trees.take(np.sort(first))


def _concat(parts: Sequence[Trees]) -> Trees:
    return Trees(
        *(np.concatenate(columns, axis=-1) for columns in zip(*map(Trees.columns, parts), strict=True))
    )
