"""Slices that tasks search, whoever runs them: tasks of Spark, or processes of one machine.

A task emits messages (``search_range``, ``search_pieces``). A ``SlicedRun`` takes those of all tasks, and
gives the results of the stream.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.data.batch import RecordBatch
from skws.data.record import BadRecord
from skws.formats import BadRecordLog
from skws.formats.pieces import Piece
from skws.queries.evaluator import Counts
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.ranges import SliceRanges
from skws.queries.results import encoded, moment, written
from skws.queries.slices import Slice, SliceRun, Slicing, in_order, summed
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

    def timed(self) -> Iterator[tuple[float, bytes]]:
        return zip(self.times.tolist(), self.text.split(b"\n"), strict=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """``counts``: of its own records so far. ``number``: of results found since, if none are formed."""

    counts: Counts
    number: int = 0


Emitted: TypeAlias = Lines | Progress | Sequence[BadRecord] | int
"""A number: so many bytes of the slice's own records have been read."""


class Timed(Protocol):
    """Some results, which may be on disk."""

    def timed(self) -> Iterator[tuple[float, bytes]]:
        """JSON lines with the times at which they are given."""


class SlicedRun(ABC):
    """A query over a stream that ends, cut into slices. ``counts``: of the slices whose results were given.

    ``read`` hears how many bytes were read.
    """

    slicing: Slicing
    """How the stream is cut: by time, by a key, or not at all."""

    def __init__(self, read: Callable[[int], None]) -> None:
        self.counts = Counts()
        self._read = read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - not every run keeps something
        """Let go of what the run keeps."""

    def results(self, bad: BadRecordLog) -> Iterator[LiveResult]:
        """Results in order of time, encoded; ``bad`` gets the bad records on the way.

        Raises BadRecordsError, SourceError, MemoryBudgetError.
        """
        found = self._found(bad, counting=False)
        if self.slicing.keys is None:
            lines = (line for messages in found for some in messages for _, line in _timed(some))
        else:  # of all parts, once they are complete
            parts = [list(part) for part in found]
            timed = [(each for some in part for each in _timed(some)) for part in parts]
            lines = (line for _, line in heapq.merge(*timed, key=itemgetter(0)))
        yield from map(encoded, lines)

    def counted(self, bad: BadRecordLog) -> Iterator[int]:
        """The number of results of a pattern, in parts; none of them is formed. Raises as ``results``."""
        for messages in self._found(bad, counting=True):
            for message in messages:
                if isinstance(message, Progress):
                    yield message.number

    @abstractmethod
    def _searched(self, *, counting: bool) -> Iterator[Iterable[Emitted | Timed]]:
        """What the task of each slice emits, in their order."""

    def _found(self, bad: BadRecordLog, *, counting: bool) -> Iterator[Iterator[Timed | Progress]]:
        for messages in self._searched(counting=counting):
            yield self._heard(messages, self.counts, bad)

    def _heard(
        self, messages: Iterable[Emitted | Timed], done: Counts, bad: BadRecordLog
    ) -> Iterator[Timed | Progress]:
        """The results of a slice; ``done``: the counts of those before it."""
        for message in messages:
            if isinstance(message, int):
                self._read(message)
            elif isinstance(message, Progress):
                self.counts = summed(done, message.counts)
                yield message
            elif isinstance(message, Sequence):
                bad.take(message)
            else:
                yield message


def _timed(some: Timed | Progress) -> Iterator[tuple[float, bytes]]:
    return iter(()) if isinstance(some, Progress) else some.timed()


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
