"""A stream that ends, answered by parallel tasks, in slices of time.

    files in order:  look at times, a task a split -> plan slices -> read and search, a task a slice -> driver
    all else:        read and pack, a task a split -> plan slices -> search, a task a slice -> driver

Where time cuts nothing off and a key divides the tuples, slices are parts of the key instead.

A packed piece is one row, so a shuffle moves few large rows, and nothing between reading and searching
unpacks a record. Every slice runs the session of the in-process engine, so all kinds of queries come with it.

Docs: ``docs/architecture/spark.md``.
"""

from __future__ import annotations

import heapq
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, fields, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.data.batch import RecordBatch
from skws.data.packing import packed, unpacked
from skws.data.record import BadRecord
from skws.formats.files import Split
from skws.formats.jsonl_order import timed_blocks
from skws.formats.pieces import Holds, Piece, read_pieces, unpack_bad
from skws.memory import MemoryShare
from skws.queries.evaluator import Counts
from skws.queries.keywords.collector import expect_long_lived_objects, freeze_loaded_objects
from skws.queries.ranges import Blocks, SliceRanges, blocks_of
from skws.queries.results import encoded
from skws.queries.slice_tasks import Emitted, Lines, Progress, search_pieces, search_range
from skws.queries.slices import (
    SMALL,
    SliceRun,
    Slicing,
    in_order,
    plan_parts,
    plan_slices,
    summed,
)
from skws.results.model import LiveResult
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_schema.memory import check
from skws_schema.model import Schema
from skws_windows.window import Window

PIECES: Final = (
    "split int, number int, holds int, first bigint, last bigint, size bigint, deletions bigint, "
    "dequeues boolean, packed binary"
)
_KNOWN: Final = tuple(one.name for one in fields(Piece))
_ARROW_PIECES: Final = pa.schema(
    [
        *((name, pa.int32()) for name in _KNOWN[:3]),
        *((name, pa.int64()) for name in _KNOWN[3:7]),
        (_KNOWN[7], pa.bool_()),
        ("packed", pa.binary()),
    ]
)
_EMITTED: Final = "slice int, kind string, message binary"
_ARROW_EMITTED: Final = pa.schema([("slice", pa.int32()), ("kind", pa.string()), ("message", pa.binary())])
_BAD: Final = list.__name__  # the kind of a message of bad records
_SEED: Final = -1  # in place of what a piece holds: has a task run for a slice without pieces
_ROWS: Final = 5_000  # results made to rows at a time
_LOOKED: Final = "split int, blocks binary"


def replay_pieces(
    spark: SparkSession, splits: Sequence[Split], schema: Schema, memory: MemoryShare
) -> DataFrame:
    """The pieces of replay files, read by a task a split; columns PIECES."""
    parts = tuple(splits)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        yield from (piece_row(*each) for each in read_pieces(parts[number], schema))

    return _numbered(spark, len(parts), read, memory, PIECES)


