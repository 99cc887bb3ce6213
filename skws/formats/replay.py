"""A replay: files read as static tables and a stream in order of time.

The stream is sorted in bounded memory: sorted runs are spilled to disk, then
merged. The sort is stable: records of equal time keep their order of arrival.
Runs are JSON, which reads back nothing but values. Records that arrive in order
make one long run, which is neither sorted nor merged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias, TypeVar

import orjson

from skws.data.batch import RecordBatch, batched
from skws.data.record import BadRecord, Record
from skws.formats.dead_letters import BadRecordLog
from skws.formats.files import SPLIT_BYTES, Advance, Format, Split, ignore
from skws.formats.jsonl_columns import ChunkReader, reads_columns
from skws.formats.jsonl_order import in_order
from skws.formats.splits import NoRecordsError, plan, read_split, skipped_notes
from skws_schema.errors import SourceError
from skws_schema.memory import check
from skws_schema.model import Schema

MEMORY_RECORDS: Final = 500_000
OPEN_RUNS: Final = 64
# Records a line of a run: enough that JSON, not Python, does the work.
LINE_RECORDS: Final = 512
_time = itemgetter(1)


def sorted_records(items: Iterable[Record], *, memory_records: int = MEMORY_RECORDS) -> Iterator[Record]:
    """``items`` by time, in order of arrival where times are equal, ``memory_records`` in memory at most.

    Values are those of ``skws_schema.model.Value``, integers of at most 64 bits. The
    temporary files are gone when the iterator ends, is closed, or fails.
    Raises SourceError if the temporary directory cannot be written.
    """
    if memory_records < 1:
        raise ValueError(f"memory_records must be positive, not {memory_records}")
    source = iter(items)
    chunk = sorted(islice(source, memory_records), key=_time)
    following = next(source, None)
    if following is None:
        yield from chunk
        return
    with TemporaryDirectory(prefix="skws-sort-") as directory:
        runs = _Runs(Path(directory))
        while following is not None:
            runs.add(chunk)
            # Two chunks in memory at once would break the bound.
            chunk.clear()
            chunk.append(following)
            chunk.extend(islice(source, memory_records - 1))
            chunk.sort(key=_time)
            following = next(source, None)
        with closing(runs.merged(chunk)) as records:
            yield from records


class _Runs:
    """Sorted runs on disk, in order of arrival."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths: list[Path] = []
        self._made = 0
        self._last = 0

    def add(self, chunk: list[Record]) -> None:
        """Spill a sorted chunk: to the last run if it continues it, else as a new run."""
        if not self._paths or chunk[0].time < self._last:
            self._paths.append(self._new_path())
        self._last = chunk[-1].time
        _write_run(self._paths[-1], chunk)

    def merged(self, chunk: list[Record]) -> Generator[Record, None, None]:
        """The records of all runs and of ``chunk``, which arrived last."""
        while len(self._paths) > OPEN_RUNS:
            # Neighbours only, so that the order of arrival is kept.
            groups = [self._paths[i : i + OPEN_RUNS] for i in range(0, len(self._paths), OPEN_RUNS)]
            self._paths = [self._merge(group) for group in groups]
        if len(self._paths) == 1 and chunk[0].time >= self._last:
            yield from _read_run(self._paths[0])
            yield from chunk
        else:
            yield from merge(*map(_read_run, self._paths), chunk, key=_time)

    def _merge(self, group: list[Path]) -> Path:
        target = self._new_path()
        _write_run(target, merge(*map(_read_run, group), key=_time))
        for path in group:
            path.unlink()
        return target

    def _new_path(self) -> Path:
        self._made += 1
        return self._directory / f"{self._made}.jsonl"


def _write_run(path: Path, records: Iterable[Record]) -> None:
    source = iter(records)
    try:
        with path.open("ab") as file:
            # orjson writes tuples, but not named tuples.
            while batch := [tuple(record) for record in islice(source, LINE_RECORDS)]:
                file.write(orjson.dumps(batch))
                file.write(b"\n")
    except OSError as error:
        raise SourceError(f"{path}: cannot write sorted records: {error.strerror}") from None


