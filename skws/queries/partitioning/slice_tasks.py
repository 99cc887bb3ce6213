"""Slices that tasks search: tasks of Spark, or processes on one machine.

A task emits messages (``search_range``, ``search_pieces``). A ``SlicedRun`` collects those of all tasks, and
yields the results of the stream.

A replay in order of time is cut by its times alone, into ranges of bytes that the tasks read:

    timed_blocks of each split -> blocks_of -> plan_slices -> SliceRanges of each slice -> results

No record leaves the process that reads it. This module works with any way to run the tasks.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Final, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace as replaced

from skws.data.batch import BadRecord, RecordBatch
from skws.formats import BadRecordLog
from skws.formats.files import Split
from skws.formats.jsonl import chunk_reader, reads_columns
from skws.formats.jsonl_order import TimedBlock
from skws.formats.splits import Holds, PackedPiece
from skws.memory import expect_long_lived_objects
from skws.queries.evaluator import Counts
from skws.queries.keywords.updates import Begin
from skws.queries.kinds import moment
from skws.queries.partitioning.slices import Slice, SliceRun, Slicing, in_order, summed
from skws.results.result import EncodedResult, LiveResult, Result
from skws.spec.query_spec import KEYWORDS, TOP, Query, Stream
from skws_schema.budgets import check
from skws_windows.window import MICROSECOND, TimeWindow, Window

Blocks: TypeAlias = list[tuple[PackedPiece, Split]]
"""Ranges of files, described as pieces that are still to be read."""


def has_ranges(splits: Sequence[Split], queries: Sequence[Query], stream: Stream, window: Window) -> bool:
    """True if a replay can be cut into ranges of bytes, provided it is in order of time."""
    return (
        all(query.kind in (KEYWORDS, TOP) for query in queries)
        and isinstance(window, TimeWindow)
        and not any(relation.table for relation in stream.schema.relations)
        and all(reads_columns(split, stream.schema) for split in splits)
    )


def blocks_of(splits: Iterable[tuple[Split, Sequence[TimedBlock] | None]]) -> Blocks | None:
    """The blocks of splits, which come in order of arrival; None if times are, or may be, out of order."""
    placed_blocks: Blocks = []
    early_splits: list[Split] = []  # blocks without records, before the first block with a time
    for split, blocks in splits:
        if blocks is None:
            return None
        for block in blocks:
            block_split = replace(split, start=block.start, end=block.end)
            if block.first is None and not placed_blocks:
                early_splits.append(block_split)
                continue
            placed_blocks.append(
                (_piece(split.ordinal, len(placed_blocks), block, placed_blocks), block_split)
            )
    if not placed_blocks or any(a.last > b.first for (a, _), (b, _) in pairwise(placed_blocks)):
        return None
    first = placed_blocks[0][0]
    empty_blocks = [
        (replace(first, number=-1, last=first.first, size=0), block_split) for block_split in early_splits
    ]
    return [*empty_blocks, *placed_blocks]


def _piece(split: int, number: int, block: TimedBlock, placed_blocks: Blocks) -> PackedPiece:
    """A block as a piece; a block without times has the last time of the block before."""
    if block.first is None or block.last is None:
        last = placed_blocks[-1][0].last
        return PackedPiece(split, number, Holds.RECORDS, last, last, 0)
    return PackedPiece(split, number, Holds.RECORDS, block.first, block.last, block.size)


@dataclass(frozen=True, slots=True)
class SliceRanges:
    """The ranges that a slice reads: the context before its own records, and the ranges with them.

    A block belongs to the slice in which it begins, so that each bad record is found once.
    """

    slice: Slice
    context: Sequence[Split]
    own: Sequence[Split]

    @classmethod
    def of(cls, slice_: Slice, blocks: Blocks) -> SliceRanges:
        slice_blocks = [(piece, split) for piece, split in blocks if slice_.reads(piece)]
        context = [split for piece, split in slice_blocks if piece.first < slice_.begin]
        return cls(
            slice_,
            _join_ranges(context),
            _join_ranges([split for piece, split in slice_blocks if piece.first >= slice_.begin]),
        )

    def run(
        self,
        run: SliceRun,
        stream: Stream,
        progress: Callable[[int], None],
        bad: Callable[[Sequence[BadRecord]], None],
    ) -> Iterator[LiveResult]:
        """Read and search; ``progress`` and ``bad`` get reports on its own records. Raises SourceError."""
        reader = chunk_reader(stream.schema)

        def batches() -> Iterator[RecordBatch]:
            for split in self.context:
                for chunk in reader.read(split):
                    check()
                    yield chunk.records
            for split in self.own:
                for chunk in reader.read(split, progress):
                    check()
                    if chunk.bad:
                        bad(list(chunk.bad))
                    yield chunk.records

        return run.results((), batches())


def _join_ranges(splits: Iterable[Split]) -> list[Split]:
    """The ranges, with consecutive ones joined."""
    ranges: list[Split] = []
    for split in splits:
        if ranges and ranges[-1].path == split.path and ranges[-1].end == split.start:
            ranges[-1] = replace(ranges[-1], end=split.end)
        else:
            ranges.append(split)
    return ranges


BUFFER: Final = 1 << 18
"""The number of bytes of results that a task collects before it emits them."""


@dataclass(frozen=True, slots=True)
class TimedLines:
    """Results as JSON lines, without the last line end, and the time at which each is emitted."""

    text: bytes
    times: npt.NDArray[np.float64]

    def timed(self) -> Iterator[tuple[float, bytes]]:
        return zip(self.times.tolist(), self.text.split(b"\n"), strict=True)


@dataclass(frozen=True, slots=True)
class SliceProgress:
    """Counts of a slice's own records so far. ``number``: of new results, if these are only counted."""

    counts: Counts
    number: int = 0


