"""A replay: the files that stand for a stream, as tables to load and a stream in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, TypeVar

from purging.memory import check
from schema.model import Schema
from skws.batches import RecordBatch, batched
from skws.records import BadRecord, Record
from skws.replay.chunks import ChunkReader, reads_columns
from skws.replay.files import Advance, ignore
from skws.replay.merge import MEMORY_RECORDS, sorted_records
from skws.replay.ordered import in_order
from skws.replay.policy import BadRecordLog
from skws.replay.reader import read_split
from skws.replay.splits import SPLIT_BYTES, Format, Split, plan

Progress: TypeAlias = Callable[[int], None]
T = TypeVar("T")


class Replay:
    """Replay files, planned.

    ``splits``: their parts in order of arrival; ``size_bytes``: their bytes on disk.
    """

    def __init__(self, splits: Sequence[Split], schema: Schema) -> None:
        self.splits = tuple(splits)
        self.schema = schema
        self.size_bytes = sum(split.size for split in splits)
        self._tables = frozenset(i for i, r in enumerate(schema.relations) if r.table)

    @classmethod
    def open(cls, paths: Path | Sequence[Path], schema: Schema, *, split_bytes: int = SPLIT_BYTES) -> Replay:
        """The replay of files and directories. Raises SourceError as ``plan`` does."""
        splits: list[Split] = []
        for path in [paths] if isinstance(paths, Path) else paths:
            splits += plan(path, schema, split_bytes=split_bytes, first=len(splits))
        return cls(splits, schema)

    def tables(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[Record]:
        """The rows of static tables, at time 0. To be loaded before the stream.

        Bad records of files that hold streams as well are left to ``stream``,
        which reads them again. ``progress`` is told the bytes read so far.
        Raises BadRecordsError, SourceError.
        """
        if not self._tables:
            return
        meter = _Meter(progress)
        for split in self.splits:
            if split.relation in self._tables or (split.relation is None and not self._has_streams()):
                yield from policy.records(meter.read(split, self.schema))
            elif split.relation is None:
                for item in read_split(split, self.schema):
                    if type(item) is Record and item.relation in self._tables:
                        yield item

    def stream(
        self,
        policy: BadRecordLog,
        progress: Progress = ignore,
        *,
        memory_records: int = MEMORY_RECORDS,
    ) -> Iterator[Record]:
        """All other records by time, in order of arrival where times are equal.

        ``progress`` is told the bytes read so far, those of the tables apart.
        Everything is read before the first record comes out; at most
        ``memory_records`` are in memory. Raises BadRecordsError, SourceError.
        """
        return sorted_records(self.arrivals(policy, progress), memory_records=memory_records)

    def batches(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[RecordBatch]:
        """The records of ``stream`` by the thousand; read as they are asked for if the files are in order."""
        for batch in self._batches(policy, progress):
            check()
            yield batch

    def _batches(self, policy: BadRecordLog, progress: Progress) -> Iterator[RecordBatch]:
        if self._columnar:
            yield from self._parquet_columns(policy, progress)
            return
        if not self.in_order:
            yield from batched(self.stream(policy, progress))
            return
        meter = _Meter(progress)
        reader = ChunkReader(self.schema)
        for split in self.splits:
            for chunk in meter.metered(split, reader.read):
                if isinstance(chunk, RecordBatch):
                    yield chunk
                else:
                    records = policy.records(chunk)
                    yield from batched(r for r in records if r.relation not in self._tables)

    @cached_property
    def in_order(self) -> bool:
        """True if ``batches`` gives records as they are read; otherwise all are read, and sorted, first."""
        if self._columnar:
            return True
        plain = all(reads_columns(split, self.schema) for split in self.splits)
        return plain and self._has_streams() and in_order(self.splits)

    @property
    def _columnar(self) -> bool:
        return self._has_streams() and all(
            split.format is Format.PARQUET and split.relation is not None for split in self.splits
        )

    def _parquet_columns(self, policy: BadRecordLog, progress: Progress) -> Iterator[RecordBatch]:
        from skws.replay import parquet_columns  # noqa: PLC0415 - only Parquet loads Arrow

        streams = [split for split in self.splits if split.relation not in self._tables]
        if not parquet_columns.plain(streams, self.schema):
            yield from batched(self.stream(policy, progress))
            return
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(done)

        yield from parquet_columns.batches(streams, self.schema, advance)

    def arrivals(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[Record]:
        """The records of ``stream`` in the order of the files."""
        meter = _Meter(progress)
        for split in self.splits:
            if split.relation not in self._tables and self._has_streams():
                records = policy.records(meter.read(split, self.schema))
                if split.relation is None and self._tables:
                    records = (r for r in records if r.relation not in self._tables)
                yield from records

    def _has_streams(self) -> bool:
        return len(self._tables) < len(self.schema.relations)


class _Meter:
    """Bytes done over all splits; a split counts for its size, however much was read around it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0

    def read(self, split: Split, schema: Schema) -> Iterator[Record | BadRecord]:
        return self.metered(split, lambda part, advance: read_split(part, schema, advance))

    def metered(self, split: Split, read: Callable[[Split, Advance], Iterator[T]]) -> Iterator[T]:
        part = 0

        def advance(count: int) -> None:
            nonlocal part
            part = min(part + count, split.size)
            self._progress(self._done + part)

        yield from read(split, advance)
        self._done += split.size
        self._progress(self._done)
