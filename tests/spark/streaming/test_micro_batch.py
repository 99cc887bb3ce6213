"""Data passed between stages and processes is decoded unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from skws.data.batch import Record, RecordBatch, Rows
from skws.data.blocks import ColumnBlock, Nullable
from skws.data.packing import pack, rejoin, unpack
from skws.data.texts import Texts
from skws.jobs.control import JobCommand
from skws.sources.feed import Backlog
from skws.spark.streaming.messages import BatchHeader, MicroBatch
from skws.spec.query_spec import Query

RECORDS = [
    Record(2, 5, ("a\x00b", None, 3.5, True)),
    Record(0, -7, (1 << 60,), True),
    Record(2, 5, ("é\n", 1, -0.0, False)),
]


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], []])
def test_packed_records_are_unpacked_unchanged(records: list[Record]) -> None:
    assert list(unpack(pack(RecordBatch.of(records))).records()) == list(RecordBatch.of(records).records())


def test_unpacked_records_can_be_selected() -> None:
    """By row and by column; the new batch holds only the selected rows."""
    numbers = np.array([2, 0])
    selection = unpack(pack(RecordBatch.of(RECORDS))).take(numbers)
    assert list(selection.records()) == [RECORDS[2], RECORDS[0]]
    block = selection.rows.blocks[0]
    assert block.rows(np.array([1, 0])) == [RECORDS[2].row, RECORDS[0].row]
    assert list(block.take(np.array([1])).values(0)) == ["é\n"]


def test_many_records_are_packed_compactly() -> None:
    records = [Record(0, n, (f"word number {n % 100}", n)) for n in range(10_000)]
    blob = pack(RecordBatch.of(records))
    assert len(blob) < 100_000
    assert list(unpack(blob).records()) == records


def test_a_micro_batch_is_decoded_unchanged() -> None:
    commands = (JobCommand.add(Query("q", 3, name="n"), "id"), JobCommand("remove", "m"))
    header = BatchHeader(
        1.5, commands, ("letter",), 2, ("why",), ("cut",), ("bad",), Backlog("3 files"), ended=True
    )
    micro_batch = MicroBatch(header, pack(RecordBatch.of(RECORDS[:1])), pack(RecordBatch.of(RECORDS)))
    assert MicroBatch.from_bytes(micro_batch.to_bytes()) == micro_batch
    assert MicroBatch.from_bytes(MicroBatch(BatchHeader(0.0)).to_bytes()) == MicroBatch(BatchHeader(0.0))


@pytest.mark.check
@pytest.mark.parametrize("names", range(1, 60))
def test_headers_of_any_length_are_decoded(names: int) -> None:
    """No blob is mistaken for a compressed one."""
    records = RecordBatch.of([Record(0, 1, (1, *["x"] * names))])
    assert list(unpack(pack(records)).records()) == list(records.records())


def test_columns_keep_their_types() -> None:
    block = ColumnBlock(
        1,
        [["a", "é"], np.array([1, -1]), [True, False], [None, 2], [1.0, 2.5], ["k", None]],
        frozenset({0, 5}),
    )
    relation = np.array([1, 1])
    batch = RecordBatch(relation, np.array([3, 4]), Rows.in_order(relation, [block]), None)
    unpacked = unpack(pack(batch))
    assert list(unpacked.records()) == list(batch.records())
    assert [type(value) for value in unpacked.rows.row(0)] == [str, int, bool, type(None), float, str]
    (unpacked_block,) = unpacked.rows.blocks
    assert isinstance(unpacked_block, ColumnBlock)
    column_types = [type(column) for column in unpacked_block.columns]
    assert column_types == [Texts, np.ndarray, np.ndarray, Nullable, np.ndarray, Nullable]
    assert unpacked_block.searched == {0, 5}
    parts = [pack(batch.take(np.array([number])), np.array([number])) for number in (1, 0)]
    assert list(rejoin([*parts, b""]).records()) == list(batch.records())
