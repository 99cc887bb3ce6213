"""What a task that searches a slice emits, whoever runs it: a task of Spark, or a process of one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.data.batch import RecordBatch
from skws.data.record import BadRecord
from skws.formats.pieces import Piece
from skws.queries.evaluator import Counts
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.ranges import SliceRanges
from skws.queries.results import moment, written
from skws.queries.slices import Slice, SliceRun, in_order
from skws.results.model import LiveResult
from skws.spec.query import Query
from skws.spec.stream import Stream

BUFFER: Final = 1 << 18
"""Bytes of results that a task holds back."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Some results as JSON lines, without the last line end, and when each is given."""

    text: bytes
    times: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Progress:
    """``counts``: of its own records so far. ``number``: of results found since, if none are formed."""

    counts: Counts
    number: int = 0


Emitted: TypeAlias = Lines | Progress | Sequence[BadRecord] | int
"""A number: so many bytes of the slice's own records have been read."""


def search_range(ranges: SliceRanges, queries: Sequence[Query], stream: Stream) -> Iterator[Emitted]:
    """A slice of files in order of time, which is read here."""
    expect_long_lived_objects()
    run = SliceRun(queries, stream, ranges.slice)
    aside: list[Emitted] = []
    yield from _emitted(run, ranges.run(run, stream, aside.append, aside.append), aside)


def search_pieces(
    one: Slice,
    queries: Sequence[Query],
    stream: Stream,
    pieces: Iterable[tuple[Piece, RecordBatch]],
    *,
    counting: bool,
) -> Iterator[Emitted]:
    """A slice of packed pieces. ``counting``: no result is formed; the only query is a pattern."""
    expect_long_lived_objects()
    run = SliceRun(queries, stream, one)
    records = in_order(pieces)
    if counting:
        for number in run.count(*records):
            yield Progress(run.counts, number)
    else:
        yield from _emitted(run, run.results(*records), [])


def _emitted(run: SliceRun, results: Iterable[LiveResult], aside: list[Emitted]) -> Iterator[Emitted]:
    """Results many at a time, and what was put ``aside`` meanwhile; in the end the counts are complete."""
    held: list[bytes] = []
    times: list[float] = []
    size = 0
    for result in results:
        line = written(result)
        held.append(line)
        times.append(moment(result))
        size += len(line)
        if size > BUFFER:
            yield from _drained(run, held, times, aside)
            size = 0
    yield from _drained(run, held, times, aside)


def _drained(run: SliceRun, held: list[bytes], times: list[float], aside: list[Emitted]) -> Iterator[Emitted]:
    yield from aside
    aside.clear()
    yield Progress(run.counts)
    if held:
        yield Lines(b"\n".join(held), np.array(times))
        held.clear()
        times.clear()
