"""A stream that ends, answered by parallel tasks, in slices of time.

    read and pack, a task a split -> plan slices -> search, a task a slice -> driver

Where time cuts nothing off and a key divides the tuples, slices are parts of the key instead.

A packed piece is one row, so a shuffle moves few large rows, and nothing between reading and searching
unpacks a record. Every slice runs the session of the in-process engine, so all kinds of queries come with it.

Docs: ``docs/architecture/spark.md``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from functools import cached_property
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from skws.data.batch import RecordBatch
from skws.data.packing import compressed, expanded, packed, unpacked
from skws.formats.files import Split
from skws.formats.pieces import Holds, Piece, read_pieces, unpack_bad
from skws.memory import MemoryShare
from skws.queries.keywords.collector import expect_long_lived_objects, freeze_loaded_objects
from skws.queries.slice_tasks import Emitted, SlicedRun, search_pieces
from skws.queries.slices import (
    SMALL,
    SliceRun,
    Slicing,
    in_order,
    plan_parts,
    plan_slices,
)
from skws.results.model import LiveResult
from skws.spark.ranges import in_turn
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
_SEED: Final = -1  # in place of what a piece holds: has a task run for a slice without pieces
_ROWS: Final = 5_000  # results made to rows at a time


def replay_pieces(
    spark: SparkSession, splits: Sequence[Split], schema: Schema, memory: MemoryShare
) -> DataFrame:
    """The pieces of replay files, read by a task a split; columns PIECES."""
    parts = tuple(splits)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with memory.kept():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from (piece_row(*each) for each in read_pieces(parts[number], schema))
        freeze_loaded_objects()

    return spark.range(0, len(parts), 1, max(len(parts), 1)).mapInArrow(read, PIECES)


def piece_row(piece: Piece, blob: bytes) -> pa.RecordBatch:
    """A piece as one row of PIECES."""
    values = [*astuple(piece), blob]
    columns = [pa.array([value], kind) for value, kind in zip(values, _ARROW_PIECES.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_PIECES)


class BatchRun(SlicedRun):
    """Queries over a stream of pieces, a task a slice.

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
    def known(self) -> list[Piece]:
        """What there is, in order of arrival. Reads the stream."""
        rows = self._pieces.select(*_KNOWN).collect()
        return sorted((Piece(r[0], r[1], Holds(r[2]), *r[3:]) for r in rows), key=lambda p: p.place)

    @cached_property
    def slicing(self) -> Slicing:  # type: ignore[override]  # known once the stream has been read
        asked = self.known, self._queries, self._stream, self._window, self._tasks, self._least
        by_time = plan_slices(*asked)
        return (plan_parts(*asked) if by_time.reason else None) or by_time

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

    def _searched(self, *, counting: bool) -> Iterator[Iterable[Emitted]]:
        """Bad records come first, in order of arrival."""
        slices, queries, stream, memory = self.slicing.slices, self._queries, self._stream, self._memory

        def search(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = _rows(batches)
            seed = next(rows, None)
            if seed is not None:
                one, pieces = slices[seed["slice"]], map(_unpacked, rows)
                with memory.kept():
                    for message in search_pieces(one, queries, stream, pieces, counting=counting):
                        blob = compressed(pickle.dumps(message, protocol=5))  # Java pickles it byte by byte
                        yield pa.RecordBatch.from_pydict({"message": [blob]})
                freeze_loaded_objects()

        if any(piece.holds is Holds.BAD for piece in self.known):
            bad = self._pieces.where(sf.col("holds") == int(Holds.BAD)).select("split", "number", "packed")
            rows = bad.coalesce(1).sortWithinPartitions("split", "number").toLocalIterator()
            yield (unpack_bad(row.packed) for row in rows)
        for found in in_turn(self._sliced().mapInArrow(search, "message binary").rdd):
            yield (pickle.loads(expanded(row.message)) for row in found)  # noqa: S301 - written by the same run

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


def _columns() -> list[tuple[str, str]]:
    return [tuple(column.split()) for column in PIECES.split(", ")]  # type: ignore[misc]  # two words each


def _blank(kind: str) -> str:
    return {"binary": "null", "boolean": "false"}.get(kind, str(_SEED))


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _unpacked(row: dict[str, Any]) -> tuple[Piece, RecordBatch]:
    check()
    known = [row[name] for name in _KNOWN]
    return Piece(known[0], known[1], Holds(known[2]), *known[3:]), unpacked(row["packed"])
