"""Replay files as packed pieces: each is read and packed once, in any process, and then moves as bytes.

A piece says what a planner asks of it - its times, and what is in it - so that who divides the work
unpacks nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from skws.data.batch import BATCH, MEMORY_RECORDS, RecordBatch, together
from skws.data.packing import packed
from skws.data.record import BadRecord
from skws.formats.files import Split
from skws.formats.splits import chunks
from skws_schema.memory import check
from skws_schema.model import Schema

_MIXED: Final = BATCH // 8
"""Records of a piece of a split out of order: a merge holds one such piece of every split."""


class Holds(IntEnum):
    """What a piece is packed from."""

    BAD = 0
    TABLE = 1
    RECORDS = 2
    TIME = 3
    """Nothing: ``last`` is the latest time that a task has seen, for parts that have seen less."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is known of a packed piece. ``split`` and ``number``: its place in the order of arrival.

    ``first`` and ``last``: its times in microseconds, 0 unless it holds records of streams, which are in
    order of time. ``size``: rows, or bad records. ``deletions``: how many of the rows delete.
    ``dequeues``: some of them delete by whole row, so that they end the oldest of equal rows.
    """

    split: int
    number: int
    holds: Holds
    first: int
    last: int
    size: int
    deletions: int = 0
    dequeues: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """In the order of arrival."""
        return self.split, self.number

    @property
    def insertions(self) -> int:
        """The tuples that it brings."""
        return self.size - self.deletions


class Packer:
    """Packs what was read of one split; ``pieces`` of one packer are numbered in order of arrival.

    Records that arrive in order of time are packed as they come; others are sorted, many at a time.
    """

    def __init__(self, split: int, schema: Schema) -> None:
        self._split = split
        self._number = 0
        self._tables = [number for number, r in enumerate(schema.relations) if r.table]
        self._keys = [relation.key_of for relation in schema.relations]
        self._held: list[RecordBatch] = []
        self._sorted = True

    def records(self, batch: RecordBatch) -> Iterator[tuple[Piece, bytes]]:
        """Take records in order of arrival; gives the pieces that are complete."""
        if self._tables and (static := np.isin(batch.relation, self._tables)).any():
            yield self._table(batch.taken(static))
            batch = batch.taken(~static)
        if not len(batch):
            return
        first = int(batch.time[0])
        follows = not self._held or first >= int(self._held[-1].time[-1])
        self._sorted &= follows and not (np.diff(batch.time) < 0).any()
        self._held.append(batch)
        if sum(map(len, self._held)) >= (BATCH if self._sorted else MEMORY_RECORDS):
            yield from self.rest()

    def bad(self, records: Sequence[BadRecord]) -> Iterator[tuple[Piece, bytes]]:
        """Take input that is no record."""
        if records:
            yield self._next(Holds.BAD, 0, 0, len(records)), pickle.dumps(list(records), protocol=5)

    def rest(self) -> Iterator[tuple[Piece, bytes]]:
        """What is left when the split has been read."""
        held, in_order = self._held, self._sorted
        self._held, self._sorted = [], True
        if not held:
            return
        if in_order:
            yield self._packed(held)
            return
        batch = together(held)
        batch = batch.taken(np.argsort(batch.time, kind="stable"))
        for begin in range(0, len(batch), _MIXED):
            yield self._packed([batch.taken(slice(begin, begin + _MIXED))])

    def _packed(self, batches: list[RecordBatch]) -> tuple[Piece, bytes]:
        check()
        size = sum(map(len, batches))
        deleting = [batch for batch in batches if batch.delete is not None]
        deletions = sum(int(batch.deletes().sum()) for batch in deleting)
        first, last = int(batches[0].time[0]), int(batches[-1].time[-1])
        dequeues = any(map(self._dequeues, deleting))
        piece = self._next(Holds.RECORDS, first, last, size, deletions, dequeues=dequeues)
        return piece, packed(together(batches))

    def _table(self, batch: RecordBatch) -> tuple[Piece, bytes]:
        return self._next(Holds.TABLE, 0, 0, len(batch)), packed(batch)

    def _dequeues(self, batch: RecordBatch) -> bool:
        return any(
            self._keys[record.relation](record.row) is None
            for record in batch.taken(batch.deletes()).records()
        )

    def _next(
        self, holds: Holds, first: int, last: int, size: int, deletions: int = 0, *, dequeues: bool = False
    ) -> Piece:
        self._number += 1
        return Piece(self._split, self._number - 1, holds, first, last, size, deletions, dequeues)


def read_pieces(split: Split, schema: Schema) -> Iterator[tuple[Piece, bytes]]:
    """The pieces of a split. Raises SourceError if the file cannot be read."""
    packer = Packer(split.ordinal, schema)
    for chunk in chunks(split, schema):
        yield from packer.bad(chunk.bad)
        yield from packer.records(chunk.records)
    yield from packer.rest()


def unpack_bad(blob: bytes) -> list[BadRecord]:
    """The records of a piece that holds ``BAD``."""
    records: list[BadRecord] = pickle.loads(blob)  # noqa: S301 - written by the same run
    return records