def _read_run(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for line in file:
            for relation, time, row, delete in orjson.loads(line):
                yield Record(relation, time, tuple(row), delete)


Progress: TypeAlias = Callable[[int], None]
T = TypeVar("T")


class Replay:
    """Replay files. ``splits``: their parts in order of arrival; ``size_bytes``: their bytes on disk.

    ``notes``: lines on files of directories that are left out.
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

    def tables(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[Record]:
        """The rows of static tables, at time 0, to be loaded before the stream.

        Bad records of files that hold streams, too, are left to ``stream``,
        which reads them again. ``progress`` gets the bytes read so far.
        Raises BadRecordsError, SourceError.
        """
        if not self._tables:
            return
        meter = _Meter(progress)
        for split in self.splits:
            if split.relation in self._tables or (split.relation is None and not self._has_streams):
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

        ``progress`` gets the bytes read so far, without those of ``tables``.
        Everything is read before the first record is given; at most
        ``memory_records`` are in memory. Raises BadRecordsError, SourceError.
        """
        return sorted_records(self.arrivals(policy, progress), memory_records=memory_records)

    def batches(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[RecordBatch]:
        """The records of ``stream`` in batches; read on demand if the files are in order of time."""
        for batch in self._batches(policy, progress):
            check()
            yield batch

    def _batches(self, policy: BadRecordLog, progress: Progress) -> Iterator[RecordBatch]:
        if not self.in_order:
            yield from batched(self.stream(policy, progress))
            return
        meter = _Meter(progress)
        if self._columnar:
            from skws.formats import parquet  # noqa: PLC0415 - only Parquet loads Arrow

            yield from parquet.batches(self._streams, self.schema, meter.advance)
            return
        reader = ChunkReader(self.schema)
        for split in self.splits:
            for chunk in meter.metered(split, reader.read):
                for bad in chunk.bad:
                    policy.add(bad)
                yield chunk.without(self._tables).records

    @cached_property
    def in_order(self) -> bool:
        """True if ``batches`` reads on demand; otherwise all is read and sorted first. Raises SourceError."""
        if not self._has_streams:
            return False
        if self._columnar:
            from skws.formats import parquet  # noqa: PLC0415 - only Parquet loads Arrow

            return parquet.plain(self._streams, self.schema)
        return all(reads_columns(split, self.schema) for split in self.splits) and in_order(self.splits)

    def parts(self) -> Iterator[Replay]:
        """The splits, each alone, if they follow each other in order of time; else all together."""
        if not self.in_order or self._columnar:
            yield self
            return
        for split in self.splits:
            yield self._of((split,))

    def since(self, part: int) -> Replay:
        return self._of(self.splits[part:]) if part else self

    def _of(self, splits: Sequence[Split]) -> Replay:
        """Some splits, which are known to be in order of time."""
        replay = Replay(splits, self.schema)
        replay.__dict__["in_order"] = True
        return replay

    @property
    def _columnar(self) -> bool:
        return all(s.format is Format.PARQUET and s.relation is not None for s in self.splits)

    @property
    def _streams(self) -> list[Split]:
        """The files that hold more than rows of static tables."""
        return [split for split in self.splits if split.relation not in self._tables]

    def arrivals(self, policy: BadRecordLog, progress: Progress = ignore) -> Iterator[Record]:
        """The records of ``stream`` in the order of the files."""
        meter = _Meter(progress)
        for split in self._streams if self._has_streams else ():
            for record in policy.records(meter.read(split, self.schema)):
                if record.relation not in self._tables:
                    yield record


class _Meter:
    """Bytes read of all splits; a split counts its size, however much was read around it."""

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
        self.advance(split.size)

    def advance(self, count: int) -> None:
        self._done += count
        self._progress(self._done)
