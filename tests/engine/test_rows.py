"""Rows in blocks: however they are grouped or packed, they stay the same rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.model import Row
from skws.batches import Rows
from skws.blocks import ArrowBlock, Block, RowBlock, integers_of

values = st.one_of(st.integers(-5, 5), st.none(), st.sampled_from([2**63 - 1, -(2**63)]))


# Relation, column, and if it is kept by Arrow; then which rows are asked for, modulo their number.
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
@settings(deadline=None)  # Arrow takes long to load
def test_packed_rows_are_the_same(blocks: Described, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    packed = rows.packed()
    assert list(packed) == list(rows)
    assert [b.relation for b in packed.blocks] == [b.relation for b in rows.blocks]
    asked = np.bincount(packed.block, minlength=len(packed.blocks)).tolist()
    assert all(len(block) <= 2 * count for block, count in zip(packed.blocks, asked, strict=True))


@given(blocks, numbers)
@settings(deadline=None)  # Arrow takes long to load
def test_rows_by_relation_are_all_rows(blocks: Described, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    found: dict[int, Row] = {}
    for relation, own, mine, places in rows.by_relation():
        assert {block.relation for block in own} == {relation}
        column = [value for block in own for value in block.values(0)]
        found |= dict(zip(mine.tolist(), [(column[place],) for place in places.tolist()], strict=True))
    assert [found[number] for number in range(len(rows))] == list(rows)


@given(blocks, numbers)
@settings(deadline=None)  # Arrow takes long to load
def test_integers_of_several_blocks(blocks: Described, numbers: list[int]) -> None:
    rows = rows_of(blocks, numbers)
    for _, own, _, _ in rows.by_relation():
        column = [value for block in own for value in block.values(0)]
        integers = integers_of(own, 0)
        assert (integers is None) == (None in column)
        assert integers is None or integers.tolist() == column


def test_what_are_no_integers_of_64_bits() -> None:
    for value in (1.0, "1", None, 2**63, -(2**63) - 1):
        assert integers_of([RowBlock(0, [(1,), (value,)])], 0) is None
