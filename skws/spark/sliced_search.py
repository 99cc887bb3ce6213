"""Searches a stream that ends in parallel tasks, one for each slice of time.

    in order:   look at times, a task per split -> plan slices -> read and search, a task per slice -> driver
    any other:  read and pack, a task per split -> plan slices -> search, a task per slice -> driver

If time does not divide the stream but a key does, slices are parts of the key instead.

A packed piece is one row, so a shuffle moves few large rows, and nothing between reading and searching
unpacks a record. Every slice runs the session of the in-process engine, so it answers all kinds of
queries.

Records of files in order never move, and Spark plans no SQL: every task is a job of its own. So the driver
gets the results of the first slices while tasks search later ones, and Java loads a third less code before
the first results.

Docs: ``docs/architecture/spark.md``.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cached_property
from itertools import islice
from operator import attrgetter
from threading import Event, Thread
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.data.batch import RecordBatch
from skws.data.packing import compress, decompress, pack, unpack
from skws.formats.files import Split
from skws.formats.jsonl_order import TimedBlock, timed_blocks
from skws.formats.splits import Holds, PackedPiece, read_pieces, unpack_bad
from skws.memory import MemoryShare, expect_long_lived_objects, freeze_loaded_objects
from skws.queries.partitioning.slice_tasks import (
    Blocks,
    Emitted,
    SlicedRun,
    SliceRanges,
    blocks_of,
    search_pieces,
    search_range,
)
from skws.queries.partitioning.slices import (
    SMALL,
    Slice,
    SliceRun,
    Slicing,
    in_order,
    plan_parts,
    plan_slices,
)
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_schema.budgets import check
from skws_schema.model import Schema
from skws_windows.window import Window

PIECES: Final = (
    "split int, number int, holds int, first bigint, last bigint, size bigint, deletions bigint, "
    "dequeues boolean, packed binary"
)
_PIECE_FIELDS: Final = tuple(field.name for field in fields(PackedPiece))
_PROPERTIES: Final = attrgetter(*_PIECE_FIELDS)  # ``astuple`` copies each value
_ARROW_PIECES: Final = pa.schema(
    [
        *((name, pa.int32()) for name in _PIECE_FIELDS[:3]),
        *((name, pa.int64()) for name in _PIECE_FIELDS[3:7]),
        (_PIECE_FIELDS[7], pa.bool_()),
        ("packed", pa.binary()),
    ]
)
# Sorted before all pieces, so that a task runs even for a slice without pieces.
_SEED: Final = (-1, -1, -1, -1, -1, -1, -1, False, b"")
_ROWS: Final = 5_000  # results turned into rows at a time

_UnpackedPieces: TypeAlias = Iterator[tuple[PackedPiece, RecordBatch]]


def replay_pieces(
    spark: SparkSession, splits: Sequence[Split], schema: Schema, memory: MemoryShare
) -> DataFrame:
    """The pieces of replay files, read by one task per split; columns PIECES."""
    parts = tuple(splits)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with memory.apply():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from (piece_rows([piece]) for piece in read_pieces(parts[number], schema))
        freeze_loaded_objects()

    return spark.range(0, len(parts), 1, max(len(parts), 1)).mapInArrow(read, PIECES)


def piece_rows(pieces: Iterable[tuple[PackedPiece, bytes]]) -> pa.RecordBatch:
    """Pieces as rows of PIECES."""
    columns = zip(*((*_PROPERTIES(piece), blob) for piece, blob in pieces), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _ARROW_PIECES.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_PIECES)


class BatchRun(SlicedRun):
    """Queries over a stream of pieces, with one task per slice.

    ``window``: that of the queries. ``tasks``: how many run at a time. ``least``: the fewest records of a
    slice. ``slicing`` is planned when the results are first used.
    """

    def __init__(
        self,
        pieces: DataFrame,
        queries: Sequence[Query],
        stream: Stream,
        window: Window,
        memory: MemoryShare,
        tasks: int,
        least: int = SMALL,
    ) -> None:
        super().__init__(lambda _: None)
        self._pieces = pieces.persist(StorageLevel.MEMORY_AND_DISK)
        self._queries = tuple(queries)
        self._stream = stream
        self._window = window
        self._memory = memory
        self._tasks = tasks
        self._least = least

    def close(self) -> None:
        self._pieces.unpersist()

    @cached_property
    def stream_pieces(self) -> list[PackedPiece]:
        """The pieces of the stream, in order of arrival. Reads the stream."""
        rows = self._pieces.select(*_PIECE_FIELDS).collect()
        return sorted((PackedPiece(r[0], r[1], Holds(r[2]), *r[3:]) for r in rows), key=lambda p: p.place)

    @cached_property
    def slicing(self) -> Slicing:  # type: ignore[override]  # known once the stream has been read
        request = self.stream_pieces, self._queries, self._stream, self._window, self._tasks, self._least
        by_time = plan_slices(*request)
        return (plan_parts(*request) if by_time.reason else None) or by_time

    def frame(self, table: Callable[[Iterable[Result]], pa.Table], columns: str) -> DataFrame:
        """The results as a DataFrame; ``table`` makes rows with ``columns`` of some of them."""
        queries, stream = self._queries, self._stream

        def search(time_slice: Slice, pieces: _UnpackedPieces) -> Iterator[pa.RecordBatch]:
            results = SliceRun(queries, stream, time_slice).results(*in_order(pieces))
            while chunk := list(islice(results, _ROWS)):
                yield from table(chunk).to_batches()

        return self._map_slices(search, columns)

    def _searched(self, *, counting: bool) -> Iterator[Iterable[Emitted]]:
        """Bad records come first, in order of arrival."""
        queries, stream = self._queries, self._stream

        def search(time_slice: Slice, pieces: _UnpackedPieces) -> Iterator[pa.RecordBatch]:
            for message in search_pieces(time_slice, queries, stream, pieces, counting=counting):
                blob = compress(pickle.dumps(message, protocol=5))  # otherwise Java pickles it byte by byte
                yield pa.RecordBatch.from_pydict({"message": [blob]})

        if any(piece.holds is Holds.BAD for piece in self.stream_pieces):
            bad = self._pieces.where(sf.col("holds") == int(Holds.BAD)).select("split", "number", "packed")
            rows = bad.coalesce(1).sortWithinPartitions("split", "number").toLocalIterator()
            yield (unpack_bad(row.packed) for row in rows)
        for results in outputs_in_order(self._map_slices(search, "message binary").rdd):
            yield (pickle.loads(decompress(row.message)) for row in results)  # noqa: S301 - written by the same run

    def _map_slices(
        self, search: Callable[[Slice, _UnpackedPieces], Iterator[pa.RecordBatch]], columns: str
    ) -> DataFrame:
        """Every slice with the pieces that it reads, in the order of reading; one task per slice."""
        slicing, memory = self.slicing, self._memory

        def divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with memory.apply():
                for row in _rows(batches):
                    for number, piece, blob in _slice_pieces(slicing, row):
                        number_column = pa.array([number], pa.int32())
                        yield piece_rows([(piece, blob)]).add_column(0, "slice", number_column)
            freeze_loaded_objects()

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            expect_long_lived_objects()
            rows = _rows(batches)
            with memory.apply():
                for seed in islice(rows, 1):
                    yield from search(slicing.slices[seed["slice"]], map(_unpack_row, rows))
            freeze_loaded_objects()

        seeds = [(number, *_SEED) for number in range(len(slicing.slices))]
        shared = f"slice int, {PIECES}"
        return (
            self._pieces.where(sf.col("holds").isin(int(Holds.TABLE), int(Holds.RECORDS)))
            .mapInArrow(divide, shared)
            .unionAll(self._pieces.sparkSession.createDataFrame(seeds, shared))
            .repartitionById(len(slicing.slices), "slice")
            .sortWithinPartitions("holds", "first", "split", "number")
            .mapInArrow(run, columns)
        )


def _slice_pieces(slicing: Slicing, row: dict[str, Any]) -> Iterator[tuple[int, PackedPiece, bytes]]:
    """A piece for each slice that reads it, with the slice's number."""
    piece = _piece(row)
    if slicing.keys is not None:
        for number, part, records in slicing.parts_of(piece, unpack(row["packed"])):
            yield number, part, pack(records)
        return
    for number, time_slice in enumerate(slicing.slices):
        if piece.holds is Holds.TABLE or time_slice.reads(piece):
            yield number, piece, row["packed"]


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _piece(row: dict[str, Any]) -> PackedPiece:
    values = [row[name] for name in _PIECE_FIELDS]
    return PackedPiece(values[0], values[1], Holds(values[2]), *values[3:])


