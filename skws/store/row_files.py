"""Files of live rows, which are written once and mapped into memory (docs/architecture/store.md).

A row file has records in portions, in the layout of ``skws.data.packing``. It never changes; a reference to
it also says which of its rows are live. Rows are read in place, so they only take memory that the system does
not need for something else.
"""

from __future__ import annotations

import mmap
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from skws.data.batch import BATCH, NO_RECORDS, RecordBatch, Rows, concat_batches, whole_groups
from skws.data.blocks import BlockFile, ColumnBlock, MappedBlock
from skws.data.packing import decode, encode, times_in
from skws.durable import PRIVATE, GrowingFile, damaged, explained, missing, remove_file
from skws.store import row_bitmaps
from skws.store.live_store import LiveRecords
from skws.store.row_bitmaps import FileBitmaps
from skws_mesh.columnar.columns import Flags, Ints, distinct

SUFFIX: Final = ".rows"
LEAST: Final = BATCH
"""The fewest rows for which a file is written."""
MOST: Final = 16
"""The most files of a log; if there are more, those with the fewest live rows are merged."""


class RowFile:
    """An open row file. ``portions``: the size in bytes and the checksum of each. ``rows``: their number.

    ``firsts``: the number of the first row of each portion, then ``rows``.
    """

    def __init__(self, path: Path, portions: Sequence[tuple[int, int]]) -> None:
        """Raises StateError for a file that is missing, or was damaged."""
        self.path = path
        self.portions = portions
        self._data = mapped(path)
        self._ends = np.cumsum([0, *(size for size, _ in portions)], dtype=np.int64).tolist()
        self.firsts = [0]
        for number, (size, checksum) in enumerate(portions):
            data = self._bytes(number)
            if len(data) < size or crc32(data) != checksum:
                raise damaged(path)
            self.firsts.append(self.firsts[-1] + len(times_in(data)))
            self.release()
        if self._ends[-1] < len(self._data):
            raise damaged(path, f" after byte {self._ends[-1]:,}")

    @property
    def rows(self) -> int:
        return self.firsts[-1]

    @property
    def content(self) -> str:
        """See ``BlockFile``."""
        return " ".join(f"{size}:{checksum:x}" for size, checksum in self.portions)

    @classmethod
    def write(cls, path: Path, parts: Iterable[RecordBatch]) -> RowFile:
        """Write and sync insertions, each part as a portion. Raises StateError."""
        portions = []
        with (
            explained(f"{path}: cannot write"),
            closing(GrowingFile(path, mode=PRIVATE, anew=True)) as file,
        ):
            for part in parts:
                data = encode(part)
                file.append(data)
                portions.append((len(data), crc32(data)))
            file.sync()
        return cls(path, portions)

    def read(self) -> RecordBatch:
        """All records."""
        return concat_batches([self.portion(number) for number in range(len(self.portions))])

    def portion(self, number: int) -> RecordBatch:
        """The records of a portion. Its rows are numbered relation by relation."""
        batch, _ = decode(self._bytes(number))
        first, blocks = self.firsts[number], []
        for block in batch.rows.blocks:
            if isinstance(block, ColumnBlock):  # true for all
                blocks.append(MappedBlock(block, self, first))
                first += len(block)
        return replace(batch, rows=replace(batch.rows, blocks=tuple(blocks)))

    def times(self, number: int) -> Ints:
        """The times of the records of a portion."""
        return times_in(self._bytes(number))

    def release(self) -> None:
        """Let the system drop the pages that were read; it reads them again when they are needed."""
        buffer = self._data.obj
        if isinstance(buffer, mmap.mmap):
            buffer.madvise(mmap.MADV_DONTNEED)

    def _bytes(self, number: int) -> memoryview:
        return self._data[self._ends[number] : self._ends[number + 1]]

    def description(self, live: Flags) -> dict[str, Any]:
        """A description from which ``RowFiles.read`` finds the ``live`` rows again."""
        bits = None if live.all() else b64encode(np.packbits(live).tobytes()).decode()
        return {"name": self.path.name, "portions": self.portions, "live": bits}

    def release_pages(self) -> None:
        """As ``release``; also turns off read-ahead, as only single rows are read from now on."""
        buffer = self._data.obj
        if isinstance(buffer, mmap.mmap):
            buffer.madvise(mmap.MADV_RANDOM)
        self.release()


