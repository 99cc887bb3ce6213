"""Records of a poll that are kept as columns: who takes columns, too, never makes rows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from skws.batches import RecordBatch, together
from skws.records import Record
from skws.sources.feed import Item


class Columns(Sequence[Record]):
    """The records of a batch as items, each made when it is asked for."""

    def __init__(self, batch: RecordBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return Columns(self.batch.taken(place))
        at = range(len(self))[place]
        batch = self.batch
        delete = batch.delete is not None and bool(batch.delete[at])
        return Record(batch.relation.item(at), batch.time.item(at), batch.rows.row(at), delete)

    def __iter__(self) -> Iterator[Record]:
        return self.batch.records()


def items_of(parts: Iterable[Sequence[Item]]) -> Sequence[Item]:
    """Several, one after the other; as columns if all of them are."""
    known = [part for part in parts if part]
    if len(known) == 1:
        return known[0]
    columns = [part.batch for part in known if isinstance(part, Columns)]
    if columns and len(columns) == len(known):
        return Columns(together(columns))
    return list(chain.from_iterable(known))
