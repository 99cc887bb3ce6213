"""A replay: files read as static tables and a stream in order of time.

The stream is sorted in bounded memory: sorted runs are spilled to disk, then merged. The sort is stable:
records of equal time keep their order of arrival. Records that arrive in order make one long run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import numpy as np

from skws.data.batch import (
    BATCH,
    MEMORY_RECORDS,
    NO_RECORDS,
    Chunk,
    Record,
    RecordBatch,
    concat_batches,
    merge_by_time,
    records_of,
)
from skws.data.packing import pack, unpack
from skws.data.value_conversion import LATEST
from skws.formats.dead_letters import BadRecordLog
from skws.formats.files import SPLIT_BYTES, Format, Split, Spool, ignore
from skws.formats.jsonl import reads_columns
from skws.formats.jsonl_order import in_order
from skws.formats.parquet import parquet
from skws.formats.splits import NoRecordsError, chunks, plan, skipped_notes
from skws_schema.budgets import check
from skws_schema.model import Schema

RUNS: Final = 64
"""The number of runs that are merged at a time; a part of each is in memory."""


def sorted_batches(
    batches: Iterable[RecordBatch], *, memory_records: int = MEMORY_RECORDS, runs_together: int = RUNS
) -> Iterator[RecordBatch]:
    """The records by time, and by arrival if times are equal; about ``memory_records`` are in memory.

    ``runs_together`` sorted runs are merged at a time. The temporary file is removed when the iterator ends,
    is closed, or fails. Raises SourceError if it cannot be written.
    """
    if memory_records < 1:
        raise ValueError(f"memory_records must be positive, not {memory_records}")
    pending: list[RecordBatch] = []
    runs: _Runs | None = None
    try:
        for batch in batches:
            pending.append(batch)
            if sum(map(len, pending)) >= memory_records:
                runs = runs or _Runs(max(1, memory_records // runs_together), runs_together)
                runs.add(_by_time(pending))
                pending = []
        last_batch = _by_time(pending)
        if runs is None:
            yield from _pieces(last_batch, BATCH)
        else:
            runs.add(last_batch)
            yield from runs.merge_by_time()
    finally:
        if runs is not None:
            runs.close()


def _by_time(batches: list[RecordBatch]) -> RecordBatch:
    batch = concat_batches(batches) if batches else NO_RECORDS
    return batch.take(np.argsort(batch.time, kind="stable")) if (np.diff(batch.time) < 0).any() else batch


def _pieces(batch: RecordBatch, size: int) -> Iterator[RecordBatch]:
    for begin in range(0, len(batch), size):
        yield batch.take(slice(begin, begin + size)).compact()


_Run: TypeAlias = list[tuple[int, int, int, int]]
"""Pieces in order of time: the first and last times, the offset in the file, and the size in bytes."""


class _Runs:
    """Sorted runs on disk, in order of arrival. ``size``: the records of a piece."""

    def __init__(self, size: int, runs_together: int) -> None:
        self._size = size
        self._runs_together = runs_together
        self._runs: list[_Run] = []
        self._spool = Spool()

    def add(self, batch: RecordBatch) -> None:
        """Spill sorted records: to the last run if they continue it, otherwise as a new run."""
        if len(batch):
            _, latest, *_ = self._runs[-1][-1] if self._runs else (0, LATEST + 1)
            if batch.time[0] < latest:
                self._runs.append([])
            self._runs[-1] += self._write([batch])

    def merge_by_time(self) -> Iterator[RecordBatch]:
        """The records of all runs."""
        while len(self._runs) > self._runs_together:
            # Only neighbours are merged, which preserves the order of arrival.
            groups = [
                self._runs[first : first + self._runs_together]
                for first in range(0, len(self._runs), self._runs_together)
            ]
            self._runs = [list(self._write(self._merge(group))) for group in groups]
        return self._merge(self._runs)

    def close(self) -> None:
        self._spool.close()

    def _merge(self, runs: Sequence[_Run]) -> Iterator[RecordBatch]:
        entries = [
            (piece, (number, index)) for number, run in enumerate(runs) for index, piece in enumerate(run)
        ]
        return merge_by_time(
            (piece[0], position, unpack(self._spool.read(*piece[2:]))) for piece, position in sorted(entries)
        )

    def _write(self, batches: Iterable[RecordBatch]) -> Iterator[tuple[int, int, int, int]]:
        for part in chain.from_iterable(_pieces(batch, self._size) for batch in batches):
            blob = pack(part)
            yield part.time.item(0), part.time.item(-1), self._spool.append(blob), len(blob)


Progress: TypeAlias = Callable[[int], None]
T = TypeVar("T")


class Replay:
    """Replay files. ``splits``: their parts in order of arrival; ``size_bytes``: their size on disk.

    ``notes``: lines on the files of directories that are left out.
    """

    def __init__(self, splits: Sequence[Split], schema: Schema, notes: Sequence[str] = ()) -> None:
        self.notes = tuple(notes)
        self.splits = tuple(splits)
        self.schema = schema
        self.size_bytes = sum(split.size for split in splits)
        self._tables = frozenset(i for i, r in enumerate(schema.relations) if r.table)
        self._has_streams = len(self._tables) < len(schema.relations)

    @classmethod
    def open(cls, paths: Path | Sequence[Path], schema: Schema, *, split_bytes: int = SPLIT_BYTES) -> Replay:
        """The replay of files and directories. Raises SourceError as ``plan`` does."""
        splits: list[Split] = []
        skipped: list[NoRecordsError] = []
        for path in [paths] if isinstance(paths, Path) else paths:
            splits += plan(path, schema, split_bytes=split_bytes, first=len(splits), skip=skipped.append)
        return cls(splits, schema, skipped_notes(skipped))

    def tables(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[RecordBatch]:
        """The rows of static tables, at time 0, to be loaded before the stream.

        Bad records of files with streams are left to ``stream``, which reads them again. ``progress`` gets
        the bytes read so far. Raises BadRecordsError, SourceError.
        """
        if not self._tables:
            return
        meter = _Meter(progress)
        for split in self.splits:
            if split.relation in self._tables or (split.relation is None and not self._has_streams):
                for chunk in meter.chunks(split, self.schema):
                    policy.take(chunk.bad)
                    yield chunk.records
            elif split.relation is None:
                for chunk in chunks(split, self.schema):
                    yield chunk.only(np.isin(chunk.records.relation, list(self._tables))).records

    def stream(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[Record]:
        """Like ``batches``, one record at a time."""
        return records_of(self.batches(policy, progress))

    def batches(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[RecordBatch]:
        """All other records by time, and by arrival if times are equal.

        They are read on demand if the files are in order of time; otherwise everything is read before the
        first record. ``progress`` gets the bytes read so far, without those of ``tables``. Raises
        BadRecordsError, SourceError.
        """
        for batch in self._batches(policy, progress):
            check()
            yield batch

    def _batches(self, policy: BadRecordLog, progress: Progress) -> Iterator[RecordBatch]:
        if self.in_order and self._is_columnar:
            return parquet().batches(self._streams, self.schema, _Meter(progress).advance)
        arrivals = self.arrivals(policy, progress)
        return arrivals if self.in_order else sorted_batches(arrivals)

    @cached_property
    def in_order(self) -> bool:
        """True if ``batches`` reads on demand; if not, everything is read and sorted first.

        Raises SourceError.
        """
        if not self._has_streams:
            return False
        if self._is_columnar:
            return parquet().plain(self._streams, self.schema)
        return all(reads_columns(split, self.schema) for split in self.splits) and in_order(self.splits)

    def parts(self) -> Iterator[Replay]:
        """A replay for each split if they follow one another in order of time; otherwise a single replay."""
        if not self.in_order or self._is_columnar:
            yield self
            return
        for split in self.splits:
            yield self._sub_replay((split,))

    def since(self, part: int) -> Replay:
        return self._sub_replay(self.splits[part:]) if part else self

    def _sub_replay(self, splits: Sequence[Split]) -> Replay:
        """The replay of some splits, which are in order of time."""
        replay = Replay(splits, self.schema)
        replay.__dict__["in_order"] = True
        return replay

    @property
    def _is_columnar(self) -> bool:
        return all(s.format is Format.PARQUET and s.relation is not None for s in self.splits)

    @property
    def _streams(self) -> list[Split]:
        """The files with more than rows of static tables."""
        return [split for split in self.splits if split.relation not in self._tables]

    def arrivals(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[RecordBatch]:
        """The records of ``batches`` in the order of the files."""
        meter = _Meter(progress)
        for split in self._streams if self._has_streams else ():
            for chunk in meter.chunks(split, self.schema):
                policy.take(chunk.bad)
                yield chunk.without(self._tables).records


class _Meter:
    """Reports the bytes read of all splits; a split counts as its size, even if more bytes are read."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bytes_done = 0

    def chunks(self, split: Split, schema: Schema) -> Iterator[Chunk]:
        bytes_read = 0

        def advance(count: int) -> None:
            nonlocal bytes_read
            bytes_read = min(bytes_read + count, split.size)
            self._progress(self._bytes_done + bytes_read)

        yield from chunks(split, schema, advance)
        self.advance(split.size)

    def advance(self, count: int) -> None:
        self._bytes_done += count
        self._progress(self._bytes_done)
