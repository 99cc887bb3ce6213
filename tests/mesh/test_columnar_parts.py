"""The parts of the columnar mesh: index, filter, tables, sleeping operators."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.columnar import hash_index, store
from skws_mesh.columnar.bitmaps import KeywordBitmaps, LiveBitmaps, WakeStates
from skws_mesh.columnar.columns import Hashes, Ints
from skws_mesh.columnar.hash_index import HashFilter, HashIndex
from skws_mesh.columnar.store import NO_MEMBER, Partials, PartialStore, Table
from tests.strategies import examples


def hashes_of(random: Random, number: int, kinds: int) -> Hashes:
    """Random hashes of ``kinds`` different values, which differ in their leading bits."""
    values = np.array([random.randrange(kinds) for _ in range(number)], dtype=np.uint64)
    return values * np.uint64((1 << 64) // kinds)


def found(index: HashIndex, wanted: Hashes) -> list[tuple[int, int]]:
    positions, payload = index.probe(wanted)
    return sorted(zip(positions.tolist(), payload.tolist(), strict=True))


# The second grows beyond the bits available for payloads, so entries have to make room.
FIRST_PAYLOADS = [0, (1 << 20) - 40]


@pytest.mark.parametrize("merged", [1 << 22, 100])
@given(st.integers(0, 10**6), st.sampled_from(FIRST_PAYLOADS))
@examples(60)
def test_runs_find_what_was_added_and_is_left(merged: int, seed: int, payload: int) -> None:
    """In merged runs, and in runs that are too large to be merged."""
    with patch.object(hash_index, "MERGED", merged):
        check_runs(seed, payload)


def check_runs(seed: int, payload: int) -> None:
    random, index = Random(seed), HashIndex()
    held: dict[int, int] = {}  # payload -> hash
    for step in range(12):
        new = hashes_of(random, random.choice([0, 1, 7, 60, 400]), 50)
        index.add(new, np.arange(payload, payload + len(new), dtype=np.int64))
        held.update(zip(range(payload, payload + len(new)), new.tolist(), strict=True))
        payload += len(new)
        if held and random.random() < 0.3:
            # The oldest are removed, some at random, or both.
            oldest, share = random.choice([0, len(held) // 2]), random.choice([0.6, 1.0])
            kept = [old for place, old in enumerate(held) if place >= oldest and random.random() < share]
            slots = np.full(max(held) + 1, -1, dtype=np.int64)
            slots[kept] = np.arange(len(kept))
            index.remap(slots)
            held = {number: held[old] for number, old in enumerate(kept)}
            payload = len(kept)
        assert len(index) == len(held)
        if random.random() < 0.3:  # it is stored in a file and mapped from there
            stored = index.stored_entries()
            index = HashIndex.from_stored(stored._replace(filter=stored.filter.copy()))
            assert len(index) == len(held)
        if step < 11 and random.random() < 0.4:
            continue  # entries are added, and renumbered again, without a probe in between
        wanted = hashes_of(random, 40, 50)
        by_hash: dict[int, list[int]] = defaultdict(list)
        for number, its_hash in held.items():
            by_hash[its_hash].append(number)
        expected = [(at, n) for at, its_hash in enumerate(wanted.tolist()) for n in by_hash[its_hash]]
        assert found(index, wanted) == sorted(expected)


def test_runs_stay_few_and_their_filter_sparse() -> None:
    random, index = Random(1), HashIndex()
    absent = hashes_of(random, 4000, 1 << 40)
    for step in range(200):
        index.add(hashes_of(random, 50, 1 << 40), np.arange(50 * step, 50 * step + 50, dtype=np.int64) % 5000)
        if step % 50 == 49:
            index.remap(np.where(np.arange(5000) < 100, np.arange(5000), -1))
        assert len(index.runs) <= 12
        # At most one slot in eight is used.
        assert len(index.filter.candidates(absent)) < len(absent) / 6
    assert len(index.filter.candidates(absent)) < len(absent) / 20, "what is gone is in the filter no longer"


def test_a_large_run_stands_in_order_of_more_bits_than_one_digit() -> None:
    random, index = np.random.default_rng(1), HashIndex()
    hashes = random.integers(0, 1 << 64, 150_000, dtype=np.uint64)
    index.add(np.concatenate([hashes, hashes]), np.arange(300_000, dtype=np.int64))
    asked = np.concatenate([hashes[::1000], random.integers(0, 1 << 64, 1000, dtype=np.uint64)])
    assert [run.bits for run in index.runs] == [18]
    assert found(index, asked) == sorted(
        (at, 1000 * at + again) for at in range(150) for again in (0, 150_000)
    )
    few = np.full(300_000, -1)
    few[[1000, 151_000]] = [0, 1]
    index.remap(few)
    assert found(index, asked) == [(1, 0), (1, 1)]
    assert [run.bits for run in index.runs] == [1], "directories go with what they told of"


@given(st.integers(0, 10**6))
@examples(30)
def test_a_table_holds_what_is_kept_and_lets_space_go(seed: int) -> None:
    random = Random(seed)
    table = Table((np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int32)))
    held: list[tuple[int, list[int]]] = []
    next_number = 0
    for _ in range(8):
        new = [(next_number + n, [n, -n]) for n in range(random.choice([0, 1, 300, 5000]))]
        next_number += len(new)
        columns = (
            np.array([n for n, _ in new], dtype=np.int64),
            np.array([p for _, p in new]).reshape(-1, 2),
        )
        assert table.append(columns) == len(held)
        held += new
        # The oldest are removed, some at random, or all.
        first, share = random.randrange(len(held) + 1), random.choice([0.0, 0.5, 1.0])
        kept = [place >= first and random.random() <= share for place in range(len(held))]
        places = table.keep(np.array(kept, dtype=bool))
        held = [row for row, stays in zip(held, kept, strict=True) if stays]
        number = count()
        assert places.tolist() == [next(number) if stays else -1 for stays in kept]
        numbers, pairs = table.columns()
        assert list(zip(numbers.tolist(), pairs.tolist(), strict=True)) == held
        assert pairs.dtype == np.int32
        room = max(len(column.base) for column in table.columns() if column.base is not None)
        assert room <= 4 * max(1024, table.size)


@given(st.integers(0, 10**6), st.integers(1, 6))
@examples(30)
def test_a_filter_that_grows_passes_all_that_it_holds(seed: int, times: int) -> None:
    random, held = Random(seed), HashFilter()
    hashes = hashes_of(random, 300, 1 << 40)
    held.add(hashes)
    for _ in range(times):
        held.grow()
        assert len(held.candidates(hashes)) == len(hashes)
    assert len(held.candidates(hashes_of(random, 2000, 1 << 40))) < 200


def bitmaps(*entries: tuple[int, int, int]) -> KeywordBitmaps:
    columns = [np.array(column, dtype=np.int64) for column in zip(*entries, strict=True)]
    return KeywordBitmaps(*columns) if columns else KeywordBitmaps.none()


def test_a_query_wakes_with_its_last_keyword_and_sleeps_without_one() -> None:
    excluded, sleep = 4, WakeStates(3, 4)
    for query in (0, 3):
        sleep.enrol(query)
    both: Ints = np.array([0, 3])
    assert not sleep.wake(bitmaps((0, 0, 1), (1, 3, 1), (2, 3, excluded))).any()
    assert np.flatnonzero(sleep.wake(bitmaps((3, 3, 2)))).tolist() == [3]
    assert sleep.is_awake(both).tolist() == [False, True]
    assert not sleep.wake(bitmaps((4, 3, 3))).any()  # it is awake
    assert not sleep.reset(bitmaps((4, 3, 3)))
    assert sleep.reset(bitmaps((1, 3, 1), (2, 3, excluded)))
    assert not sleep.is_awake(both).any()
    assert (sleep.keywords(0), sleep.keywords(3)) == (0, 1)


def test_labels_know_of_free_tuples_that_came_after_them() -> None:
    labels = LiveBitmaps()
    labels.append(bitmaps((1, 0, 2), (1, 5, 1)), 2)
    query, slots = np.array([0, 5, 0, 0]), np.array([1, 1, 0, 7])
    assert labels.of(query, slots).tolist() == [2, 1, 0, 0]
    labels.forget(0)
    assert labels.of(query, slots).tolist() == [0, 1, 0, 0]
    labels.remap(np.array([-1, 4, -1]))
    assert labels.of(np.array([5, 5]), np.array([4, 1])).tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_found_by_their_members(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows are indexed and some not yet, while rows are added, end, are dropped, and get other slots."""
    monkeypatch.setattr(store, "_MOST_SCANNED", 3)
    monkeypatch.setattr(store, "_LEAST_INDEXED", 4)
    rng = Random(seed)
    kept, expected = PartialStore(3), list[tuple[int, ...]]()  # the members of each row, and its end
    ends = np.full(12, 100, dtype=np.int64)  # by slot
    for turn in range(60):
        new = [tuple(rng.sample(range(len(ends)), rng.randint(1, 3))) for _ in range(rng.randrange(5))]
        members = np.array([[*row, *[NO_MEMBER] * (3 - len(row))] for row in new], dtype=np.int64)
        column = np.zeros(len(new), dtype=np.int64)
        kept.append(Partials(column, column, members.reshape(-1, 3), column, column + 100).columns())
        expected += new
        slots = np.array(rng.sample(range(len(ends)), rng.randrange(4)), dtype=np.int64)
        found = [row for row, members in enumerate(expected) if set(members) & set(slots.tolist())]
        assert kept.rows_with(slots).tolist() == found
        match rng.randrange(6):
            case 0:
                ends[slots] = turn
                earlier = [row for row in found if kept.partials.end[row] > turn]
                assert kept.end(slots, ends).tolist() == earlier
                assert (kept.partials.end[found] <= turn).all()
            case 1:
                stays = np.array([rng.random() < 0.8 for _ in expected], dtype=bool)
                kept.keep(stays)
                expected = [row for row, there in zip(expected, stays.tolist(), strict=True) if there]
            case 2:
                there = (kept.partials.end > turn).tolist()
                order = rng.sample(range(len(ends)), len(ends))
                kept.compact(turn, np.array(order))
                moved = np.empty_like(ends)
                moved[order] = ends
                ends = moved
                expected = [
                    tuple(order[slot] for slot in row)
                    for row, alive in zip(expected, there, strict=True)
                    if alive
                ]
    assert len(expected) == kept.size
