"""Growing tables of live tuples and of partial results, compacted when half of them is dead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mesh.columnar.columns import Flags, Ints, TupleColumns
from mesh.columnar.runs import SortedRuns


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial results of one size: operator or group, members (one column a member), lifespan."""

    operator: Ints
    members: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.operator)

    def columns(self) -> tuple[Ints, ...]:
        return self.operator, self.members, self.start, self.end

    def taken(self, chosen: Ints | Flags) -> Partials:
        return Partials(*(column[chosen] for column in self.columns()))


class Table:
    """Columns of equal length that grow at the end; capacity doubles."""

    def __init__(self, empty: tuple[Ints, ...]) -> None:
        self._columns = list(empty)
        self.size = 0

    def append(self, rows: tuple[Ints, ...]) -> int:
        """Append rows, given as columns; gives the place of the first."""
        first, self.size = self.size, self.size + len(rows[0])
        for number, (column, new) in enumerate(zip(self._columns, rows, strict=True)):
            if self.size > len(column):
                grown = np.empty((max(1024, 2 * self.size), *column.shape[1:]), dtype=column.dtype)
                grown[:first] = column[:first]
                self._columns[number] = grown
            self._columns[number][first : self.size] = new
        return first

    def columns(self) -> tuple[Ints, ...]:
        """Views of the rows in use."""
        return tuple(column[: self.size] for column in self._columns)

    def keep(self, kept: Flags) -> Ints:
        """Drop all other rows; gives each row's new place, -1 for the dropped."""
        renumbered = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int64)
        self._columns = [column[: self.size][kept] for column in self._columns]
        self.size = int(kept.sum())
        return renumbered


class TupleStore(Table):
    """The live tuples; a tuple's *slot* is its place."""

    def __init__(self, width: int) -> None:
        one = np.empty(0, dtype=np.int64)
        super().__init__((one, one, one, one, np.empty((0, width), dtype=np.int64)))

    def four(self, slot: int) -> tuple[int, int, int, int]:
        """Relation, keywords, start and end of one tuple."""
        relation, keywords, start, end, _ = self._columns
        return relation.item(slot), keywords.item(slot), start.item(slot), end.item(slot)

    @property
    def tuples(self) -> TupleColumns:
        return TupleColumns(*self.columns())


class PartialStore(Table):
    """Waiting partials of one size, by group, with their index by the key they wait for."""

    def __init__(self, size: int) -> None:
        one = np.empty(0, dtype=np.int64)
        super().__init__((one, np.empty((0, size), dtype=np.int64), one, one))
        self.index = SortedRuns()

    @property
    def partials(self) -> Partials:
        return Partials(*self.columns())

    def compact(self, horizon: int, slots: Ints) -> None:
        """Drop what ended at or before ``horizon``; members get their tuples' new slots."""
        _, members, _, end = self.columns()
        renumbered = slots[members]
        kept: Flags = (end > horizon) & (renumbered >= 0).all(axis=1)
        self.index.remap(self.keep(kept))
        self._columns[1] = renumbered[kept]
