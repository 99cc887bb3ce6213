"""Batches of records are the same after they were written as JSON."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, Rows
from skws.data.batch_json import batch_of_plain, plain_batch
from skws.data.blocks import ColumnBlock
from skws_schema.model import Value
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


def again(batch: RecordBatch) -> RecordBatch:
    return batch_of_plain(orjson.loads(orjson.dumps(plain_batch(batch))))


def shown(batch: RecordBatch) -> list[tuple[object, ...]]:
    """Records with the types of their values, as 1, 1.0 and true are equal."""
    return [(*record, *map(type, record.row)) for record in batch.records()]


@given(st.lists(RECORDS, max_size=12))
@examples(300)
def test_batches_of_rows(records: list[Record]) -> None:
    batch = RecordBatch.of(records)
    found = again(batch)
    assert shown(found) == shown(batch)
    assert found.truncations().tolist() == batch.truncations().tolist()
    assert shown(again(found)) == shown(batch)


@given(st.data())
@examples(100)
def test_some_rows_of_columns(data: st.DataObject) -> None:
    columns: list[list[Value]] = data.draw(
        st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=1, max_size=3)
    )
    rows = RecordBatch.of([Record(0, at, ("", 0)) for at in range(6)])
    batch = RecordBatch(
        rows.relation,
        rows.time,
        type(rows.rows)(rows.rows.block, rows.rows.place, (ColumnBlock(0, columns),)),
    )
    some = batch.taken(np.array(data.draw(st.permutations(range(6))))[:4])
    assert shown(again(some)) == shown(some)


def test_a_block_without_rows() -> None:
    """As those of an empty part of a file are."""
    batch = RecordBatch.of([Record(0, 7, ("a", 1))])
    empty = replace(
        batch,
        rows=Rows(batch.rows.block + 1, batch.rows.place, (ColumnBlock(0, [[], []]), *batch.rows.blocks)),
    )
    assert shown(again(empty)) == shown(batch)