def mapped(path: Path) -> memoryview:
    """Map a file into memory. Raises StateError."""
    with explained(f"{path}: cannot read"):
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise missing(path) from None
        try:
            if not os.fstat(handle).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(handle, 0, prot=mmap.PROT_READ))
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class Stored:
    """``files``: as ``RowFile.description`` describes them. ``rest``: the other records, in order of time."""

    files: list[dict[str, Any]]
    rest: RecordBatch


class _Portion(NamedTuple):
    """A portion of a file. ``live``: True for its live records, in order; None if all are live."""

    file: RowFile
    number: int
    live: Flags | None

    def times(self) -> Ints:
        times = self.file.times(self.number)
        return times if self.live is None else times[self.live]

    def records(self) -> RecordBatch:
        batch = self.file.portion(self.number)
        return batch if self.live is None else batch.take(self.live)


class StoredRecords:
    """Records of row files and the ``rest``, all in order of time; at equal times, the rest comes first.

    They are read in parts, so that memory does not hold all records beside what is made of them.
    """

    def __init__(self, rest: RecordBatch, portions: Sequence[_Portion]) -> None:
        self.rest = rest
        self._portions = portions
        self.latest: int | None = None
        """The latest time; None without records."""
        self._in_files = -len(rest)
        for times in self._times():
            self._in_files += len(times)
            if len(times):
                latest = int(times.max())
                self.latest = latest if self.latest is None else max(self.latest, latest)

    def __len__(self) -> int:
        return len(self.rest) + self._in_files

    @property
    def insertions(self) -> int:
        """The number of records that insert."""
        return self.rest.insertions + self._in_files

    @property
    def whole(self) -> RecordBatch:
        """All records in one batch."""
        return next(self.parts(len(self)), self.rest)

    def in_files(self) -> StoredRecords:
        """Only the records of row files, which are insertions."""
        return StoredRecords(NO_RECORDS, self._portions)

    def parts(self, size: int) -> Iterator[RecordBatch]:
        """The records in batches of about ``size``, of whole portions if possible."""
        times = list(self._times())
        sizes = np.array(list(map(len, times)))
        firsts, remaining_counts = np.cumsum(sizes) - sizes, sizes.copy()
        order = np.argsort(np.concatenate(times), kind="stable").astype(np.int32)
        del times
        source = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes).take(order)
        records_by_source, files = {0: self.rest}, {portion.file for portion in self._portions}
        for part in whole_groups(source, len(sizes), size):
            numbers, sources = order[part], source[part]
            batches, places = [], []
            for number in distinct(sources).tolist():
                if number not in records_by_source:
                    records_by_source[number] = self._portions[number - 1].records()
                positions = np.flatnonzero(sources == number)
                places.append(positions)
                batches.append(records_by_source[number].take(numbers[positions] - firsts[number]))
                remaining_counts[number] -= len(positions)
            batch = concat_batches(batches)
            if len(batches) > 1:
                batch = batch.take(np.argsort(np.concatenate(places)))
            yield batch
            records_by_source = {
                number: records for number, records in records_by_source.items() if remaining_counts[number]
            }
            for file in files:
                file.release()

    def _times(self) -> Iterator[Ints]:
        """The times of the records of each source."""
        yield self.rest.time
        for portion in self._portions:
            yield portion.times()


