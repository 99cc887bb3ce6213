"""Rows in blocks are the same rows, however they are grouped or packed."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.arrow_blocks import ArrowBlock
from skws.data.batch import Rows
from skws.data.blocks import Block, ColumnBlock, RowBlock, integers_of
from skws.data.texts import Texts
from skws.store.directory import FollowedTuples
from skws_purging.lifespans import StreamTuple
from skws_schema.model import Row

values = st.one_of(st.integers(-5, 5), st.none(), st.sampled_from([2**63 - 1, -(2**63)]))


# Relation, column, and whether Arrow stores it; then the requested rows, modulo their number.
blocks = st.lists(st.tuples(st.integers(0, 2), st.lists(values, min_size=1, max_size=6), st.booleans()))
numbers = st.lists(st.integers(0, 50), max_size=20)
Described = list[tuple[int, list[int | None], bool]]


def rows_of(described: Described, numbers: list[int]) -> Rows:
    made: list[Block] = [
        ArrowBlock(relation, [pa.array(column, pa.int64())])
        if arrow
        else RowBlock(relation, [(value,) for value in column])
        for relation, column, arrow in described
    ]
    places = [(number, place) for number, block in enumerate(made) for place in range(len(block))]
    chosen = [places[number % len(places)] for number in numbers] if places else []
    block, place = np.array(chosen, dtype=np.int64).reshape(-1, 2).T
    return Rows(block, place, tuple(made))


@given(blocks, numbers)
def test_compact_rows_are_the_same(blocks: Described, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    packed = rows.compact()
    assert list(packed) == list(rows)
    assert [b.relation for b in packed.blocks] == [b.relation for b in rows.blocks]
    asked = np.bincount(packed.block, minlength=len(packed.blocks)).tolist()
    assert all(len(block) <= 2 * count for block, count in zip(packed.blocks, asked, strict=True))


@given(blocks, numbers)
def test_rows_by_relation_include_all_rows(blocks: Described, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    found: dict[int, Row] = {}
    for relation, own, mine, places in rows.by_relation():
        assert {block.relation for block in own} == {relation}
        column = [value for block in own for value in block.values(0)]
        found |= dict(zip(mine.tolist(), [(column[place],) for place in places.tolist()], strict=True))
    assert [found[number] for number in range(len(rows))] == list(rows)


@given(blocks, numbers)
def test_integers_of_several_blocks(blocks: Described, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    for _, own, _, _ in rows.by_relation():
        column = [value for block in own for value in block.values(0)]
        integers = integers_of(own, 0)
        assert (integers is None) == (None in column)
        assert integers is None or integers.tolist() == column


TEXTS = st.text(st.sampled_from(["a", "é", "\0", "\n", "\ud800", "𝄞"]), max_size=4)
COLUMNS = st.tuples(st.lists(TEXTS, min_size=1, max_size=5), st.booleans(), st.booleans())


@given(st.lists(st.lists(st.tuples(st.integers(0, 1), COLUMNS), min_size=1, max_size=4), max_size=4), numbers)
def test_concatenated_columns_are_the_same_rows(
    parts: list[list[tuple[int, tuple[list[str], bool, bool]]]], numbers: list[int]
) -> None:
    """Repeatedly, of some rows or all; searched columns, number 0, become texts if none is NULL."""
    together, expected = Rows.of(np.empty(0, dtype=np.int64), []), list[Row]()
    for part in parts:
        made, rows = [together], list[Row]()
        for relation, (texts, with_null, packed) in part:
            first = [None, *texts[1:]] if with_null else texts
            counted = np.arange(len(texts))
            columns = [first, counted if packed else counted.tolist(), texts]
            rows += zip(first, counted.tolist(), texts, strict=True)
            one = ColumnBlock(relation, columns, searched=(0,))
            made.append(Rows(np.zeros(len(texts), dtype=np.int64), counted, (one,)))
        together, expected = Rows.concat(made), expected + rows
        assert list(together) == expected
        chosen = np.array([number % len(expected) for number in numbers], dtype=np.int64)
        together, expected = together.take(chosen).compact(), [expected[at] for at in chosen.tolist()]
        assert list(together) == expected
    for block, mine, places in together.by_block():
        assert block.rows(places) == [expected[at] for at in mine.tolist()]
        assert [block.values(0)[at] for at in places.tolist()] == [expected[at][0] for at in mine.tolist()]
        shown = Texts.of([block.texts(0)]).at(places)
        assert shown == [expected[at][0] or "" for at in mine.tolist()]
        assert block.integers(0) is None


def test_searched_columns_take_half_the_memory() -> None:
    """As texts instead of Python strings, unless some are NULL."""
    blocks = [ColumnBlock(0, [["alpha", last], [1, 2]], searched=(0,)) for last in ("beta", "gamma")]
    assert isinstance(ColumnBlock.concat(blocks).texts(0), Texts)
    nulls = ColumnBlock(0, [["alpha", None], [1, 2]], searched=(0,))
    assert ColumnBlock.concat([*blocks, nulls]).texts(0) == [
        "alpha",
        "beta",
        "alpha",
        "gamma",
        "alpha",
        None,
    ]
    assert ColumnBlock.concat([ColumnBlock(0, [["alpha"]])] * 2).texts(0) == ["alpha", "alpha"]


def test_other_values_are_not_64_bit_integers() -> None:
    for value in (1.0, "1", None, 2**63, -(2**63) - 1):
        assert integers_of([RowBlock(0, [(1,), (value,)])], 0) is None


@pytest.mark.parametrize("seed", range(20))
def test_tracked_tuples_behave_as_a_dictionary(seed: int) -> None:
    rng = random.Random(seed)
    followed, expected, size = FollowedTuples(), dict[StreamTuple, int](), 0
    gone: list[StreamTuple] = []
    for _ in range(60):
        match rng.randrange(4):
            case 0 | 1:
                size += rng.randrange(1, 4)
                slot = rng.randrange(size)
                if slot not in expected.values():
                    known = StreamTuple(0, (), 0, 1)
                    followed.set(known, slot)
                    expected[known] = slot
            case 2 if expected:
                known = rng.choice(list(expected))
                assert followed.remove(known) == expected.pop(known)
                gone.append(known)
            case _:
                kept = [rng.random() < 0.8 for _ in range(size)]
                slots = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int64)
                followed.renumber(slots)
                gone += [known for known, slot in expected.items() if not kept[slot]]
                expected = {known: int(slots[slot]) for known, slot in expected.items() if kept[slot]}
                size = sum(kept)
        assert len(followed) == len(expected)
        assert {known: followed[known] for known in expected} == expected
        assert {known: slot for slot, known in followed.items()} == expected
        by_slot = {slot: known for known, slot in expected.items()}
        assert [followed.at(slot) for slot in range(size + 3)] == [by_slot.get(s) for s in range(size + 3)]
        assert followed.followed_slots(np.arange(size + 3)) == sorted(by_slot)
        assert not any(known in followed for known in gone)
    with pytest.raises(KeyError):
        followed[StreamTuple(0, (), 0, 1)]
