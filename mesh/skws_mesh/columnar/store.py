"""Growing tables of live tuples and of partial results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skws_mesh.columnar.columns import (
    Flags,
    Hashes,
    Ints,
    TupleColumns,
    distinct,
    index_hashes,
    with_space,
    write,
)
from skws_mesh.columnar.hash_index import HashIndex

NO_MEMBER = -1


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial results as columns: query, operator, members, lifespan.

    ``members`` has one column for each node of the largest network; rows of smaller
    networks are filled up with NO_MEMBER.
    """

    query: Ints
    operator: Ints
    members: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.operator)

    def columns(self) -> tuple[Ints, ...]:
        return self.query, self.operator, self.members, self.start, self.end

    @property
    def sizes(self) -> Ints:
        """The number of members of each partial result."""
        sizes = np.zeros(len(self), dtype=np.int64)
        for slots in self.members.T:  # much faster than a sum along short rows
            sizes += slots != NO_MEMBER
        return sizes

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns())

    def rows(self) -> Iterator[tuple[int, int, list[int]]]:
        """Each row as (query, operator, slots of its members)."""
        return zip(self.query.tolist(), self.operator.tolist(), self.members.tolist(), strict=True)

    def take(self, selection: Ints | Flags | slice) -> Partials:
        return Partials(*_rows(self.columns(), selection))

    def parts(self, size: int) -> Iterator[Partials]:
        """The rows in parts of ``size``."""
        if len(self) <= size:
            yield self
            return
        for first in range(0, len(self), size):
            yield self.take(slice(first, first + size))

    @classmethod
    def none(cls, width: int) -> Partials:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, np.empty((0, width), dtype=np.int64), empty, empty)

    @classmethod
    def concat(cls, parts: list[Partials]) -> Partials:
        """The rows of one or more parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*(part.columns() for part in parts), strict=True)))


_LEAST_ROWS = 1024  # the fewest rows to reserve space for
_MOST_SPACE = 4  # the most space, as a multiple of the rows


class Table:
    """Columns of equal length that grow at the end, with space for a quarter more."""

    def __init__(self, empty: tuple[Ints, ...]) -> None:
        self._columns = list(empty)
        self.size = 0

    def open(self, columns: tuple[Ints, ...], size: int) -> None:
        """Begin with the first ``size`` rows of columns, which are not copied; the rest is space for more."""
        self._columns, self.size = list(columns), size

    def make_space(self, count: int) -> None:
        """Make space for ``count`` rows, so that appending them copies no column."""
        for number, column in enumerate(self._columns):  # one by one, as in ``append``
            self._columns[number] = with_space(column, self.size, self.size + count)

    def append(self, rows: tuple[Ints, ...]) -> int:
        """Append rows, given as columns; returns the index of the first."""
        first, self.size = self.size, self.size + len(rows[0])
        # One by one, so that at most one column is in memory twice.
        for number, (column, new) in enumerate(zip(self._columns, rows, strict=True)):
            self._columns[number] = write(column, first, new, least=_LEAST_ROWS)
        return first

    def columns(self) -> tuple[Ints, ...]:
        """Views of the rows in use; valid until rows are dropped, which moves the others."""
        return tuple(column[: self.size] for column in self._columns)

    def keep(self, flags: Flags) -> Ints:
        """Drop all rows not flagged in ``flags``; returns the new index of each row, -1 if it was dropped."""
        count = int(np.count_nonzero(flags))
        first, self.size = self.size - count, count
        rows: Ints | slice
        if flags[first:].all():  # usually the oldest are dropped, and the others move as one block
            rows = slice(first, first + count)
            new_rows = np.arange(-first, count)
            new_rows[:first] = -1
        else:
            rows = np.flatnonzero(flags)
            new_rows = np.full(len(flags), -1, dtype=np.int64)
            new_rows[rows] = np.arange(count)
        for number, column in enumerate(self._columns):  # one by one, as above
            self._columns[number] = self._compact_column(column, rows)
        return new_rows

    def renumber(self, mapping: Ints) -> Ints:
        """Renumber the first column, which has row numbers of another table; drop rows with negative ones.

        Returns the new index of each row, as ``keep`` does.
        """
        references = mapping.take(self.columns()[0])
        remaining = references >= 0
        new_rows = self.keep(remaining)
        self.columns()[0][:] = references.take(np.flatnonzero(remaining))
        return new_rows

    def _compact_column(self, column: Ints, selection: Ints | slice) -> Ints:
        """Some rows of a column, moved to its beginning; space that is far too large is freed."""
        rows = column[selection] if isinstance(selection, slice) else column.take(selection, axis=0)
        target = column if len(column) <= _MOST_SPACE * max(_LEAST_ROWS, self.size) else np.empty_like(rows)
        target[: self.size] = rows
        return target


class TupleStore(Table):
    """The live tuples; the *slot* of a tuple is its row number."""

    def __init__(self, width: int) -> None:
        empty = np.empty(0, dtype=np.int64)
        super().__init__((empty, empty, empty, np.empty((0, width), dtype=np.int64), empty))

    def tuple_in(self, slot: int) -> tuple[int, int, int]:
        """The relation, start and end of one tuple."""
        relation, start, end, *_ = self._columns
        return relation.item(slot), start.item(slot), end.item(slot)

    @property
    def tuples(self) -> TupleColumns:
        return TupleColumns(*self.columns())


class PartialStore(Table):
    """Partial results, or results, of up to ``width`` tuples.

    There can be millions, so queries, operators and slots take 32 bits here. If tuples end early, as in a
    stream of database changes, rows are indexed by their members, so that a change costs in proportion to
    the rows that it changes.

    ``most_scanned``: the most rows without an index by member; by default, comparing them takes the time of
    one or two look-ups. ``least_indexed``: the fewest rows to index at once; the others are compared until
    they are indexed.
    """

    def __init__(self, width: int, most_scanned: int = 4096, least_indexed: int = 1 << 16) -> None:
        query, operator, members, start, end = Partials.none(width).columns()
        narrow = (column.astype(np.int32) for column in (query, operator, members))
        super().__init__((*narrow, start, end))  # type: ignore[arg-type]  # widened when read
        self._most_scanned, self._least_indexed = most_scanned, least_indexed
        self._by_member = HashIndex()  # of the first rows
        self._indexed_count = 0

    @property
    def partials(self) -> Partials:
        """Views of all rows; columns are as narrow as stored."""
        return Partials(*self.columns())

    def take(self, selection: Ints | Flags | slice) -> Partials:
        return Partials(*(rows.astype(np.int64, copy=False) for rows in _rows(self.columns(), selection)))

    def mark(self, horizon: int, flags: Flags) -> None:
        """Flag the tuples, by slot, of rows that end after ``horizon``."""
        members = self._columns[2][: self.size][self._columns[4][: self.size] > horizon]
        flags[members[members != NO_MEMBER]] = True

    def compact(self, horizon: int, slots: Ints) -> Ints:
        """Drop rows that ended at or before ``horizon``; members get the new slots of their tuples.

        Returns the new index of each row, -1 if it was dropped.
        """
        if self._indexed_count:  # by the former slots
            self._by_member, self._indexed_count = HashIndex(), 0
        # Living partials have only live members. NO_MEMBER is -1, so it selects the appended last number.
        new_rows = self.keep(self._columns[4][: self.size] > horizon)
        members = self.columns()[2]
        members[:] = np.append(slots, NO_MEMBER).take(members)
        return new_rows

    def end(self, slots: Ints, ends: Ints) -> Ints:
        """End each row with its tuples in ``slots``; ``ends``: the ends of all tuples, by slot.

        Returns the indices of the rows that now end earlier.
        """
        _, _, members, _, end = self.columns()
        rows = self.rows_with(slots)
        if not len(rows):
            return rows
        row_members = members[rows]
        new_ends = np.where(row_members == NO_MEMBER, end[rows, None], ends[row_members]).min(axis=1)
        is_earlier = new_ends < end[rows]
        end[rows] = np.minimum(new_ends, end[rows])
        changed_rows: Ints = rows[is_earlier]
        return changed_rows

    def rows_with(self, slots: Ints) -> Ints:
        """The indices of the rows that contain one of some tuples, in order."""
        if self.size - self._indexed_count > self._most_scanned:
            self._index_some()
        members = self._columns[2][: self.size]
        rows = (
            np.flatnonzero(np.isin(members[self._indexed_count :], slots).any(axis=1)) + self._indexed_count
        )
        if self._indexed_count:
            _, indexed_rows = self._by_member.probe(_hashes(slots))
            indexed_rows = distinct(indexed_rows)
            valid = np.isin(members.take(indexed_rows, axis=0), slots).any(axis=1)
            rows = np.concatenate([indexed_rows.compress(valid), rows])
        return rows

    def drop(self, rows: Ints) -> None:
        """Drop some rows."""
        remaining = np.ones(self.size, dtype=bool)
        remaining[rows] = False
        self.keep(remaining)

    def keep(self, flags: Flags) -> Ints:
        new_rows = super().keep(flags)
        if self._indexed_count:
            self._by_member.remap(new_rows[: self._indexed_count])
            self._indexed_count = int(np.count_nonzero(flags[: self._indexed_count]))
        return new_rows

    def _index_some(self) -> None:
        """Index the next rows that are not indexed yet; if there are very many, an eighth of them."""
        end = self._indexed_count + max(self._least_indexed, (self.size - self._indexed_count) // 8)
        members = self._columns[2][self._indexed_count : min(end, self.size)]
        indices = np.flatnonzero(members.ravel() != NO_MEMBER)
        slots = members.ravel().take(indices).astype(np.int64)
        self._by_member.add(_hashes(slots), indices // members.shape[1] + self._indexed_count)
        self._indexed_count += len(members)


def _hashes(slots: Ints) -> Hashes:
    return index_hashes(np.zeros(len(slots), dtype=np.int64), slots)


def _rows(columns: tuple[Ints, ...], selection: Ints | Flags | slice) -> Iterator[Ints]:
    """Copies of some rows of the columns."""
    if isinstance(selection, slice):
        return (column[selection].copy() for column in columns)
    indices = np.flatnonzero(selection) if selection.dtype == bool else selection
    # takes a fifth of the time of indexing by them
    return (column.take(indices, axis=0) for column in columns)