def _unpack_row(row: dict[str, Any]) -> tuple[PackedPiece, RecordBatch]:
    check()
    return _piece(row), unpack(row["packed"])


_AHEAD: Final = 2  # jobs for each task that runs at a time; their results are in memory

A = TypeVar("A")
M = TypeVar("M")


class RangesRun(SlicedRun):
    """Keywords over files in order of time: each slice is read where it is searched."""

    def __init__(
        self,
        context: SparkContext,
        queries: Sequence[Query],
        stream: Stream,
        memory: MemoryShare,
        slicing: Slicing,
        blocks: Blocks,
        read: Callable[[int], None],
    ) -> None:
        super().__init__(read)
        self.slicing = slicing
        self._context = context
        self._parts = [SliceRanges.of(time_slice, blocks) for time_slice in slicing.slices]
        self._request = tuple(queries), stream
        self._memory = memory

    def _searched(self, *, counting: bool) -> Iterator[list[Emitted]]:
        assert not counting  # noqa: S101 - patterns are searched in pieces
        request = self._request

        def search(part: SliceRanges) -> Iterator[Emitted]:
            return search_range(part, *request)

        return outputs_in_order(_tasks(self._context, search, self._parts, self._memory))


@contextmanager
def reading_blocks(splits: Sequence[Split]) -> Iterator[list[list[TimedBlock] | None]]:
    """Inside, a thread reads the times of one split after another; the list has the blocks so far."""
    blocks: list[list[TimedBlock] | None] = []
    stop = Event()

    def look() -> None:
        with suppress(Exception):  # the task that reads it next reports the reason
            for split in splits:
                blocks.append(timed_blocks(split))
                if blocks[-1] is None or stop.is_set():
                    return

    thread = Thread(target=look, name="look")
    thread.start()
    try:
        yield blocks
    finally:
        stop.set()
        thread.join()


