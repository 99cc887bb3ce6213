"""Streaming DataFrames of the user: rows in, results out.

    rows -> pieces, divided by a key (mapInArrow) -> transformWithState: shards of a live search -> results

There is no driver: the queries are part of the processor, and its state has those of the last start. Tasks
that read send every shard the latest times of their partitions. So shards agree on which records are late:
those before the least of these times, not those before the latest record.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from skws.data.batch import RecordBatch, merge_by_time, regroup
from skws.data.packing import decompress, pack, unpack
from skws.formats.splits import Holds, PackedPiece
from skws.jobs.control import JobCommand
from skws.jobs.standing_queries import StandingQueries
from skws.results.frames import COLUMNS
from skws.sources.partitions import AwaitedPartitions, final_of
from skws.spark.streaming.layout import Division
from skws.spark.streaming.messages import BatchHeader, MicroBatch
from skws.spark.streaming.processor import OUTPUT, MeshProcessor, ShardProgress
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_mesh.columnar.columns import Ints
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import UsageError
from skws_schema.show import to_yaml

LATE: Final = "late"
"""The ``op`` of a row that was too late and was dropped; ``tuples`` has it."""
_MOST: Final = 200_000  # records in a micro-batch
_FEW: Final = 10_000
_RUN: Final = "sql.streaming.queryId"  # set by Spark for every task of a streaming query


def search_stream(
    pieces: DataFrame,
    job: Job,
    division: Division,
    tables: RecordBatch,
    columns: str,
    idle: int,
) -> DataFrame:
    """The results of a job over streaming pieces, with ``columns``.

    ``division``: its groups are in the pieces' column ``shard``. ``tables``: the rows of static relations.
    ``idle``: see ``AwaitedPartitions``.
    """
    name = uuid4().hex[:8]  # distinguishes searches of one streaming query
    processor = FrameProcessor(name, job, division, pack(tables), idle)
    outputs = pieces.groupBy("shard").transformWithState(processor, OUTPUT, "Append", "none")

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part, blob in zip(batch.column("part").to_pylist(), batch.column("output"), strict=True):
                for table in _tables(part, blob.as_py()):
                    yield from table.to_batches()

    return outputs.mapInArrow(rows, columns)


def _tables(part: int, blob: bytes) -> Iterator[pa.Table]:
    if part:
        yield pa.ipc.open_stream(decompress(blob)).read_all()
    elif late := orjson.loads(blob)["late_letters"]:
        yield pa.Table.from_pylist(list(map(_late_row, late)), schema=COLUMNS)


def _late_row(letter: str) -> dict[str, Any]:
    """The dead letter of a late record as a row of results."""
    raw = orjson.loads(orjson.loads(letter)["raw"])
    row = [(name, None if value is None else str(value)) for name, value in raw.get("row", {}).items()]
    return {
        "op": LATE,
        "start": pa.scalar(raw["time"]).cast(COLUMNS.field("start").type).as_py(),
        "tuples": [{"relation": raw["relation"], "label": None, "id": None, "keywords": [], "row": row}],
        "joins": [],
    }


class FrameProcessor(MeshProcessor):
    """The shards of a search over streaming DataFrames. ``tables``: packed rows of static relations."""

    _tabular = True

    def __init__(self, name: str, job: Job, division: Division, tables: bytes, idle: int) -> None:
        super().__init__(name, job, {})
        self._initial_progress = ShardProgress(final=ALWAYS)
        self._lateness = job.stream.lateness
        self._idle = idle
        self._tables = tables
        self._division = division
        self._key_text = "" if division.keys is None else f", by {division.keys.shown(job.schema)}"
        self._digests = _stream_digest(job), _query_fields(job.named())

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called in a task, which knows the number of stateful partitions."""
        super().init(handle)
        layout = self._division.layout()
        self._shares = layout.shares
        self._division_text = f"shards={layout.shards}" + (
            self._key_text if layout.keys else ""
        )  # for messages
        stream, queries = self._digests
        self._start_queries = orjson.dumps([stream, self._division_text, queries]).decode()

    def _run_name(self) -> str:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_RUN)
        return f"{self._run}-{(query or '')[:8]}"

    def _micro_batches(self, rows: Iterator[Any], mark: ShardProgress) -> Iterator[bytes]:
        commands = self._commands(mark)
        tables = b"" if mark.epoch else self._tables
        number = mark.epoch
        pieces, end_times, clock = _sorted_pieces(rows)
        partitions = AwaitedPartitions(mark.partitions, self._idle)
        ends = partitions.ends(end_times, clock)
        self._partitions = partitions.rows
        old_final = ALWAYS if mark.final is None else mark.final
        latest = int(ends.max(initial=mark.now))
        final = final_of(ends, old_final, self._lateness, latest)
        batches = _packed_batches(pieces)
        batch: _PackedBatch | None = next(batches, _PackedBatch(b"", ALWAYS))
        while batch is not None:
            number += 1
            next_batch = next(batches, None)
            # Later batches of this call have no earlier records; later calls none before the stream time.
            last = final if next_batch is None else min(final, batch.last)
            header = BatchHeader(time.time(), tuple(commands), number=number, final=max(old_final, last))
            if next_batch is None:
                header = replace(header, reached=latest)
            yield MicroBatch(header, tables, batch.records).to_bytes()
            commands, tables, batch = [], b"", next_batch

    def _commands(self, mark: ShardProgress) -> list[JobCommand]:
        """The commands that turn the queries of the state into those of this start.

        Raises UsageError for another stream.
        """
        if mark.given == self._start_queries:
            return []
        job: Job = pickle.loads(self._request)  # noqa: S301 - by the constructor
        queries = StandingQueries(job)
        if mark.given:
            stream, division, _ = orjson.loads(mark.given)
            if division != self._division_text:
                raise UsageError(
                    f"the checkpoint of this streaming query has {division}; this search has"
                    f" {self._division_text}:"
                    " ask for as many shards, or give a new checkpointLocation"
                )
            if stream != _stream_digest(job):
                raise UsageError(
                    "the checkpoint of this streaming query is of another schema, window, size of results or"
                    " lateness: give a new checkpointLocation"
                )
            queries.add_all([query for query, _ in self._queries(self._store.names()["query"])])
        return queries.changes_to(job.named(), [query.name for query in queries.all_queries()])


