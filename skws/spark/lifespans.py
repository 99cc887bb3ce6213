"""Second stage: lifespans, from deletions and replacements, before time is cut into slices.

A deletion ends the oldest live equal tuple, and which one that is may depend
on all that came before; so lifespans are settled once, over the marks of each
identity in order, with the rules of the in-process engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from skws.spark.decode import batched, unbatched
from skws_purging.tuples import StreamTuple
from skws_purging.versions import Mark, is_successor, lifespan_ends
from skws_windows.window import Window

TUPLES = (
    "relation smallint, start bigint, end bigint, time bigint, split int, place bigint, "
    "keywords smallint, occurrence int, successor boolean, ended_at bigint, packed binary"
)
ARROW_TUPLES = pa.schema(
    [
        ("relation", pa.int16()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("time", pa.int64()),
        ("split", pa.int32()),
        ("place", pa.int64()),
        ("keywords", pa.int16()),
        ("occurrence", pa.int32()),
        ("successor", pa.bool_()),
        ("ended_at", pa.int64()),
        ("packed", pa.binary()),
    ]
)
UNMATCHED = -2  # in place of a relation: ``start`` counts deletions that met no live tuple

_IDENTITY = ("relation", "keyed", "identity")
_MARKS = (*_IDENTITY, "tick", "time", "split", "place", "deletion", "keywords", "packed")


def settled(ticked: DataFrame, window: Window, partitions: int) -> DataFrame:
    """The tuples of records that may end each other; columns TUPLES. ``ticked`` has their ticks."""
    return (
        ticked.withColumn("keyed", sf.col("identity").isNotNull())
        .withColumn("identity", sf.coalesce("identity", "packed"))
        .select(*_MARKS)
        .repartition(partitions, *_IDENTITY)
        .sortWithinPartitions(*_IDENTITY, "tick", "split", "place")
        .mapInArrow(_settler(window), TUPLES)
    )


def _settler(window: Window) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def settle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batched(_tuples(unbatched(batches), window), ARROW_TUPLES)

    return settle


def _tuples(rows: Iterable[tuple[Any, ...]], window: Window) -> Iterator[tuple[Any, ...]]:
    unmatched = 0
    for (_, keyed, _), group in groupby(rows, key=lambda row: row[:3]):
        for piece in _pieces(group, window):
            tuples, missed = _settle(piece, window, keyed)
            unmatched += missed
            yield from tuples
    if unmatched:
        yield UNMATCHED, unmatched, 0, 0, 0, 0, 0, 0, False, None, None


def _pieces(group: Iterable[tuple[Any, ...]], window: Window) -> Iterator[list[tuple[Any, ...]]]:
    """Cut the marks of one identity where a full window passed without one: what follows is independent."""
    piece: list[tuple[Any, ...]] = []
    for row in group:
        if piece and row[3] > window.end(piece[-1][3]):
            yield piece
            piece = []
        piece.append(row)
    if piece:
        yield piece


def _settle(rows: list[tuple[Any, ...]], window: Window, keyed: bool) -> tuple[list[tuple[Any, ...]], int]:
    marks = [
        Mark(tick, arrival, None if deletion else StreamTuple(relation, (), tick, 0))
        for arrival, (relation, _, _, tick, _, _, _, deletion, _, _) in enumerate(rows)
    ]
    ends, ended_by, unmatched = lifespan_ends(marks, window, keyed)
    tuples = []
    former: int | None = None
    same_tick = 0
    for position, (relation, _, _, tick, time, split, place, deletion, keywords, packed) in enumerate(rows):
        if deletion:
            continue
        same_tick = same_tick + 1 if former == tick else 0
        former = tick
        if ends[position] > tick:
            occurrence = 0 if keyed else same_tick
            successor = keyed and is_successor(marks, position, tick, window)
            ended_at = rows[ended_by[position]][4] if position in ended_by else None
            lifespan = (relation, tick, ends[position], time, split, place)
            tuples.append((*lifespan, keywords, occurrence, successor, ended_at, packed))
    return tuples, unmatched