def blocks_in_order(
    context: SparkContext,
    splits: Sequence[Split],
    memory: MemoryShare,
    first_blocks: Sequence[list[TimedBlock] | None] = (),
) -> Blocks | None:
    """The blocks of files of JSON lines, read by one task per split; None unless the files are in order.

    ``first_blocks``: the blocks of the first splits.
    """

    def look(split: Split) -> Iterator[list[TimedBlock] | None]:
        yield timed_blocks(split)

    blocks, remaining_splits = list(first_blocks), splits[len(first_blocks) :]
    if remaining_splits and None not in blocks:
        blocks += _tasks(context, look, remaining_splits, memory).collect()
    return blocks_of(zip(splits, blocks, strict=False))


def outputs_in_order(tasks: RDD[M]) -> Iterator[list[M]]:
    """The output of each task, in order, while others run; each is a job of Spark."""
    context, tag = tasks.context, f"skws-{uuid4().hex}"
    with ThreadPoolExecutor(context.defaultParallelism, "jobs", context.addJobTag, (tag,)) as pool:
        jobs: deque[Future[list[M]]] = deque()
        try:
            for number in range(tasks.getNumPartitions()):
                jobs.append(pool.submit(context.runJob, tasks, iter, [number]))
                if len(jobs) > _AHEAD * context.defaultParallelism:
                    yield jobs.popleft().result()
            while jobs:
                yield jobs.popleft().result()
        except BaseException:  # an error of a job, an interrupt, or a consumer that stops early
            pool.shutdown(wait=False, cancel_futures=True)
            context.cancelJobsWithTag(tag)
            raise


def _tasks(
    context: SparkContext, task: Callable[[A], Iterator[M]], arguments: Sequence[A], memory: MemoryShare
) -> RDD[M]:
    """A task for each argument."""

    def run(task_arguments: Iterable[A]) -> Iterator[M]:
        with memory.apply():
            for argument in task_arguments:
                yield from task(argument)
        freeze_loaded_objects()

    return context.parallelize(arguments, len(arguments)).mapPartitions(run)