@dataclass(frozen=True, slots=True)
class Updated:
    """The end of a slice. ``begins``: of the results that its records updated. ``end``: in seconds."""

    begins: tuple[Begin, ...]
    end: float


Emitted: TypeAlias = TimedLines | SliceProgress | Updated | Sequence[BadRecord] | int
"""A message of a task; an integer is the number of bytes of the slice's own records that it has read."""


class BeginsOfSlices:
    """The begins of results that several slices updated, one slice after the other.

    A slice knows a result from the window before it on; earlier slices know when the result began.
    """

    def __init__(self) -> None:
        self._begins: dict[tuple[str, str, float | None], Begin] = {}  # by name of the query, id and version

    def take(self, updated: Updated) -> None:
        """Add the begins of a slice that has ended."""
        new_begins = {}
        for begin in updated.begins:
            former = self._begins.get((begin.name, begin.id, begin.begin))
            corrected = begin if former is None else begin._replace(begin=former.begin)
            new_begins[begin.name, begin.id, begin.version] = corrected
        self._begins = {
            name: begin
            for name, begin in (self._begins | new_begins).items()
            if begin.end is None or begin.end > updated.end
        }

    def with_known_begin(self, line: bytes) -> bytes:
        """A result of the next slice, with the begin that earlier slices know."""
        if not self._begins or line.startswith(_INSERTION):
            return line
        result = Result.from_json(line)
        begin = self._begins.get((result.name, result.id, result.start))
        if begin is None:
            return line
        return replaced(result, start=begin.begin).pack()


_INSERTION: Final = b'{"op":"+"'


class Timed(Protocol):
    """Some results; they may be on disk."""

    def timed(self) -> Iterator[tuple[float, bytes]]:
        """The results as JSON lines, with the times at which they are emitted."""


