"""Records as columns, many at a time: what the default engine takes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from schema.model import Row
from skws.records import Record

BATCH = 8192  # records; larger ones gain little, smaller ones answer sooner

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in order of arrival; ``delete`` is None where all of them insert. Times in microseconds."""

    relation: Ints
    time: Ints
    rows: list[Row]
    delete: Flags | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, records: list[Record]) -> RecordBatch:
        relations, times, rows, deletes = zip(*records, strict=True) if records else ((), (), (), ())
        delete = np.array(deletes, dtype=bool) if any(deletes) else None
        return cls(np.array(relations, dtype=np.int64), np.array(times, dtype=np.int64), list(rows), delete)

    def taken(self, places: Ints) -> RecordBatch:
        """The records at some places, in their order."""
        rows = [self.rows[place] for place in places.tolist()]
        delete = None if self.delete is None else self.delete[places]
        return RecordBatch(self.relation[places], self.time[places], rows, delete)

    def cut(self, place: int) -> tuple[RecordBatch, RecordBatch]:
        """What comes before a place, and the rest."""
        delete = (None, None) if self.delete is None else (self.delete[:place], self.delete[place:])
        return (
            RecordBatch(self.relation[:place], self.time[:place], self.rows[:place], delete[0]),
            RecordBatch(self.relation[place:], self.time[place:], self.rows[place:], delete[1]),
        )

    def deletes(self) -> Flags:
        """Which records are deletions."""
        return np.zeros(len(self), dtype=bool) if self.delete is None else self.delete

    def records(self) -> Iterator[Record]:
        return map(Record, self.relation.tolist(), self.time.tolist(), self.rows, self.deletes().tolist())


def batched(records: Iterable[Record]) -> Iterator[RecordBatch]:
    """Records in batches of BATCH."""
    rest = iter(records)
    while chunk := list(islice(rest, BATCH)):
        yield RecordBatch.of(chunk)


def whole_instants(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """The same records in batches of about BATCH that end where an instant ends: at a change of time."""
    held: list[RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) < BATCH:
            continue
        together = _together(held)
        changes = np.flatnonzero(np.diff(together.time))
        end = int(changes[-1]) + 1 if len(changes) else 0
        done, rest = together.cut(end)
        held = [rest]
        if end:
            yield done
    if any(map(len, held)):
        yield _together(held)


def _together(batches: list[RecordBatch]) -> RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return RecordBatch(
        np.concatenate([b.relation for b in batches]),
        np.concatenate([b.time for b in batches]),
        [row for b in batches for row in b.rows],
        np.concatenate([b.deletes() for b in batches])
        if any(b.delete is not None for b in batches)
        else None,
    )
