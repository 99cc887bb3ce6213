"""Batches of records are the same after a round trip through bytes, with arrays as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Ints, Record, RecordBatch, Rows, concat_batches
from skws.data.blocks import ColumnBlock
from skws.data.packing import decode, encode
from skws.index.values import JoinValues, identity_values
from skws_mesh.columnar.live import KeySets
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema, Value
from tests.strategies import examples

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
ROWS = st.one_of(
    st.tuples(st.integers(0, 3), VALUES),
    st.tuples(st.text(max_size=3), st.booleans()),
    st.tuples(VALUES, VALUES),
)
RECORDS = st.one_of(
    st.builds(Record, st.integers(0, 2), st.integers(0, 1 << 60), ROWS, st.booleans()),
    st.builds(Record.truncation, st.integers(0, 2), st.integers(0, 1 << 60)),
)


def round_trip(batch: RecordBatch) -> RecordBatch:
    return decode(encode(batch))[0]


def typed_records(batch: RecordBatch) -> list[tuple[object, ...]]:
    """Records with the types of their values, since 1, 1.0 and true are equal."""
    return [(*record, *map(type, record.row)) for record in batch.records()]


@given(st.lists(RECORDS, max_size=12))
@examples(300)
def test_batches_of_rows_survive_a_round_trip(records: list[Record]) -> None:
    batch = RecordBatch.of(records)
    unpacked = round_trip(batch)
    assert typed_records(unpacked) == typed_records(batch)
    assert unpacked.truncations().tolist() == batch.truncations().tolist()
    assert typed_records(round_trip(unpacked)) == typed_records(batch)


@given(st.data())
@examples(100)
def test_selected_rows_of_columns_survive_a_round_trip(data: st.DataObject) -> None:
    columns: list[list[Value]] = data.draw(
        st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=1, max_size=3)
    )
    rows = RecordBatch.of([Record(0, time, ("", 0)) for time in range(6)])
    batch = RecordBatch(
        rows.relation,
        rows.time,
        type(rows.rows)(rows.rows.block, rows.rows.place, (ColumnBlock(0, columns),)),
    )
    selection = batch.take(np.array(data.draw(st.permutations(range(6))))[:4])
    assert typed_records(round_trip(selection)) == typed_records(selection)


@given(st.lists(RECORDS, max_size=30), st.booleans(), st.data())
def test_divided_batches_have_the_records_of_each_part(
    records: list[Record], packed: bool, data: st.DataObject
) -> None:
    batch = RecordBatch.of(records)
    batch = round_trip(batch) if packed else batch
    places = st.sets(st.integers(0, len(records) - 1)) if records else st.just(set[int]())
    parts = [
        np.array(sorted(places_of_part), dtype=np.int64)
        for places_of_part in data.draw(st.lists(places, min_size=1, max_size=4))
    ]
    divided = batch.divided(parts)
    for part, divided_part in zip(parts, divided, strict=True):
        expected = [records[place] for place in part.tolist()]
        assert list(divided_part.records()) == expected
        assert list(round_trip(divided_part).records()) == expected


@given(st.lists(st.tuples(st.lists(RECORDS, min_size=1, max_size=4), st.booleans()), max_size=5), st.data())
@examples(300)
def test_mixed_rows_and_columns_survive_a_round_trip(
    parts: list[tuple[list[Record], bool]], data: st.DataObject
) -> None:
    """As when rows arrive a few at a time, and the first ones are already columns."""
    batches = [
        RecordBatch.of([record for record in records_of_part if record.row]) for records_of_part, _ in parts
    ]
    batches = [
        round_trip(batch) if packed else batch for batch, (_, packed) in zip(batches, parts, strict=True)
    ]
    batch = concat_batches(batches) if batches else RecordBatch.of([])
    assert typed_records(round_trip(batch)) == typed_records(batch)
    records_of_part = batch.take(
        np.array(data.draw(st.permutations(range(len(batch)))), dtype=np.int64)[: len(batch) // 2]
    )
    assert typed_records(round_trip(records_of_part)) == typed_records(records_of_part)


def test_an_empty_block_survives_a_round_trip() -> None:
    """Such as the block of an empty part of a file."""
    batch = RecordBatch.of([Record(0, 7, ("a", 1))])
    empty = replace(
        batch,
        rows=Rows(batch.rows.block + 1, batch.rows.place, (ColumnBlock(0, [[], []]), *batch.rows.blocks)),
    )
    assert typed_records(round_trip(empty)) == typed_records(batch)


def column(values: st.SearchStrategy[Value]) -> st.SearchStrategy[list[Value]]:
    return st.lists(values, min_size=6, max_size=6)


COLUMNS = st.one_of(
    *(
        column(st.one_of(st.none(), kind) if nulls else kind)
        for nulls in (False, True)
        for kind in (
            st.integers(-200, 200),
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.floats(allow_nan=False),
            st.booleans(),
            st.text(max_size=4),
        )
    ),
    column(st.none()),
    column(VALUES),
)


@given(st.lists(COLUMNS, min_size=1, max_size=3), st.lists(st.integers(0, 5), max_size=8))
@examples(400)
def test_packed_columns_equal_their_lists(columns: list[list[Value]], selection: list[int]) -> None:
    """Also in parts, in another order, and concatenated."""
    rows = RecordBatch.of([Record(0, column, ("",)) for column in range(6)])
    batch = replace(rows, rows=Rows(rows.rows.block, rows.rows.place, (ColumnBlock(0, columns),)))
    (unpacked,) = round_trip(batch).rows.blocks
    places = np.array(selection, dtype=np.int64)
    concatenated = ColumnBlock.concat(
        [block for block in (unpacked.take(places), unpacked) if isinstance(block, ColumnBlock)]
    )
    for column, values in enumerate(columns):
        selected = [values[place] for place in selection]
        assert typed_values(unpacked.values(column)) == typed_values(values)
        assert typed_values(unpacked.values_at(column, places)) == typed_values(selected)
        assert typed_values(unpacked.take(places).values(column)) == typed_values(selected)
        assert typed_values(concatenated.values(column)) == typed_values([*selected, *values])
        assert unpacked.present(column).tolist() == [value is not None for value in values]
        assert unpacked.present_at(column, places).tolist() == [value is not None for value in selected]
        # Of several columns, so that NULL has an identity.
        identities, _ = identity_values([unpacked], [column, column])
        assert np.array_equal(identities, identity_values([ColumnBlock(0, columns)], [column, column])[0])
        numbers = unpacked.numbers(column)
        if numbers is not None:
            present_values = [value for value, present in zip(*map(list, numbers), strict=True) if present]
            assert present_values == [value for value in values if value is not None]
    assert unpacked.rows(places) == [tuple(values[place] for values in columns) for place in selection]


@given(st.lists(st.integers(1, 9), max_size=9), st.integers(1, 6), st.integers(0, 10**6))
@examples(200)
def test_parts_of_a_batch_keep_whole_blocks(sizes: list[int], size: int, seed: int) -> None:
    """Unless blocks are mixed, or more than twice as large as a part."""
    blocks = [
        RecordBatch.of([Record(0, n, (n, f"{number}")) for n in range(length)])
        for number, length in enumerate(sizes)
    ]
    batch = concat_batches(blocks) if blocks else RecordBatch.of([])
    parts = list(batch.parts(size))
    assert [r for part in parts for r in part.records()] == list(batch.records())
    assert all(0 < len(part) <= 2 * size for part in parts)
    if all(length <= size for length in sizes):
        assert sum(len(part.rows.blocks) for part in parts) == len(sizes)
    mixed = batch.take(np.random.default_rng(seed).permutation(len(batch)))
    assert [r for part in mixed.parts(size) for r in part.records()] == list(mixed.records())


KEYED = Schema(
    "keyed",
    tuple(Relation(name, (Attribute("x", AttributeType.INTEGER),), search=()) for name in ("one", "other")),
    (Join("join", "one", "other", (("x", "x"),)),),
)
KEYS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 62]))


@given(st.lists(KEYS, min_size=1, max_size=8), st.integers(0, 8))
@examples(300)
def test_join_values_of_packed_columns_equal_those_of_lists(keys: list[Value], first: int) -> None:
    """Even if only some of several blocks are arrays."""
    batch = RecordBatch.of([Record(0, time, (key,)) for time, key in enumerate(keys)])
    head, tail = batch.take(slice(first)), batch.take(slice(first, None))
    expected = join_values(batch)
    assert np.array_equal(join_values(round_trip(batch)), expected)
    assert np.array_equal(join_values(concat_batches([round_trip(head), tail])), expected)
    assert np.array_equal(join_values(concat_batches([head, round_trip(tail)])), expected)


def join_values(batch: RecordBatch) -> Ints:
    return JoinValues(KEYED, KeySets(KEYED)).of(batch.rows)


def typed_values(values: Iterable[Value]) -> list[tuple[type, Value]]:
    return [(type(value), value) for value in values]


def test_small_numbers_are_packed_compactly() -> None:
    rows = [(number % 100, "", None) for number in range(1_000)]
    assert len(encode(RecordBatch.of([Record(0, 5, row) for row in rows]))) < 9_000