def piece_row(piece: Piece, blob: bytes) -> pa.RecordBatch:
    """A piece as one row of PIECES."""
    values = [*astuple(piece), blob]
    columns = [pa.array([value], kind) for value, kind in zip(values, _ARROW_PIECES.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_PIECES)


class SlicedRun(ABC):
    """Queries over a stream that ends, a task a slice. ``counts`` are complete when all results are read."""

    slicing: Slicing
    """How the stream is cut: by time, by a key, or not at all."""

    def __init__(self, queries: Sequence[Query], stream: Stream, memory: MemoryShare) -> None:
        self.counts = Counts()
        self._queries = tuple(queries)
        self._stream = stream
        self._memory = memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def bad_records(self) -> Iterator[BadRecord]:
        """Input that is no record, in order of arrival."""

    def results(self) -> Iterator[LiveResult]:
        """Results in order of time, encoded."""
        with self._searched(counting=False) as found:
            if self.slicing.keys is None:
                lines = (line for message in self._heard(found) for _, line in _timed_lines(message))
            else:  # parts of the key
                for _ in self._heard(found.where(f"kind <> '{Lines.__name__}'")):
                    pass
                parts = (found.where(sf.col("slice") == part) for part in range(len(self.slicing.slices)))
                timed = [
                    (each for message in _messages(part) for each in _timed_lines(message)) for part in parts
                ]
                lines = (line for _, line in heapq.merge(*timed, key=itemgetter(0)))
            yield from map(encoded, lines)

    def count(self) -> int:
        """How many results the only query has, a pattern; none of them is formed."""
        with self._searched(counting=True) as found:
            return sum(message.number for message in self._heard(found) if isinstance(message, Progress))

    @abstractmethod
    def close(self) -> None:
        """Let go of what Spark keeps."""

    @abstractmethod
    def _searched(self, *, counting: bool) -> AbstractContextManager[DataFrame]:
        """What slices emit, in their order, columns _EMITTED; searched once."""

    def _heard(self, found: DataFrame) -> Iterator[Any]:
        """Messages, whose counts are added."""
        done, number = self.counts, -1
        for row in found.toLocalIterator():
            if row.slice != number:
                done, number = self.counts, row.slice
            message = pickle.loads(row.message)  # noqa: S301 - written by the same run
            if isinstance(message, Progress):
                self.counts = summed(done, self._own(message.counts))
            yield message

    def _own(self, counts: Counts) -> Counts:
        """What a slice adds to the counts of the run."""
        return counts


class BatchRun(SlicedRun):
    """Queries over a stream of pieces.

    ``window``: that of the queries. ``tasks``: how many run at a time. ``least``: the fewest records of a
    slice. ``slicing`` is known once the results are asked for.
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
        super().__init__(queries, stream, memory)
        self._pieces = pieces.persist(StorageLevel.MEMORY_AND_DISK)
        self._window = window
        self._tasks = tasks
        self._least = least

    def close(self) -> None:
        self._pieces.unpersist()

    @cached_property
    def known(self) -> list[Piece]:
        """What there is, in order of arrival. Reads the stream."""
        rows = self._pieces.select(*_KNOWN).collect()
        pieces = sorted((Piece(r[0], r[1], Holds(r[2]), *r[3:]) for r in rows), key=lambda p: p.place)
        streamed = [piece for piece in pieces if piece.holds is Holds.RECORDS]
        self.counts.tuples = sum(piece.insertions for piece in streamed)
        self.counts.deletions = sum(piece.deletions for piece in streamed)
        return pieces

    @cached_property
    def slicing(self) -> Slicing:  # type: ignore[override]  # known once the stream has been read
        asked = self.known, self._queries, self._stream, self._window, self._tasks, self._least
        by_time = plan_slices(*asked)
        return (plan_parts(*asked) if by_time.reason else None) or by_time

    def bad_records(self) -> Iterator[BadRecord]:
        if any(piece.holds is Holds.BAD for piece in self.known):
            bad = self._pieces.where(sf.col("holds") == int(Holds.BAD)).select("split", "number", "packed")
            for row in bad.coalesce(1).sortWithinPartitions("split", "number").toLocalIterator():
                yield from unpack_bad(row.packed)

    def frame(self, table: Callable[[Iterable[LiveResult]], pa.Table], columns: str) -> DataFrame:
        """The results as a DataFrame; ``table`` makes rows with ``columns`` of some of them."""
        slices, queries, stream, memory = self.slicing.slices, self._queries, self._stream, self._memory

        def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            expect_long_lived_objects()
            rows = _rows(batches)
            seed = next(rows, None)
            with memory.kept():
                if seed is None:
                    return
                run = SliceRun(queries, stream, slices[seed["slice"]])
                found = run.results(*in_order(map(_unpacked, rows)))
                while some := list(islice(found, _ROWS)):
                    yield from table(some).to_batches()
            freeze_loaded_objects()

        return self._sliced().mapInArrow(search, columns)

    @contextmanager
    def _searched(self, *, counting: bool) -> Iterator[DataFrame]:
        slices, queries, stream, memory = self.slicing.slices, self._queries, self._stream, self._memory

        def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = _rows(batches)
            seed = next(rows, None)
            if seed is not None:
                number, pieces = seed["slice"], map(_unpacked, rows)
                with memory.kept():
                    yield from _emitted(
                        number, search_pieces(slices[number], queries, stream, pieces, counting=counting)
                    )
                freeze_loaded_objects()

        found = self._sliced().mapInArrow(search, _EMITTED)
        if len(slices) == 1:
            yield found
            return
        kept = found.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            # Or slices are searched one after the other, as they are asked for.
            kept.groupBy().count().collect()
            yield kept
        finally:
            kept.unpersist()

    def _own(self, counts: Counts) -> Counts:
        """All tuples are counted, whatever slices read."""
        return replace(counts, tuples=0, deletions=0)

    def _sliced(self) -> DataFrame:
        """Every piece once for each slice that reads it, one partition a slice, in the order of its run."""
        pieces = self._by_keys() if self.slicing.keys else self._by_times()
        spark, slices = self._pieces.sparkSession, self.slicing.slices
        seeds = spark.range(len(slices)).selectExpr(
            "cast(id as int) as slice",
            *(f"cast({_blank(kind)} as {kind}) as {name}" for name, kind in _columns()),
        )
        return (
            pieces.unionAll(seeds)
            .repartitionById(len(slices), "slice")
            .sortWithinPartitions("holds", "first", "split", "number")
        )

    def _by_keys(self) -> DataFrame:
        slicing, memory = self.slicing, self._memory

        def divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with memory.kept():
                for row in _rows(batches):
                    for number, piece, own in slicing.parts_of(*_unpacked(row)):
                        part = pa.array([number], pa.int32())
                        yield piece_row(piece, packed(own)).add_column(0, "slice", part)
            freeze_loaded_objects()

        held = self._pieces.where(sf.col("holds").isin(int(Holds.TABLE), int(Holds.RECORDS)))
        return held.mapInArrow(divide, f"slice int, {PIECES}")

    def _by_times(self) -> DataFrame:
        spark, slices = self._pieces.sparkSession, self.slicing.slices
        bounds = [(number, one.context, one.end) for number, one in enumerate(slices)]
        wanted = spark.createDataFrame(bounds, "slice int, context bigint, end bigint")
        holds = sf.col("holds")
        reads = (holds == int(Holds.TABLE)) | (
            (holds == int(Holds.RECORDS))
            & (sf.col("last") >= sf.col("context"))
            & (sf.col("first") < sf.col("end"))
        )
        return self._pieces.join(sf.broadcast(wanted), reads).select("slice", *_KNOWN, "packed")


class RangesRun(SlicedRun):
    """Keywords over files in order of time: each slice is read where it is searched.

    Bad records are found by the search, so it runs when they are asked for.
    """

    def __init__(
        self,
        spark: SparkSession,
        queries: Sequence[Query],
        stream: Stream,
        memory: MemoryShare,
        slicing: Slicing,
        blocks: Blocks,
    ) -> None:
        super().__init__(queries, stream, memory)
        self.slicing = slicing
        parts, asked = [SliceRanges.of(one, blocks) for one in slicing.slices], (self._queries, stream)

        def search(number: int) -> Iterator[pa.RecordBatch]:
            messages = search_range(parts[number], *asked)
            yield from _emitted(number, (each for each in messages if not isinstance(each, int)))

        found = _numbered(spark, len(parts), search, memory, _EMITTED)
        self._found = found.persist(StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        self._found.unpersist()

    def bad_records(self) -> Iterator[BadRecord]:
        known = {row.kind for row in self._found.groupBy("kind").count().collect()}  # all slices at once
        if _BAD in known:
            for records in _messages(self._found.where(sf.col("kind") == _BAD)):
                yield from records

    @contextmanager
    def _searched(self, *, counting: bool) -> Iterator[DataFrame]:
        assert not counting  # noqa: S101 - patterns are searched in pieces
        yield self._found.where(sf.col("kind") != _BAD)


def blocks_in_order(spark: SparkSession, splits: Sequence[Split], memory: MemoryShare) -> Blocks | None:
    """The blocks of files of JSON lines, looked at by a task a split; None unless they are in order."""
    parts = tuple(splits)

    def look(number: int) -> Iterator[pa.RecordBatch]:
        blocks = pickle.dumps(timed_blocks(parts[number]))
        yield pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int32()), pa.array([blocks], pa.binary())], ["split", "blocks"]
        )

    looked = _numbered(spark, len(parts), look, memory, _LOOKED).collect()
    looked.sort(key=lambda row: row.split)
    return blocks_of(
        (parts[row.split], pickle.loads(row.blocks))  # noqa: S301 - written by the same run
        for row in looked
    )


def _numbered(
    spark: SparkSession,
    number: int,
    task: Callable[[int], Iterator[pa.RecordBatch]],
    memory: MemoryShare,
    columns: str,
) -> DataFrame:
    """What a task gives for each number, as a partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with memory.kept():
            for batch in batches:
                for one in batch.column(0).to_pylist():
                    yield from task(one)
        freeze_loaded_objects()

    return spark.range(0, number, 1, max(number, 1)).mapInArrow(run, columns)


def _columns() -> list[tuple[str, str]]:
    return [tuple(column.split()) for column in PIECES.split(", ")]  # type: ignore[misc]  # two words each


def _blank(kind: str) -> str:
    return {"binary": "null", "boolean": "false"}.get(kind, str(_SEED))


def _emitted(number: int, messages: Iterable[Emitted]) -> Iterator[pa.RecordBatch]:
    """Messages of a slice as rows."""
    for message in messages:
        columns = [[number], [type(message).__name__], [pickle.dumps(message, protocol=5)]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, _ARROW_EMITTED.types, strict=True)],
            schema=_ARROW_EMITTED,
        )


def _messages(found: DataFrame) -> Iterator[Any]:
    for row in found.toLocalIterator():
        yield pickle.loads(row.message)  # noqa: S301 - written by the same run


def _timed_lines(message: Any) -> Iterator[tuple[float, bytes]]:
    """Results with the times at which they are given."""
    if isinstance(message, Lines):
        yield from zip(message.times.tolist(), message.text.split(b"\n"), strict=True)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _unpacked(row: dict[str, Any]) -> tuple[Piece, RecordBatch]:
    check()
    known = [row[name] for name in _KNOWN]
    return Piece(known[0], known[1], Holds(known[2]), *known[3:]), unpacked(row["packed"])
