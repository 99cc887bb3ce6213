"""Rows for the shards: the records that a task of Spark has read, and the progress of partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from skws.data.batch import BATCH, Chunk, RecordBatch, concat_batches
from skws.formats.splits import Holds, PackedPiece, Packer
from skws.memory import MemoryShare, freeze_loaded_objects
from skws.sources.partitions import PartitionEnds, partition_number
from skws.spark.sliced_search import PIECES, piece_rows
from skws.spark.streaming.layout import Layout
from skws_mesh.columnar.columns import Ints
from skws_schema.model import Schema

SHARED: Final = f"{PIECES}, shard int"
"""The columns of the rows."""
PARTS: Final = 1_000_000
"""Partitions of one input: its pieces come before those of the next."""
_GROUP_RECORDS: Final = 4 * BATCH  # records that are divided together
_BATCH_BYTES: Final = 1 << 20  # of pieces

_ShardPiece: TypeAlias = tuple[int, PackedPiece, bytes]
"""A piece and the group of the shard that gets it."""


def shared_pieces(
    chunks: Iterable[tuple[int | None, Chunk]],
    place: int,
    schema: Schema,
    layout: Layout,
    memory: MemoryShare,
    ends: PartitionEnds | None,
    number: int,
    *,
    may_grow: bool,
    silent: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of ``chunks``, each with the number of its partition, divided; columns SHARED.

    ``place``: the position in the order of arrival. ``ends``: those of a stream; None for batch data.
    ``number``: that of the input. ``may_grow``: its partitions may have more records later, and so may
    partitions that chunks name. ``silent``: there is nothing to read, and shards are notified.
    """
    packers = [Packer(place, schema) for _ in layout.groups]

    def divide(records: Sequence[RecordBatch]) -> Iterator[_ShardPiece]:
        for shard, shard_records in enumerate(layout.divided(concat_batches(records))):
            yield from _shard_pieces(layout.groups[shard], packers[shard].records(shard_records))

    def pieces() -> Iterator[_ShardPiece]:
        # A shard gets an array for each column of each relation; a few long arrays take less time than many.
        group_size = 1 if layout.keys is None else _GROUP_RECORDS
        pending: list[RecordBatch] = []
        for partition, chunk in chunks:
            if ends is not None:
                _add_times(ends, chunk, partition, number, may_grow=may_grow)
            pending.append(chunk.records)
            if sum(map(len, pending)) >= group_size:
                yield from divide(pending)
                pending.clear()
        if pending:
            yield from divide(pending)
        for group, packer in zip(layout.groups, packers, strict=True):
            yield from _shard_pieces(group, packer.rest())
        if ends is not None and (len(end_times := ends.rows()) or silent):
            first, last = (
                (int(end_times[:, 1].min()), int(end_times[:, 1].max())) if len(end_times) else (0, 0)
            )
            report = PackedPiece(place, -1, Holds.TIME, first, last, len(end_times)), _with_clock(end_times)
            yield from ((group, *report) for group in layout.groups)

    with memory.apply():
        yield from _rows(pieces())
    freeze_loaded_objects()


def _add_times(
    ends: PartitionEnds, chunk: Chunk, partition: int | None, number: int, *, may_grow: bool
) -> None:
    times, partitions = chunk.records.time, chunk.partitions
    if partitions is None:
        ends.take(
            times, None if partition is None else partition_number(partition, number if may_grow else None)
        )
        return
    for topic_partition in np.unique(partitions).tolist():
        ends.take(times[partitions == topic_partition], partition_number(topic_partition, number))


def _with_clock(end_times: Ints) -> bytes:
    """The ends of partitions (``PartitionEnds.rows``), and the time of the report."""
    return np.concatenate([[time.time_ns() // 1000], end_times.reshape(-1)]).astype("<i8").tobytes()


def _shard_pieces(group: int, pieces: Iterable[tuple[PackedPiece, bytes]]) -> Iterator[_ShardPiece]:
    return ((group, *piece) for piece in pieces)


def _rows(pieces: Iterable[_ShardPiece]) -> Iterator[pa.RecordBatch]:
    """A row for each piece. Each batch costs Arrow and Java a fixed time, so small pieces share one."""
    batch: list[_ShardPiece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece[2])
        if size >= _BATCH_BYTES:
            yield _batch_of(batch)
            batch, size = [], 0
    if batch:
        yield _batch_of(batch)


def _batch_of(pieces: Sequence[_ShardPiece]) -> pa.RecordBatch:
    groups = pa.array([group for group, *_ in pieces], pa.int32())
    return piece_rows([(piece, blob) for _, piece, blob in pieces]).append_column("shard", groups)
