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


# Blocks: a relation, a column, and true if Arrow stores it. Numbers: those of rows, modulo their count.
blocks = st.lists(st.tuples(st.integers(0, 2), st.lists(values, min_size=1, max_size=6), st.booleans()))
numbers = st.lists(st.integers(0, 50), max_size=20)
BlockColumns = list[tuple[int, list[int | None], bool]]


def rows_of(columns: BlockColumns, numbers: list[int]) -> Rows:
    row_blocks: list[Block] = [
        ArrowBlock(relation, [pa.array(column, pa.int64())])
        if arrow
        else RowBlock(relation, [(value,) for value in column])
        for relation, column, arrow in columns
    ]
    positions = [(number, place) for number, block in enumerate(row_blocks) for place in range(len(block))]
    chosen_positions = [positions[number % len(positions)] for number in numbers] if positions else []
    block, place = np.array(chosen_positions, dtype=np.int64).reshape(-1, 2).T
    return Rows(block, place, tuple(row_blocks))


@given(blocks, numbers)
def test_compact_rows_are_the_same(blocks: BlockColumns, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    compacted = rows.compact()
    assert list(compacted) == list(rows)
    assert [b.relation for b in compacted.blocks] == [b.relation for b in rows.blocks]
    counts = np.bincount(compacted.block, minlength=len(compacted.blocks)).tolist()
    assert all(len(block) <= 2 * count for block, count in zip(compacted.blocks, counts, strict=True))


@given(blocks, numbers)
def test_rows_by_relation_include_all_rows(blocks: BlockColumns, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    rows_by_number: dict[int, Row] = {}
    for relation, relation_blocks, numbers_of_relation, positions in rows.by_relation():
        assert {block.relation for block in relation_blocks} == {relation}
        column = [value for block in relation_blocks for value in block.values(0)]
        rows_by_number |= dict(
            zip(numbers_of_relation.tolist(), [(column[place],) for place in positions.tolist()], strict=True)
        )
    assert [rows_by_number[number] for number in range(len(rows))] == list(rows)


@given(blocks, numbers)
def test_integers_of_several_blocks(blocks: BlockColumns, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    for _, relation_blocks, _, _ in rows.by_relation():
        column = [value for block in relation_blocks for value in block.values(0)]
        integers = integers_of(relation_blocks, 0)
        assert (integers is None) == (None in column)
        assert integers is None or integers.tolist() == column


TEXTS = st.text(st.sampled_from(["a", "é", "\0", "\n", "\ud800", "𝄞"]), max_size=4)
COLUMNS = st.tuples(st.lists(TEXTS, min_size=1, max_size=5), st.booleans(), st.booleans())


@given(st.lists(st.lists(st.tuples(st.integers(0, 1), COLUMNS), min_size=1, max_size=4), max_size=4), numbers)
def test_concatenated_columns_are_the_same_rows(
    parts: list[list[tuple[int, tuple[list[str], bool, bool]]]], numbers: list[int]
) -> None:
    """All rows or some are taken between concatenations; column 0 is searched, and some have NULLs."""
    combined, expected = Rows.of(np.empty(0, dtype=np.int64), []), list[Row]()
    for part in parts:
        pieces, rows = [combined], list[Row]()
        for relation, (texts, with_null, packed) in part:
            first = [None, *texts[1:]] if with_null else texts
            numbering = np.arange(len(texts))
            columns = [first, numbering if packed else numbering.tolist(), texts]
            rows += zip(first, numbering.tolist(), texts, strict=True)
            block_of_texts = ColumnBlock(relation, columns, searched=(0,))
            pieces.append(Rows(np.zeros(len(texts), dtype=np.int64), numbering, (block_of_texts,)))
        combined, expected = Rows.concat(pieces), expected + rows
        assert list(combined) == expected
        selection = np.array([number % len(expected) for number in numbers], dtype=np.int64)
        combined, expected = (
            combined.take(selection).compact(),
            [expected[row_number] for row_number in selection.tolist()],
        )
        assert list(combined) == expected
    for block, row_numbers, positions in combined.by_block():
        assert block.rows(positions) == [expected[row_number] for row_number in row_numbers.tolist()]
        assert [block.values(0)[row_number] for row_number in positions.tolist()] == [
            expected[row_number][0] for row_number in row_numbers.tolist()
        ]
        texts_at = Texts.of([block.texts(0)]).at(positions)
        assert texts_at == [expected[row_number][0] or "" for row_number in row_numbers.tolist()]
        assert block.integers(0) is None


def test_searched_columns_take_half_the_memory() -> None:
    """Unless some values are NULL, they are stored as ``Texts`` instead of Python strings."""
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
    tracked, expected, size = FollowedTuples(), dict[StreamTuple, int](), 0
    untracked: list[StreamTuple] = []
    for _ in range(60):
        match rng.randrange(4):
            case 0 | 1:
                size += rng.randrange(1, 4)
                slot = rng.randrange(size)
                if slot not in expected.values():
                    stream_tuple = StreamTuple(0, (), 0, 1)
                    tracked.set(stream_tuple, slot)
                    expected[stream_tuple] = slot
            case 2 if expected:
                stream_tuple = rng.choice(list(expected))
                assert tracked.remove(stream_tuple) == expected.pop(stream_tuple)
                untracked.append(stream_tuple)
            case _:
                is_kept = [rng.random() < 0.8 for _ in range(size)]
                slots = np.where(is_kept, np.cumsum(is_kept) - 1, -1).astype(np.int64)
                tracked.renumber(slots)
                untracked += [stream_tuple for stream_tuple, slot in expected.items() if not is_kept[slot]]
                expected = {
                    stream_tuple: int(slots[slot]) for stream_tuple, slot in expected.items() if is_kept[slot]
                }
                size = sum(is_kept)
        assert len(tracked) == len(expected)
        assert {stream_tuple: tracked[stream_tuple] for stream_tuple in expected} == expected
        assert {stream_tuple: slot for slot, stream_tuple in tracked.items()} == expected
        by_slot = {slot: stream_tuple for stream_tuple, slot in expected.items()}
        assert [tracked.at(slot) for slot in range(size + 3)] == [by_slot.get(s) for s in range(size + 3)]
        assert tracked.followed_slots(np.arange(size + 3)) == sorted(by_slot)
        assert not any(stream_tuple in tracked for stream_tuple in untracked)
    with pytest.raises(KeyError):
        tracked[StreamTuple(0, (), 0, 1)]
