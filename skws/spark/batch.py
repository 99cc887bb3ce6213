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
from dataclasses import asdict, astuple, fields, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Self

import numpy as np
import orjson
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
from skws.queries.results import encoded, moment, written
from skws.queries.slices import (
    SMALL,
    Slice,
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
_FOUND: Final = "slice int, holds int, found binary, times binary"
_ARROW_FOUND: Final = pa.schema(
    [("slice", pa.int32()), ("holds", pa.int32()), ("found", pa.binary()), ("times", pa.binary())]
)
_RESULTS, _NUMBER, _COUNTS, _BAD = range(4)  # what a row of what was found holds
_SEED: Final = -1  # in place of what a piece holds: has a task run for a slice without pieces
_ROWS: Final = 5_000  # results told at a time, as lines
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
        for holds, found in self._found(counting=False):
            if holds == _RESULTS:
                yield from map(encoded, found.split(b"\n"))

    def count(self) -> int:
        """How many results the only query has, a pattern; none of them is formed."""
        return sum(int(found) for holds, found in self._found(counting=True) if holds == _NUMBER)

    @abstractmethod
    def close(self) -> None:
        """Let go of what Spark keeps."""

    @abstractmethod
    def _found(self, *, counting: bool) -> Iterator[tuple[int, bytes]]:
        """What the slices give, in their order; counts have been added."""


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

    def _found(self, *, counting: bool) -> Iterator[tuple[int, bytes]]:
        number = len(self.slicing.slices)
        found = self._sliced().mapInArrow(
            _searcher(self.slicing.slices, self._queries, self._stream, self._memory, counting=counting),
            _FOUND,
        )
        kept = found.persist(StorageLevel.MEMORY_AND_DISK) if number > 1 else None
        try:
            if kept is not None:  # else slices would be searched one after the other, as they are asked for
                kept.groupBy().count().collect()
            ordered = kept is not None and self.slicing.keys is not None
            for row in found.where(sf.col("holds") != _RESULTS if ordered else "true").toLocalIterator():
                if row.holds == _COUNTS:
                    # All tuples are counted, whatever slices read.
                    told = replace(_counts(row.found), tuples=0, deletions=0)
                    self.counts = summed(self.counts, told)
                yield row.holds, row.found
            if ordered:
                parts = [
                    found.where((sf.col("slice") == part) & (sf.col("holds") == _RESULTS))
                    for part in range(number)
                ]
                for _, line in heapq.merge(*map(_timed_lines, parts), key=itemgetter(0)):
                    yield _RESULTS, line
        finally:
            if kept is not None:
                kept.unpersist()

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
        parts = [SliceRanges.of(one, blocks) for one in slicing.slices]
        search = _ranges_searcher(parts, self._queries, stream)
        searched = _numbered(spark, len(parts), search, memory, _FOUND)
        self._searched = searched.persist(StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        self._searched.unpersist()

    def bad_records(self) -> Iterator[BadRecord]:
        known = self._searched.groupBy("holds").count().collect()  # all slices at once
        if any(row.holds == _BAD for row in known):
            for row in self._searched.where(sf.col("holds") == _BAD).toLocalIterator():
                yield from unpack_bad(row.found)

    def _found(self, *, counting: bool) -> Iterator[tuple[int, bytes]]:
        assert not counting  # noqa: S101 - patterns are searched in pieces
        for row in self._searched.where(sf.col("holds") != _BAD).toLocalIterator():
            if row.holds == _COUNTS:
                self.counts = summed(self.counts, _counts(row.found))
            yield row.holds, row.found


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


def _searcher(
    slices: Sequence[Slice],
    queries: Sequence[Query],
    stream: Stream,
    memory: MemoryShare,
    *,
    counting: bool,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What searches one slice in a task."""

    def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        rows = _rows(batches)
        seed = next(rows, None)
        if seed is None:
            return
        number = seed["slice"]
        run = SliceRun(queries, stream, slices[number])
        with memory.kept():
            tables, records = in_order(map(_unpacked, rows))
            if counting:
                yield _found_rows(number, _NUMBER, [str(sum(run.count(tables, records))).encode()])
            else:
                yield from _result_rows(number, run.results(tables, records))
        yield _found_rows(number, _COUNTS, [orjson.dumps(asdict(run.counts))])
        freeze_loaded_objects()

    return search


def _ranges_searcher(
    parts: Sequence[SliceRanges], queries: Sequence[Query], stream: Stream
) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """What reads and searches one slice in a task."""

    def search(number: int) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        run = SliceRun(queries, stream, parts[number].slice)
        bad: list[BadRecord] = []
        yield from _result_rows(number, parts[number].run(run, stream, lambda _: None, bad.extend))
        if bad:
            yield _found_rows(number, _BAD, [pickle.dumps(bad)])
        yield _found_rows(number, _COUNTS, [orjson.dumps(asdict(run.counts))])

    return search


def _result_rows(number: int, results: Iterator[LiveResult]) -> Iterator[pa.RecordBatch]:
    while some := list(islice(results, _ROWS)):
        lines = b"\n".join(map(written, some))
        yield _found_rows(number, _RESULTS, [lines], np.array(list(map(moment, some))).tobytes())


def _timed_lines(found: DataFrame) -> Iterator[tuple[float, bytes]]:
    """Results with the times at which they are given."""
    for row in found.toLocalIterator():
        yield from zip(np.frombuffer(row.times).tolist(), row.found.split(b"\n"), strict=True)


def _counts(told: bytes) -> Counts:
    return Counts(**orjson.loads(told))


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _unpacked(row: dict[str, Any]) -> tuple[Piece, RecordBatch]:
    check()
    known = [row[name] for name in _KNOWN]
    return Piece(known[0], known[1], Holds(known[2]), *known[3:]), unpacked(row["packed"])


def _found_rows(number: int, holds: int, found: list[bytes], times: bytes = b"") -> pa.RecordBatch:
    columns = [
        pa.array([number] * len(found), pa.int32()),
        pa.array([holds] * len(found), pa.int32()),
        pa.array(found, pa.binary()),
        pa.array([times] * len(found), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_FOUND)
