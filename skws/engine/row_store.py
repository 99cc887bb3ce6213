"""The rows of live tuples by slot, with their event times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import Table
from schema.model import Row
from skws.batches import Rows
from skws.blocks import Block


class RowStore(Table):
    """Rows stay in the blocks that they came in, until none of a block's rows is alive."""

    def __init__(self) -> None:
        number, time, flag = (np.empty(0, dtype=kind) for kind in (np.int32, np.int64, bool))
        super().__init__((number, number, time, flag))  # narrow, as there can be millions
        self._blocks: list[Block] = []

    def add(self, rows: Rows, times: Ints, twins: Flags) -> None:
        """Add rows for the next slots; ``times`` in microseconds."""
        self.append((rows.block + len(self._blocks), rows.place, times, twins))  # type: ignore[arg-type]  # as above
        self._blocks.extend(rows.blocks)

    def row(self, slot: int) -> Row:
        block, place, _, _ = self._columns
        return self._blocks[block.item(slot)].row(place.item(slot))

    def in_order(self, slots: Ints) -> Ints:
        """Some slots in order of the blocks that their rows are in."""
        return slots.take(np.argsort(self._columns[0].take(slots), kind="stable"))

    def by_block(self, slots: Ints) -> Iterator[tuple[int, list[Row]]]:
        """Relation and rows of slots that are in such order, block by block."""
        numbers, places = (column.take(slots).astype(np.int64) for column in self._columns[:2])
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(slots)]
        for first, end in pairwise(bounds if len(slots) else []):
            block = self._blocks[numbers[first]]
            yield block.relation, block.rows(places[first:end])

    @property
    def times(self) -> Ints:
        """Event times by slot, in microseconds."""
        return self.columns()[2]

    @property
    def twins(self) -> Flags:
        """By slot: False if the tuple was the only one of its relation at its instant."""
        flags: Flags = self.columns()[3]  # type: ignore[assignment]  # as above
        return flags

    def time(self, slot: int) -> int:
        """Event time in microseconds."""
        return self._columns[2].item(slot)

    def has_twins(self, slot: int) -> bool:
        """False if the tuple was the only one of its relation at its instant."""
        return bool(self.twins[slot])

    def rows(self) -> Rows:
        """All of them, by slot."""
        block, place, _, _ = self.columns()
        return Rows(block.astype(np.int64), place.astype(np.int64), tuple(self._blocks))

    def pack(self) -> None:
        """Copy the rows of blocks that mostly hold others."""
        packed = self.rows().packed()
        self._columns[1][: self.size] = packed.place
        self._blocks = list(packed.blocks)

    def compact(self, renumbered: Ints) -> None:
        """Keep the rows whose slots live on."""
        kept: Flags = renumbered >= 0
        self.keep(kept)
        block, *_ = self.columns()
        used = np.zeros(len(self._blocks), dtype=bool)
        used[block] = True
        block[:] = (np.cumsum(used) - 1).take(block)
        self._blocks = [self._blocks[number] for number in np.flatnonzero(used).tolist()]
