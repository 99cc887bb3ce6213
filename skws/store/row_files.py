"""Rows that live long, in files that are written once and mapped into memory (docs/architecture/store.md).

A row file has records in portions, each laid out as ``skws.data.packing`` says. It never changes; whoever
refers to it also keeps which of its rows live. Rows are read where they lie, so they take memory only while
the system has no better use for it.
"""

from __future__ import annotations

import mmap
import os
from base64 import b64decode, b64encode
from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np

from skws.data.batch import BATCH, RecordBatch, Rows, concat_batches
from skws.data.blocks import ColumnBlock, MappedBlock
from skws.data.packing import laid_in, laid_out
from skws.durable import PRIVATE, GrowingFile, damaged, explained, missing, removed
from skws.store.live_store import LastingRecords
from skws_mesh.columnar.columns import NOTHING, Flags, Ints

SUFFIX: Final = ".rows"
LEAST: Final = BATCH
"""Rows that are worth a file."""
MOST: Final = 16
"""Files of one log; if there were more, those with the fewest live rows would be written as one."""


class RowFile:
    """A file that is open. ``portions``: of each its bytes and their checksum. ``rows``: their number."""

    def __init__(self, path: Path, portions: Sequence[tuple[int, int]]) -> None:
        self.path = path
        self.portions = portions
        self.rows = 0
        self._data = mapped(path)

    @classmethod
    def write(cls, path: Path, batch: RecordBatch) -> tuple[RowFile, RecordBatch]:
        """Write insertions for good; gives the file, and the same records in it. Raises StateError."""
        portions = []
        with (
            explained(f"{path}: cannot write"),
            closing(GrowingFile(path, mode=PRIVATE, anew=True)) as file,
        ):
            for first in range(0, len(batch), BATCH):
                data = laid_out(batch.take(slice(first, first + BATCH)))
                file.append(data)
                portions.append((len(data), crc32(data)))
            file.sync()
        written = cls(path, portions)
        return written, written.read()

    def read(self) -> RecordBatch:
        """All records. Raises StateError for a file that was damaged."""
        at, parts, first = 0, [], 0
        for size, checksum in self.portions:
            data = self._data[at : at + size]
            at += size
            if len(data) < size or crc32(data) != checksum:
                raise damaged(self.path)
            batch, _ = laid_in(data)
            blocks = []
            for block in batch.rows.blocks:
                if isinstance(block, ColumnBlock):  # as all are
                    blocks.append(MappedBlock(block, self, first))
                    first += len(block)
            parts.append(replace(batch, rows=replace(batch.rows, blocks=tuple(blocks))))
        if at < len(self._data):
            raise damaged(self.path, f" behind byte {at:,}")
        self.rows = first
        return concat_batches(parts)

    def told(self, live: Ints) -> dict[str, Any]:
        """What to keep to find its live rows again, whose numbers are given."""
        bits = None
        if len(live) < self.rows:
            flags = np.zeros(self.rows, dtype=bool)
            flags[live] = True
            bits = b64encode(np.packbits(flags).tobytes()).decode()
        return {"name": self.path.name, "portions": self.portions, "live": bits}

    def release_pages(self) -> None:
        """From now on a row is read here and there: what was read of the others need not stay in memory."""
        whole = self._data.obj
        if isinstance(whole, mmap.mmap):
            whole.madvise(mmap.MADV_RANDOM)
            whole.madvise(mmap.MADV_DONTNEED)


def mapped(path: Path) -> memoryview:
    """The content of a file, which is read when it is looked at. Raises StateError."""
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
    """``files``: what to keep to find the rows again. ``rest``: records in no file, in order of time."""

    files: list[dict[str, Any]]
    rest: RecordBatch


@dataclass(slots=True)
class RowFiles:
    """The row files of one log, in its folder; one process writes. Raises StateError."""

    folder: Path
    _open: dict[str, RowFile] = field(default_factory=dict)

    def store(self, lasting: LastingRecords, name: str) -> Stored:
        """Keep records in files: live tuples in those that they are in, or many in one of this name.

        The store of the tuples then has their rows there.
        """
        directory = lasting.store.directory
        reused = self._worth_keeping(directory.in_each_file(lasting.live))
        moving = lasting.slots(lasting.live & ~directory.in_files(reused))
        rest = lasting.leading
        if len(moving) >= LEAST:
            reused.add(self._write(name, lasting, moving))
        elif len(moving):
            rest = _in_time(concat_batches([rest, lasting.insertions_of(moving)])).compact()
        self.release_pages()
        live = self._mine(directory.in_each_file(lasting.live))
        return Stored([file.told(live[file]) for file in live if file in reused], rest)

    def _write(self, name: str, lasting: LastingRecords, slots: Ints) -> RowFile:
        """A new file for some live tuples."""
        file, batch = RowFile.write(self.folder / f"{name}{SUFFIX}", lasting.insertions_of(slots))
        self._open[file.path.name] = file
        lasting.store.directory.move(slots, batch.rows)
        return file

    def _worth_keeping(self, rows: Mapping[Hashable, Ints]) -> set[RowFile]:
        """The files that stay, as enough of their rows live and they are few."""
        live = self._mine(rows)
        worthy = sorted(
            (file for file in live if 2 * len(live[file]) >= file.rows), key=lambda f: len(live[f])
        )
        return set(worthy if len(worthy) < MOST else worthy[len(worthy) - MOST // 2 :])

    def _mine(self, rows: Mapping[Hashable, Ints]) -> dict[RowFile, Ints]:
        """Files of this log; others are removed, and were once."""
        return {file: rows[file] for file in self._open.values() if len(rows.get(file, NOTHING))}

    def read(self, files: Sequence[dict[str, Any]], rest: RecordBatch) -> RecordBatch:
        """The records that were kept, in order of time."""
        parts = [rest]
        for told in files:
            name = told["name"]
            file = self._open.get(name) or RowFile(self.folder / name, told["portions"])
            self._open[name] = file
            batch = file.read()
            if told["live"] is not None:
                bits = np.frombuffer(b64decode(told["live"]), dtype=np.uint8)
                live: Flags = np.unpackbits(bits, count=file.rows).astype(bool)
                batch = batch.take(live[_numbers(batch.rows)])
            parts.append(batch)
        return _in_time(concat_batches(parts))

    def release_pages(self) -> None:
        """From now on a row is read here and there."""
        for file in self._open.values():
            file.release_pages()

    def trim(self, files: Sequence[dict[str, Any]]) -> None:
        """Remove all files but some."""
        names = {told["name"] for told in files}
        self._open = {name: file for name, file in self._open.items() if name in names}
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.name not in names:
                removed(path)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(size for file in self._open.values() for size, _ in file.portions)


def _in_time(batch: RecordBatch) -> RecordBatch:
    """Records in order of time."""
    if (batch.time[1:] >= batch.time[:-1]).all():
        return batch
    return batch.take(np.argsort(batch.time, kind="stable"))


def _numbers(rows: Rows) -> Ints:
    """The numbers of all rows of a file in it."""
    numbers = np.empty(len(rows), dtype=np.int64)
    for block, mine, places in rows.by_block():
        if isinstance(block, MappedBlock):
            numbers[mine] = block.first + places
    return numbers
