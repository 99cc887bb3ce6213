"""A replay in order of time, cut by looking at times alone: ranges of bytes, each read by who searches it.

    timed_blocks of each split -> blocks_of -> plan_slices -> SliceRanges of each slice -> results

No record leaves the process that reads it. Nothing here knows who runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from skws.data.batch import RecordBatch
from skws.data.record import BadRecord
from skws.formats.files import Split
from skws.formats.jsonl_columns import ChunkReader, reads_columns
from skws.formats.jsonl_order import TimedBlock
from skws.formats.pieces import Holds, Piece
from skws.queries.slices import Slice, SliceRun
from skws.results.model import LiveResult
from skws.spec.query import KEYWORDS, TOP, Query
from skws.spec.stream import Stream
from skws_schema.memory import check
from skws_windows.window import TimeWindow, Window

Blocks: TypeAlias = list[tuple[Piece, Split]]
"""Ranges of files, described as pieces that are still to be read."""


def has_ranges(splits: Sequence[Split], queries: Sequence[Query], stream: Stream, window: Window) -> bool:
    """Whether a replay can be cut into ranges of bytes if it is in order of time."""
    return (
        all(query.kind in (KEYWORDS, TOP) for query in queries)
        and isinstance(window, TimeWindow)
        and not any(relation.table for relation in stream.schema.relations)
        and all(reads_columns(split, stream.schema) for split in splits)
    )


def blocks_of(timed: Iterable[tuple[Split, Sequence[TimedBlock] | None]]) -> Blocks | None:
    """The blocks of splits, which come in order of arrival; None if they are, or may be, out of order."""
    found: Blocks = []
    early: list[Split] = []  # blocks without a record before the first one with a time
    for split, blocks in timed:
        if blocks is None:
            return None
        for block in blocks:
            part = replace(split, start=block.start, end=block.end)
            if block.first is None and not found:
                early.append(part)
                continue
            found.append((_piece(split.ordinal, len(found), block, found), part))
    if not found or any(a.last > b.first for (a, _), (b, _) in pairwise(found)):
        return None
    first = found[0][0]
    nothing = [(replace(first, number=-1, last=first.first, size=0), part) for part in early]
    return [*nothing, *found]


def _piece(split: int, number: int, block: TimedBlock, before: Blocks) -> Piece:
    """A block as a piece; without times it goes with the one before."""
    if block.first is None or block.last is None:
        last = before[-1][0].last
        return Piece(split, number, Holds.RECORDS, last, last, 0)
    return Piece(split, number, Holds.RECORDS, block.first, block.last, block.size)


@dataclass(frozen=True, slots=True)
class SliceRanges:
    """What a slice reads: before its own records, and with them.

    A block belongs to the slice in which it begins, so that each bad record is found once.
    """

    slice: Slice
    context: Sequence[Split]
    own: Sequence[Split]

    @classmethod
    def of(cls, one: Slice, blocks: Blocks) -> SliceRanges:
        read = [(piece, split) for piece, split in blocks if one.reads(piece)]
        context = [split for piece, split in read if piece.first < one.begin]
        return cls(
            one, _joined(context), _joined([split for piece, split in read if piece.first >= one.begin])
        )

    def run(
        self,
        run: SliceRun,
        stream: Stream,
        progress: Callable[[int], None],
        bad: Callable[[Sequence[BadRecord]], None],
    ) -> Iterator[LiveResult]:
        """Read and search; ``progress`` and ``bad`` hear of its own records. Raises SourceError."""
        reader = ChunkReader(stream.schema)

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


def _joined(splits: Iterable[Split]) -> list[Split]:
    """Consecutive ranges as one."""
    found: list[Split] = []
    for split in splits:
        if found and found[-1].path == split.path and found[-1].end == split.start:
            found[-1] = replace(found[-1], end=split.end)
        else:
            found.append(split)
    return found