class SlicedRun(ABC):
    """A query over a finite stream that is cut into slices. ``counts``: of the slices with emitted results.

    ``read`` is called with numbers of bytes that were read.
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

    def close(self) -> None:  # noqa: B027 - not every run has resources
        """Release the resources of the run."""

    def results(self, bad: BadRecordLog) -> Iterator[LiveResult]:
        """Results in order of time, encoded; ``bad`` gets the bad records meanwhile.

        Raises BadRecordsError, SourceError, MemoryBudgetError.
        """
        messages = self._slices(bad, counting=False)
        if self.slicing.keys is None:
            lines = self._in_turn(messages)
        else:  # merged from all parts, once they are complete
            parts = [list(part) for part in messages]
            timed = [(each for message in part for each in _timed(message)) for part in parts]
            lines = (line for _, line in heapq.merge(*timed, key=itemgetter(0)))
        yield from map(EncodedResult, lines)

    def _in_turn(self, slices: Iterable[Iterable[Timed | SliceProgress | Updated]]) -> Iterator[bytes]:
        """The lines of the slices, one slice after the other."""
        begins = BeginsOfSlices()
        for messages in slices:
            for message in messages:
                if isinstance(message, Updated):
                    begins.take(message)
                else:
                    yield from (begins.with_known_begin(line) for _, line in _timed(message))

    def counted(self, bad: BadRecordLog) -> Iterator[int]:
        """The number of results of a pattern, in parts, without forming them. Raises as ``results``."""
        for messages in self._slices(bad, counting=True):
            for message in messages:
                if isinstance(message, SliceProgress):
                    yield message.number

    @abstractmethod
    def _searched(self, *, counting: bool) -> Iterator[Iterable[Emitted | Timed]]:
        """The messages of each slice's task, in order of the slices."""

    def _slices(
        self, bad: BadRecordLog, *, counting: bool
    ) -> Iterator[Iterator[Timed | SliceProgress | Updated]]:
        for messages in self._searched(counting=counting):
            yield self._slice_results(messages, self.counts, bad)

    def _slice_results(
        self, messages: Iterable[Emitted | Timed], counts_before: Counts, bad: BadRecordLog
    ) -> Iterator[Timed | SliceProgress | Updated]:
        """The results of a slice; ``counts_before``: the counts of the slices before it."""
        for message in messages:
            if isinstance(message, int):
                self._read(message)
            elif isinstance(message, SliceProgress):
                self.counts = summed(counts_before, message.counts)
                yield message
            elif isinstance(message, Sequence):
                bad.take(message)
            else:
                yield message


def _timed(message: Timed | SliceProgress | Updated) -> Iterator[tuple[float, bytes]]:
    return iter(()) if isinstance(message, SliceProgress | Updated) else message.timed()


def search_range(ranges: SliceRanges, queries: Sequence[Query], stream: Stream) -> Iterator[Emitted]:
    """The messages of a slice of files in order of time, which this function reads."""
    expect_long_lived_objects()
    run = SliceRun(queries, stream, ranges.slice)
    messages: list[Emitted] = []
    yield from _messages(run, ranges.run(run, stream, messages.append, messages.append), messages)


def search_pieces(
    slice_: Slice,
    queries: Sequence[Query],
    stream: Stream,
    pieces: Iterable[tuple[PackedPiece, RecordBatch]],
    *,
    counting: bool,
) -> Iterator[Emitted]:
    """The messages of a slice of packed pieces. ``counting``: only count; the only query is a pattern."""
    expect_long_lived_objects()
    run = SliceRun(queries, stream, slice_)
    records = in_order(pieces)
    if counting:
        for number in run.count(*records):
            yield SliceProgress(run.counts, number)
    else:
        yield from _messages(run, run.results(*records), [])


def _messages(run: SliceRun, results: Iterable[LiveResult], messages: list[Emitted]) -> Iterator[Emitted]:
    """The results in groups, and the ``messages`` that arrive meanwhile. Counts are complete at the end."""
    lines: list[bytes] = []
    times: list[float] = []
    size = 0
    for result in results:
        line = result.parsed.pack()
        lines.append(line)
        times.append(moment(result))
        size += len(line)
        if size > BUFFER:
            yield from _drain(run, lines, times, messages)
            size = 0
    yield from _drain(run, lines, times, messages)
    if begins := run.begins():
        yield Updated(begins, run.end / MICROSECOND)


def _drain(
    run: SliceRun, lines: list[bytes], times: list[float], messages: list[Emitted]
) -> Iterator[Emitted]:
    yield from messages
    messages.clear()
    yield SliceProgress(run.counts)
    if lines:
        yield TimedLines(b"\n".join(lines), np.array(times))
        lines.clear()
        times.clear()