def _stream_digest(job: Job) -> str:
    """The parts of a job that a restart cannot change."""
    parts = (to_yaml(job.schema), str(job.plan_window), job.lateness, job.max_size)
    return sha256(repr(parts).encode()).hexdigest()


def _query_fields(queries: Mapping[str, Query]) -> list[dict[str, Any]]:
    return [queries[name].to_dict() for name in sorted(queries)]


def _sorted_pieces(rows: Iterable[Any]) -> tuple[list[tuple[PackedPiece, bytes]], Ints, int]:
    """The pieces by their first times; the ends of partitions (``PartitionEnds.rows``), and their times."""
    pending: list[tuple[PackedPiece, bytes]] = []
    end_times: list[Ints] = [np.zeros((0, 2), dtype=np.int64)]
    clock = ALWAYS
    for row in rows:
        piece = PackedPiece(row.split, row.number, Holds(row.holds), row.first, row.last, row.size)
        if piece.holds is Holds.TIME:
            values = np.frombuffer(bytes(row.packed), dtype="<i8")
            clock = max(clock, int(values[0]))
            end_times.append(values[1:].reshape(-1, 2))
        else:
            pending.append((piece, bytes(row.packed)))
    pending.sort(key=lambda entry: (entry[0].first, entry[0].place))
    return pending, np.concatenate(end_times), clock


class _PackedBatch(NamedTuple):
    """The packed records of a micro-batch, and their latest time."""

    records: bytes
    last: int


def _packed_batches(pieces: Iterable[tuple[PackedPiece, bytes]]) -> Iterator[_PackedBatch]:
    """Micro-batches of pieces in order of their first times. A piece that overlaps no other stays packed."""
    for group in _overlap_groups(pieces):
        if len(group) == 1:
            piece, blob = group[0]
            yield _PackedBatch(blob, piece.last)
            continue
        parts = ((piece.first, piece.place, unpack(blob)) for piece, blob in group)
        for batch in regroup(merge_by_time(parts), _MOST):
            yield _PackedBatch(pack(batch), int(batch.time.max()))


def _overlap_groups(pieces: Iterable[tuple[PackedPiece, bytes]]) -> Iterator[list[tuple[PackedPiece, bytes]]]:
    """Groups pieces that overlap in time, and small ones."""
    group: list[tuple[PackedPiece, bytes]] = []
    size, last = 0, ALWAYS
    for piece, blob in pieces:
        if group and size >= _FEW and piece.first >= last:
            yield group
            group, size = [], 0
        group.append((piece, blob))
        size, last = size + piece.size, max(last, piece.last)
    if group:
        yield group
