"""The parts of delta joins compared with their definitions by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.columnar.columns import NULL, Ints, TupleColumns
from skws_mesh.columnar.hash_index import concat_pairs
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.delta.neighbours import Neighbours, Partners
from skws_mesh.delta.words import CarriedWords, WordPairs
from skws_schema.graph import edges
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from tests.strategies import examples

LIVE = 12
PAIRS = st.lists(st.tuples(st.integers(0, LIVE - 1), st.integers(0, 70)), max_size=40)
QUERIES = st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 6)), max_size=12)


def column(numbers: Sequence[int]) -> Ints:
    return np.array(list(numbers), dtype=np.int64)


def held(words: CarriedWords) -> set[tuple[int, int]]:
    return set(zip(words.slots.tolist(), words.words.tolist(), strict=True))


def check(words: CarriedWords, expected: set[tuple[int, int]], live: int) -> None:
    assert held(words) == expected
    slots = np.arange(live, dtype=np.int64)
    position, found = words.of(slots)
    assert sorted(zip(position.tolist(), found.tolist(), strict=True)) == sorted(expected)
    assert words.has_words.tolist() == [any(slot == at for slot, _ in expected) for at in range(live)]
    every = [(slot, word) for slot in range(live) for word in range(71)]
    contained = words.contain(column([slot for slot, _ in every]), column([word for _, word in every]))
    assert [pair for pair, here in zip(every, contained.tolist(), strict=True) if here] == sorted(expected)


@given(PAIRS, PAIRS, st.sets(st.integers(0, 70)), st.sets(st.integers(0, LIVE - 1)))
@examples(120)
def test_words_of_live_tuples(
    first: list[tuple[int, int]], more: list[tuple[int, int]], gone: set[int], dead: set[int]
) -> None:
    words = CarriedWords()
    half = [pair for pair in first if pair[0] < LIVE // 2]
    later = [pair for pair in first if pair[0] >= LIVE // 2]
    for some, live in ((half, LIVE // 2), (later, LIVE)):
        words.append(column([slot for slot, _ in some]), column([word for _, word in some]), live)
    check(words, set(first), LIVE)
    words.insert(column([slot for slot, _ in more]), column([word for _, word in more]), LIVE)
    check(words, {*first, *more}, LIVE)
    words.forget(column(sorted(gone)))
    expected = {pair for pair in (*first, *more) if pair[1] not in gone}
    check(words, expected, LIVE)
    left = [slot for slot in range(LIVE) if slot not in dead]
    moved = {slot: place for place, slot in enumerate(left)}
    words.remap(column([moved.get(slot, -1) for slot in range(LIVE)]))
    check(words, {(moved[slot], word) for slot, word in expected if slot in moved}, len(left))


@given(QUERIES, st.sets(st.integers(0, 11)))
@examples(120)
def test_the_index_of_queries(asked: list[tuple[int, int]], removed: set[int]) -> None:
    pairs = WordPairs()
    half = len(asked) // 2
    for begin, end in ((0, half), (half, len(asked))):
        some = asked[begin:end]
        numbers = np.arange(begin, end, dtype=np.int64)
        pairs.add(numbers, column([one for one, _ in some]), column([other for _, other in some]))
    standing = dict(enumerate(asked))
    for number in sorted(removed & standing.keys()):
        pairs.remove(number, *standing.pop(number))
    assert len(pairs) == len(standing)
    every = [(one, other) for one in range(7) for other in range(7)]
    position, entry = pairs.between(column([one for one, _ in every]), column([other for _, other in every]))
    found = sorted(
        (every[at], query, turned)
        for at, query, turned in zip(
            position.tolist(), pairs.query(entry).tolist(), pairs.is_reversed(entry).tolist(), strict=True
        )
    )
    two = {number: query for number, query in standing.items() if query[1] >= 0}
    assert found == sorted(
        [(query, number, False) for number, query in two.items()]
        + [((query[1], query[0]), number, True) for number, query in two.items()]
    )
    position, query = pairs.singles(np.arange(7, dtype=np.int64))
    alone = {number: one for number, (one, other) in standing.items() if other < 0}
    assert sorted(zip(query.tolist(), position.tolist(), strict=True)) == sorted(alone.items())


@pytest.mark.parametrize("apart", [1, 1 << 14])
@given(PAIRS, st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=300))
@examples(40)
def test_partners_are_never_missed(
    apart: int, carried: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    """Words with distant numbers share bits, so there may be too many partners, but never too few."""
    words, pairs = CarriedWords(), WordPairs()
    partners = Partners(words, pairs)
    words.append(column([slot for slot, _ in carried]), column([word * apart for _, word in carried]), LIVE)
    pairs.add(
        np.arange(len(asked), dtype=np.int64),
        column([one * apart for one, _ in asked]),
        column([other * apart for _, other in asked]),
    )
    partners.extend(LIVE)
    slots, others = np.divmod(np.arange(LIVE * LIVE, dtype=np.int64), LIVE)
    position, found = partners.candidates(slots, others)
    passed = set(zip(slots[position].tolist(), others[position].tolist(), found.tolist(), strict=True))
    either = {*asked, *((other, one) for one, other in asked)}
    for slot, word in carried:
        of = {partner for one, partner in either if one == word}
        assert {(slot, other, mine * apart) for other, mine in carried if mine in of} <= passed
    bits = {word * apart % 64 for pair in asked for word in pair}
    assert all(word % 64 in bits for _, _, word in passed)


A, B = (Attribute(name, AttributeType.INTEGER) for name in "ab")
JOINED = Schema(
    "joined",
    (Relation("r", (A, B)), Relation("s", (A,)), Relation("t", (B,))),
    (
        Join("rs", "r", "s", (("a", "a"),)),
        Join("rt", "r", "t", (("b", "b"),)),
        Join("self", "r", "r", (("a", "b"),)),
    ),
    "none",
)
TUPLE = st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 20), *[st.integers(-1, 3)] * 2)


def columns(tuples: Sequence[tuple[int, ...]], width: int) -> TupleColumns:
    relation, start, lasting, *keys = column([x for each in tuples for x in each]).reshape(-1, 5).T.copy()
    values = np.full((len(tuples), width), NULL, dtype=np.int64)
    values[:, :2] = np.where(np.array(keys) < 0, NULL, np.array(keys)).T[:, :width]
    values[relation > 0, 1:] = NULL
    return TupleColumns(relation, start, start + lasting, values, np.arange(len(tuples), dtype=np.int64))


@given(
    st.lists(TUPLE, min_size=6, max_size=14),
    st.lists(st.lists(TUPLE, max_size=4), max_size=2),
    st.integers(0, 45),
    st.sampled_from([0, 3, 1_000]),
)
@examples(80)
def test_neighbours(
    first: list[tuple[int, ...]], more: list[list[tuple[int, ...]]], horizon: int, most: int
) -> None:
    live = LiveTuples(JOINED)
    neighbours = Neighbours(live, JOINED, most, least=1)

    def joins(one: int, number: int, other: int) -> bool:
        sets, tuples = live.key_sets, live.tuples
        value = tuples.keys[one, sets.source[number]]
        known = one != other and value != NULL and value == tuples.keys[other, sets.target[number]]
        ends = edges(JOINED)[number].source, edges(JOINED)[number].target
        together = max(tuples.start[[one, other]]) < min(tuples.end[[one, other]])
        return bool(known and together and ends == tuple(tuples.relation[[one, other]].tolist()))

    def expected(before: int) -> set[tuple[int, int, int]]:
        """(tuple, edge, other) of all joined tuples before a slot that are alive at the same time."""
        numbers = [edge.id for edge in edges(JOINED)]
        return {each for each in product(range(before), numbers, range(before)) if joins(*each)}

    def held(before: int) -> list[tuple[int, int, int]]:
        position, edge, others = neighbours.of(np.arange(before, dtype=np.int64))
        assert (np.diff(position) >= 0).all()
        alive = np.maximum(live.tuples.start[position], live.tuples.start[others]) < np.minimum(
            live.tuples.end[position], live.tuples.end[others]
        )
        rows = zip(position[alive].tolist(), edge[alive].tolist(), others[alive].tolist(), strict=True)
        return sorted(row for row in rows if row[0] != row[2])

    for batch in (first, *more):
        known = len(live)
        live.insert(columns(batch, live.key_sets.width))
        near, far = concat_pairs(list(neighbours.extend(len(live))))
        pairs = sorted(zip(near.tolist(), far.tolist(), strict=True))
        assert pairs == sorted((a, b) for a, _, b in expected(len(live)) if b < a >= known)
        assert held(len(live)) == sorted(expected(len(live)))
        if most == 1_000:
            assert neighbours.pairs == 2 * len(pairs) + len([1 for a, _, b in expected(known)])
    neighbours.remap(live.compact(horizon))
    assert held(len(live)) == sorted(expected(len(live)))