@dataclass(slots=True)
class RowFiles:
    """The row files of one log, in its folder; one process writes. Raises StateError."""

    folder: Path
    _open: dict[str, RowFile] = field(default_factory=dict)

    def store(self, records: LiveRecords, name: str) -> Stored:
        """Store records: live tuples stay in their files; if there are many others, a new file is written.

        ``name``: of the new file. The store of the tuples then refers to the rows in the file.
        """
        directory = records.store.directory
        sizes: dict[BlockFile, int] = {file: file.rows for file in self._open.values()}
        rows = directory.rows_in_files(records.live, sizes)
        live = {file: rows[file] for file in self._open.values()}
        kept_files = self._worth_keeping(live)
        moving_slots = records.slots(records.live & ~directory.in_files(kept_files))
        other_records, files = (
            records.leading,
            [file.description(live[file]) for file in live if file in kept_files],
        )
        if len(moving_slots) >= LEAST:
            file = self._write(name, records, moving_slots)
            files.append(file.description(np.ones(file.rows, dtype=bool)))
        elif len(moving_slots):
            other_records = _in_time(
                concat_batches([other_records, records.insertions_of(moving_slots)])
            ).compact()
        self.release_pages()
        return Stored(files, other_records)

    def _write(self, name: str, records: LiveRecords, slots: Ints) -> RowFile:
        """Write a file for some live tuples."""
        file = RowFile.write(self.folder / f"{name}{SUFFIX}", self._insertions(records, slots))
        self._open[file.path.name] = file
        rows = file.read().rows
        bitmaps = records.bitmaps(slots)
        if bitmaps is not None and bitmaps.keys:
            FileBitmaps.of(bitmaps, _numbers(rows)).write(file)
        records.store.directory.move(slots, rows)
        return file

    def _insertions(self, records: LiveRecords, slots: Ints) -> Iterator[RecordBatch]:
        """Insertions of live tuples, in parts; releases the pages of their files."""
        for first in range(0, len(slots), BATCH):
            yield records.insertions_of(slots[first : first + BATCH])
            for file in self._open.values():
                file.release()

    def _worth_keeping(self, live: Mapping[RowFile, Flags]) -> set[RowFile]:
        """The files that stay: at least half of their rows are live, and there are at most ``MOST``."""
        counts = {file: int(np.count_nonzero(flags)) for file, flags in live.items()}
        worthy_files = sorted(
            (file for file in live if 2 * counts[file] >= file.rows), key=counts.__getitem__
        )
        return set(
            worthy_files if len(worthy_files) < MOST else worthy_files[len(worthy_files) - MOST // 2 :]
        )

    def read(self, files: Sequence[dict[str, Any]], rest: RecordBatch) -> StoredRecords:
        """The stored records in order of time. Raises StateError for missing and damaged files."""
        portions = []
        for description in files:
            name = description["name"]
            file = self._open.get(name) or RowFile(self.folder / name, description["portions"])
            self._open[name] = file
            flags: Flags | None = None
            if description["live"] is not None:
                bits = np.frombuffer(b64decode(description["live"]), dtype=np.uint8)
                flags = np.unpackbits(bits, count=file.rows).astype(bool)
            for number in range(len(file.portions)):
                live = None if flags is None else flags[_numbers(file.portion(number).rows)]
                portions.append(_Portion(file, number, live))
        return StoredRecords(rest, portions)

    def release_pages(self) -> None:
        """Release the pages of all files, as only single rows are read from now on."""
        for file in self._open.values():
            file.release_pages()

    def trim(self, files: Sequence[dict[str, Any]]) -> None:
        """Remove all files except these."""
        names = {description["name"] for description in files}
        self._open = {name: file for name, file in self._open.items() if name in names}
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.name not in names:
                remove_file(path)
        row_bitmaps.trim(self.folder, (self.folder / name for name in names))

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(size for file in self._open.values() for size, _ in file.portions)


def _in_time(batch: RecordBatch) -> RecordBatch:
    """The records in order of time."""
    if (batch.time[1:] >= batch.time[:-1]).all():
        return batch
    return batch.take(np.argsort(batch.time, kind="stable"))


def _numbers(rows: Rows) -> Ints:
    """The numbers of rows in their file."""
    numbers = np.empty(len(rows), dtype=np.int64)
    for block, positions, places in rows.by_block():
        if isinstance(block, MappedBlock):
            numbers[positions] = block.first + places
    return numbers
