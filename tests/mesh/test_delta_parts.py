"""The parts of delta joins compared with their definitions by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NULL, Ints, TupleColumns
from skws_mesh.columnar.hash_index import concat_pairs
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.delta.joins import DeltaJoins, WordSearch
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


def entries(words: CarriedWords) -> set[tuple[int, int]]:
    return set(zip(words.slots.tolist(), words.words.tolist(), strict=True))


def check(words: CarriedWords, expected: set[tuple[int, int]], live: int) -> None:
    assert entries(words) == expected
    slots = np.arange(live, dtype=np.int64)
    position, carried_words = words.of(slots)
    assert sorted(zip(position.tolist(), carried_words.tolist(), strict=True)) == sorted(expected)
    assert words.has_words.tolist() == [
        any(slot == live_slot for slot, _ in expected) for live_slot in range(live)
    ]
    all_pairs = [(slot, word) for slot in range(live) for word in range(71)]
    flags = words.contain(column([slot for slot, _ in all_pairs]), column([word for _, word in all_pairs]))
    assert [
        pair for pair, is_contained in zip(all_pairs, flags.tolist(), strict=True) if is_contained
    ] == sorted(expected)


@given(PAIRS, PAIRS, st.sets(st.integers(0, 70)), st.sets(st.integers(0, LIVE - 1)))
@examples(120)
def test_carried_words_follow_insertions_removals_and_remaps(
    first: list[tuple[int, int]], inserted: list[tuple[int, int]], forgotten: set[int], dead: set[int]
) -> None:
    words = CarriedWords()
    first_half = [pair for pair in first if pair[0] < LIVE // 2]
    second_half = [pair for pair in first if pair[0] >= LIVE // 2]
    for pairs, live in ((first_half, LIVE // 2), (second_half, LIVE)):
        words.append(column([slot for slot, _ in pairs]), column([word for _, word in pairs]), live)
    check(words, set(first), LIVE)
    words.insert(column([slot for slot, _ in inserted]), column([word for _, word in inserted]), LIVE)
    check(words, {*first, *inserted}, LIVE)
    words.forget(column(sorted(forgotten)))
    expected = {pair for pair in (*first, *inserted) if pair[1] not in forgotten}
    check(words, expected, LIVE)
    live_slots = [slot for slot in range(LIVE) if slot not in dead]
    new_slots = {slot: new_slot for new_slot, slot in enumerate(live_slots)}
    words.remap(column([new_slots.get(slot, -1) for slot in range(LIVE)]))
    check(words, {(new_slots[slot], word) for slot, word in expected if slot in new_slots}, len(live_slots))


@given(QUERIES, st.sets(st.integers(0, 11)))
@examples(120)
def test_word_pairs_are_found_in_both_directions(queries: list[tuple[int, int]], removed: set[int]) -> None:
    pairs = WordPairs()
    half = len(queries) // 2
    for begin, end in ((0, half), (half, len(queries))):
        part = queries[begin:end]
        numbers = np.arange(begin, end, dtype=np.int64)
        pairs.add(numbers, column([one for one, _ in part]), column([other for _, other in part]))
    active = dict(enumerate(queries))
    for number in sorted(removed & active.keys()):
        pairs.remove(number, *active.pop(number))
    assert len(pairs) == len(active)
    word_pairs = [(one, other) for one in range(7) for other in range(7)]
    position, entry = pairs.between(
        column([one for one, _ in word_pairs]), column([other for _, other in word_pairs])
    )
    matches = sorted(
        (word_pairs[pair_number], query, turned)
        for pair_number, query, turned in zip(
            position.tolist(), pairs.query(entry).tolist(), pairs.is_reversed(entry).tolist(), strict=True
        )
    )
    two_word_queries = {number: query for number, query in active.items() if query[1] >= 0}
    assert matches == sorted(
        [(query, number, False) for number, query in two_word_queries.items()]
        + [((query[1], query[0]), number, True) for number, query in two_word_queries.items()]
    )
    position, query = pairs.singles(np.arange(7, dtype=np.int64))
    single_word_queries = {number: one for number, (one, other) in active.items() if other < 0}
    assert sorted(zip(query.tolist(), position.tolist(), strict=True)) == sorted(single_word_queries.items())


@pytest.mark.parametrize("stride", [1, 1 << 14])
@given(PAIRS, st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=300))
@examples(40)
def test_partner_words_are_never_missed(
    stride: int, tuple_words: list[tuple[int, int]], query_words: list[tuple[int, int]]
) -> None:
    """Words with distant numbers share bits, so there may be too many partners, but never too few."""
    words, pairs = CarriedWords(), WordPairs()
    partners = Partners(words, pairs)
    words.append(
        column([slot for slot, _ in tuple_words]), column([word * stride for _, word in tuple_words]), LIVE
    )
    pairs.add(
        np.arange(len(query_words), dtype=np.int64),
        column([one * stride for one, _ in query_words]),
        column([other * stride for _, other in query_words]),
    )
    partners.extend(LIVE)
    slots, other_slots = np.divmod(np.arange(LIVE * LIVE, dtype=np.int64), LIVE)
    position, partner_words = partners.candidates(slots, other_slots)
    passed_triples = set(
        zip(slots[position].tolist(), other_slots[position].tolist(), partner_words.tolist(), strict=True)
    )
    both_directions = {*query_words, *((other, one) for one, other in query_words)}
    for slot, word in tuple_words:
        partner_set = {partner for one, partner in both_directions if one == word}
        assert {
            (slot, other, partner_word * stride)
            for other, partner_word in tuple_words
            if partner_word in partner_set
        } <= passed_triples
    bits = {word * stride % 64 for pair in query_words for word in pair}
    assert all(word % 64 in bits for _, _, word in passed_triples)


def test_rows_of_partners_stay_narrow_while_queries_come_and_go() -> None:
    """The bits of rows that are rebuilt are not counted again, nor those of dropped tuples."""
    words, pairs = CarriedWords(), WordPairs()
    partners = Partners(words, pairs)
    slots = np.arange(2_000, dtype=np.int64)

    def is_narrow() -> bool:
        """Words 1,024 apart share a bit in the narrowest rows only."""
        _, partner_words = partners.candidates(slots[1:2], slots[:1])
        return 1_025 in partner_words.tolist()

    words.append(np.append(np.repeat(slots, 2), 0), np.append(np.tile([0, 1], len(slots)), 1_025), len(slots))
    partners.extend(len(slots))
    for number in range(100):
        pairs.add(column([number]), column([0]), column([1]))
        partners.renew(slots)
        assert is_narrow()
        pairs.remove(number, 0, 1)
    pairs.add(column([100]), column([0]), column([1]))
    remapping = np.where(slots == 0, 0, slots - 999)  # all but the first and the last thousand are dropped
    remapping[1:1_000] = -1
    for _ in range(100):
        words.remap(remapping)
        partners.remap(remapping)
        new = slots[1_001:]
        words.append(np.repeat(new, 2), np.tile([0, 1], len(new)), len(slots))
        partners.extend(len(slots))
        assert is_narrow()


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
    relation, start, length, *keys = column([x for tuple_ in tuples for x in tuple_]).reshape(-1, 5).T.copy()
    values = np.full((len(tuples), width), NULL, dtype=np.int64)
    values[:, :2] = np.where(np.array(keys) < 0, NULL, np.array(keys)).T[:, :width]
    values[relation > 0, 1:] = NULL
    return TupleColumns(relation, start, start + length, values, np.arange(len(tuples), dtype=np.int64))


@given(
    st.lists(TUPLE, min_size=6, max_size=14),
    st.lists(st.lists(TUPLE, max_size=4), max_size=2),
    st.integers(0, 45),
    st.sampled_from([0, 3, 1_000]),
)
@examples(80)
def test_neighbours_equal_all_joined_live_tuples(
    first: list[tuple[int, ...]], later_batches: list[list[tuple[int, ...]]], horizon: int, hub_limit: int
) -> None:
    live = LiveTuples(JOINED)
    neighbours = Neighbours(live, JOINED, hub_limit, least=1)

    def joins(one: int, number: int, other: int) -> bool:
        sets, tuples = live.key_sets, live.tuples
        value = tuples.keys[one, sets.source[number]]
        has_equal_key = one != other and value != NULL and value == tuples.keys[other, sets.target[number]]
        end_relations = edges(JOINED)[number].source, edges(JOINED)[number].target
        is_simultaneous = max(tuples.start[[one, other]]) < min(tuples.end[[one, other]])
        return bool(
            has_equal_key
            and is_simultaneous
            and end_relations == tuple(tuples.relation[[one, other]].tolist())
        )

    def expected(before: int) -> set[tuple[int, int, int]]:
        """(tuple, edge, other) of all joined tuples before a slot that are alive at the same time."""
        numbers = [edge.id for edge in edges(JOINED)]
        return {triple for triple in product(range(before), numbers, range(before)) if joins(*triple)}

    def entries(before: int) -> list[tuple[int, int, int]]:
        position, edge, others = neighbours.of(np.arange(before, dtype=np.int64))
        assert (np.diff(position) >= 0).all()
        alive = np.maximum(live.tuples.start[position], live.tuples.start[others]) < np.minimum(
            live.tuples.end[position], live.tuples.end[others]
        )
        rows = zip(position[alive].tolist(), edge[alive].tolist(), others[alive].tolist(), strict=True)
        return sorted(row for row in rows if row[0] != row[2])

    for batch in (first, *later_batches):
        known_count = len(live)
        live.insert(columns(batch, live.key_sets.width))
        left, right = concat_pairs(list(neighbours.extend(len(live))))
        pairs = sorted(zip(left.tolist(), right.tolist(), strict=True))
        assert pairs == sorted((a, b) for a, _, b in expected(len(live)) if b < a >= known_count)
        assert entries(len(live)) == sorted(expected(len(live)))
        if hub_limit == 1_000:
            assert neighbours.pairs == 2 * len(pairs) + len([1 for a, _, b in expected(known_count)])
    neighbours.remap(live.compact(horizon))
    assert entries(len(live)) == sorted(expected(len(live)))


def test_pairs_are_stored_again_after_a_burst() -> None:
    live = LiveTuples(JOINED)
    neighbours = Neighbours(live, JOINED, most=4, least=1)
    burst = [(n % 2, n, 50, 1, -1) for n in range(60)]
    later = [(n % 2, 100 + n, 500, n // 2, -1) for n in range(40)]
    numbers = []
    for batch in (burst, later):
        live.insert(columns(batch, live.key_sets.width))
        list(neighbours.extend(len(live)))
        numbers.append(neighbours.pairs)
    neighbours.remap(live.compact(80))
    numbers.append(neighbours.pairs)
    neighbours.remap(live.compact(110))
    numbers.append(neighbours.pairs)
    assert numbers[:2] == [0, 0]
    _, _, partners = neighbours.of(np.arange(len(live), dtype=np.int64))
    assert (numbers[2], numbers[3], len(partners)) == (0, 40, 40)


def test_the_walks_of_a_removed_query_are_no_longer_made() -> None:
    """Walks, and the columns of results, are as long as the largest network of the present queries.

    A query for one word has results of one tuple.
    """
    live = LiveTuples(JOINED)
    joins, widths = DeltaJoins(live, JOINED), []
    for number, words, size in ((0, (0, 1), 2), (1, (0, 1), 5), (2, (0, 1), 5), (3, (0, 1), 3), (4, (0,), 9)):
        joins.ask({number: WordSearch(words, size)})
        joins.add([number], KeywordBitmaps.none())
    for removed in (1, 2, 3):
        joins.remove(removed)
        batch = columns([(1, removed, 9, 1, 1)], live.key_sets.width)
        inserted = live.insert(batch)
        slots, ones = column([inserted.first] * 2), column([1, 1])
        results = joins.insert(inserted, KeywordBitmaps(slots, column([0, 1]), ones))
        assert 0 in results.query.tolist()
        widths.append(results.members.shape[1])
    assert widths == [5, 3, 2]
