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

from skws_mesh.columnar import hash_index
from skws_mesh.columnar.bitmaps import KeywordBitmaps, LiveBitmaps, WakeStates
from skws_mesh.columnar.columns import Hashes, Ints
from skws_mesh.columnar.hash_index import HashFilter, HashIndex
from skws_mesh.columnar.store import NO_MEMBER, Partials, PartialStore, Table
from tests.strategies import examples


def hashes_of(random: Random, number: int, kinds: int) -> Hashes:
    """Random hashes of ``kinds`` different values, which differ in their leading bits."""
    values = np.array([random.randrange(kinds) for _ in range(number)], dtype=np.uint64)
    return values * np.uint64((1 << 64) // kinds)


def probe_results(index: HashIndex, hashes: Hashes) -> list[tuple[int, int]]:
    positions, payload = index.probe(hashes)
    return sorted(zip(positions.tolist(), payload.tolist(), strict=True))


# From the second, payloads outgrow the bits reserved for them, so entries are rearranged.
FIRST_PAYLOADS = [0, (1 << 20) - 40]


@pytest.mark.parametrize("merged", [1 << 22, 100])
@given(st.integers(0, 10**6), st.sampled_from(FIRST_PAYLOADS))
@examples(60)
def test_a_probe_finds_the_remaining_entries(merged: int, seed: int, payload: int) -> None:
    """In merged runs and in runs that are too large to be merged."""
    with patch.object(hash_index, "MERGED", merged):
        check_runs(seed, payload)


def check_runs(seed: int, payload: int) -> None:
    random, index = Random(seed), HashIndex()
    hash_by_payload: dict[int, int] = {}  # payload -> hash
    for step in range(12):
        new = hashes_of(random, random.choice([0, 1, 7, 60, 400]), 50)
        index.add(new, np.arange(payload, payload + len(new), dtype=np.int64))
        hash_by_payload.update(zip(range(payload, payload + len(new)), new.tolist(), strict=True))
        payload += len(new)
        if hash_by_payload and random.random() < 0.3:
            # The oldest entries are removed, random ones, or both.
            oldest, share = random.choice([0, len(hash_by_payload) // 2]), random.choice([0.6, 1.0])
            kept_payloads = [
                old_payload
                for rank, old_payload in enumerate(hash_by_payload)
                if rank >= oldest and random.random() < share
            ]
            slots = np.full(max(hash_by_payload) + 1, -1, dtype=np.int64)
            slots[kept_payloads] = np.arange(len(kept_payloads))
            index.remap(slots)
            hash_by_payload = {
                number: hash_by_payload[old_payload] for number, old_payload in enumerate(kept_payloads)
            }
            payload = len(kept_payloads)
        assert len(index) == len(hash_by_payload)
        if random.random() < 0.3:  # the index is stored and read back
            stored_index = index.stored_entries()
            index = HashIndex.from_stored(stored_index._replace(filter=stored_index.filter.copy()))
            assert len(index) == len(hash_by_payload)
        if step < 11 and random.random() < 0.4:
            continue  # entries are added, and renumbered again, without a probe in between
        probe_hashes = hashes_of(random, 40, 50)
        by_hash: dict[int, list[int]] = defaultdict(list)
        for number, entry_hash in hash_by_payload.items():
            by_hash[entry_hash].append(number)
        expected = [
            (position, n)
            for position, entry_hash in enumerate(probe_hashes.tolist())
            for n in by_hash[entry_hash]
        ]
        assert probe_results(index, probe_hashes) == sorted(expected)


def test_index_runs_stay_few_and_the_filter_sparse() -> None:
    random, index = Random(1), HashIndex()
    absent = hashes_of(random, 4000, 1 << 40)
    for step in range(200):
        index.add(hashes_of(random, 50, 1 << 40), np.arange(50 * step, 50 * step + 50, dtype=np.int64) % 5000)
        if step % 50 == 49:
            index.remap(np.where(np.arange(5000) < 100, np.arange(5000), -1))
        assert len(index.runs) <= 12
        # At most one slot in eight is used.
        assert len(index.filter.candidates(absent)) < len(absent) / 6
    assert len(index.filter.candidates(absent)) < len(absent) / 20, (
        "removed hashes are no longer in the filter"
    )


def test_a_large_run_is_sorted_by_more_than_one_digit() -> None:
    random, index = np.random.default_rng(1), HashIndex()
    hashes = random.integers(0, 1 << 64, 150_000, dtype=np.uint64)
    index.add(np.concatenate([hashes, hashes]), np.arange(300_000, dtype=np.int64))
    probe_hashes = np.concatenate([hashes[::1000], random.integers(0, 1 << 64, 1000, dtype=np.uint64)])
    assert [run.bits for run in index.runs] == [18]
    assert probe_results(index, probe_hashes) == sorted(
        (position, 1000 * position + offset) for position in range(150) for offset in (0, 150_000)
    )
    slots = np.full(300_000, -1)
    slots[[1000, 151_000]] = [0, 1]
    index.remap(slots)
    assert probe_results(index, probe_hashes) == [(1, 0), (1, 1)]
    assert [run.bits for run in index.runs] == [1], "the directory shrinks with the entries"


@given(st.integers(0, 10**6))
@examples(30)
def test_a_table_contains_the_kept_rows_and_releases_space(seed: int) -> None:
    random = Random(seed)
    table = Table((np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int32)))
    rows: list[tuple[int, list[int]]] = []
    next_number = 0
    for _ in range(8):
        new = [(next_number + n, [n, -n]) for n in range(random.choice([0, 1, 300, 5000]))]
        next_number += len(new)
        columns = (
            np.array([n for n, _ in new], dtype=np.int64),
            np.array([p for _, p in new]).reshape(-1, 2),
        )
        assert table.append(columns) == len(rows)
        rows += new
        # The oldest rows are removed, random ones, or all.
        first, share = random.randrange(len(rows) + 1), random.choice([0.0, 0.5, 1.0])
        mask = [place >= first and random.random() <= share for place in range(len(rows))]
        new_places = table.keep(np.array(mask, dtype=bool))
        rows = [row for row, is_kept in zip(rows, mask, strict=True) if is_kept]
        number = count()
        assert new_places.tolist() == [next(number) if is_kept else -1 for is_kept in mask]
        numbers, pairs = table.columns()
        assert list(zip(numbers.tolist(), pairs.tolist(), strict=True)) == rows
        assert pairs.dtype == np.int32
        capacity = max(len(column.base) for column in table.columns() if column.base is not None)
        assert capacity <= 4 * max(1024, table.size)


@given(st.integers(0, 10**6), st.integers(1, 6))
@examples(30)
def test_a_growing_filter_passes_all_its_hashes(seed: int, times: int) -> None:
    random, hash_filter = Random(seed), HashFilter()
    hashes = hashes_of(random, 300, 1 << 40)
    hash_filter.add(hashes)
    for _ in range(times):
        hash_filter.grow()
        assert len(hash_filter.candidates(hashes)) == len(hashes)
    assert len(hash_filter.candidates(hashes_of(random, 2000, 1 << 40))) < 200


def bitmaps(*entries: tuple[int, int, int]) -> KeywordBitmaps:
    columns = [np.array(column, dtype=np.int64) for column in zip(*entries, strict=True)]
    return KeywordBitmaps(*columns) if columns else KeywordBitmaps.none()


def test_a_query_is_awake_while_all_its_keywords_are_present() -> None:
    excluded, sleep = 4, WakeStates(3, 4)
    for query in (0, 3):
        sleep.enrol(query)
    queries: Ints = np.array([0, 3])
    assert not sleep.wake(bitmaps((0, 0, 1), (1, 3, 1), (2, 3, excluded))).any()
    assert np.flatnonzero(sleep.wake(bitmaps((3, 3, 2)))).tolist() == [3]
    assert sleep.is_awake(queries).tolist() == [False, True]
    assert not sleep.wake(bitmaps((4, 3, 3))).any()  # it is awake
    assert not sleep.reset(bitmaps((4, 3, 3)))
    assert sleep.reset(bitmaps((1, 3, 1), (2, 3, excluded)))
    assert not sleep.is_awake(queries).any()
    assert (sleep.keywords(0), sleep.keywords(3)) == (0, 1)


def test_labels_cover_later_tuples_without_keywords() -> None:
    labels = LiveBitmaps()
    labels.append(bitmaps((1, 0, 2), (1, 5, 1)), 2)
    query, slots = np.array([0, 5, 0, 0]), np.array([1, 1, 0, 7])
    assert labels.of(query, slots).tolist() == [2, 1, 0, 0]
    labels.forget(0)
    assert labels.of(query, slots).tolist() == [0, 1, 0, 0]
    labels.remap(np.array([-1, 4, -1]))
    assert labels.of(np.array([5, 5]), np.array([4, 1])).tolist() == [1, 0]


@pytest.mark.check
@pytest.mark.parametrize("seed", range(20))
def test_partial_rows_are_found_by_their_members(seed: int) -> None:
    """Even if they are not yet indexed, while rows are added, ended, dropped and renumbered."""
    rng = Random(seed)
    partials = PartialStore(3, most_scanned=3, least_indexed=4)
    expected: list[tuple[int, ...]] = []  # the members of each row
    ends = np.full(12, 100, dtype=np.int64)  # by slot
    for now in range(60):
        new = [tuple(rng.sample(range(len(ends)), rng.randint(1, 3))) for _ in range(rng.randrange(5))]
        members = np.array([[*row, *[NO_MEMBER] * (3 - len(row))] for row in new], dtype=np.int64)
        column = np.zeros(len(new), dtype=np.int64)
        partials.append(Partials(column, column, members.reshape(-1, 3), column, column + 100).columns())
        expected += new
        slots = np.array(rng.sample(range(len(ends)), rng.randrange(4)), dtype=np.int64)
        matching_rows = [row for row, members in enumerate(expected) if set(members) & set(slots.tolist())]
        assert partials.rows_with(slots).tolist() == matching_rows
        match rng.randrange(6):
            case 0:
                ends[slots] = now
                ended_rows = [row for row in matching_rows if partials.partials.end[row] > now]
                assert partials.end(slots, ends).tolist() == ended_rows
                assert (partials.partials.end[matching_rows] <= now).all()
            case 1:
                mask = np.array([rng.random() < 0.8 for _ in expected], dtype=bool)
                partials.keep(mask)
                expected = [row for row, is_kept in zip(expected, mask.tolist(), strict=True) if is_kept]
            case 2:
                alive_mask = (partials.partials.end > now).tolist()
                order = rng.sample(range(len(ends)), len(ends))
                partials.compact(now, np.array(order))
                new_ends = np.empty_like(ends)
                new_ends[order] = ends
                ends = new_ends
                expected = [
                    tuple(order[slot] for slot in row)
                    for row, is_alive in zip(expected, alive_mask, strict=True)
                    if is_alive
                ]
    assert len(expected) == partials.size
