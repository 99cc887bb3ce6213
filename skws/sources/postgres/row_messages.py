"""Finds the values of many row changes at once, column by column, in the messages of ``pgoutput``.

In a message, the values of a row follow one another, each after its length. The first values of all messages
are located together, then the second ones, so a column takes a few operations of NumPy for all messages.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skws_mesh.columnar.columns import Flags, Ints, ranges

NULL: Final = -1
"""The size of NULL."""
UNLOGGED: Final = -2
"""The size of a value stored out of line that did not change and was not logged."""
_INSERT, _UPDATE, _DELETE, _KEY, _OLD, _NEW = b"IUDKON"
_IS_NULL, _IS_UNCHANGED, _IS_TEXT, _IS_BINARY = b"nutb"
_HEAD: Final = 6  # the kind, the number of the table, and the kind of the first row
_PADDING: Final = 8  # so that a value's length can be read wherever the value begins


class CellColumn(NamedTuple):
    """A column of values: the position of the first byte of each, and its size in bytes.

    A size below zero is ``NULL`` or ``UNLOGGED``.
    """

    first: Ints
    size: Ints

    @classmethod
    def null(cls, rows: int) -> CellColumn:
        """NULL in all rows."""
        return cls(np.zeros(rows, dtype=np.int64), np.full(rows, NULL))

    @property
    def unlogged(self) -> Flags:
        """True for values that were not logged."""
        unlogged: Flags = self.size == UNLOGGED
        return unlogged

    def where(self, flags: Flags, other: CellColumn) -> CellColumn:
        """These cells where ``flags`` are True, and ``other`` elsewhere."""
        return CellColumn(np.where(flags, self.first, other.first), np.where(flags, self.size, other.size))

    def take(self, rows: Ints) -> CellColumn:
        return CellColumn(self.first.take(rows), self.size.take(rows))

    def followed_by(self, other: CellColumn) -> CellColumn:
        """These cells, then those of ``other``."""
        return CellColumn(np.concatenate([self.first, other.first]), np.concatenate([self.size, other.size]))


class RowMessages:
    """Inserts, updates and deletes of one table that has ``columns`` columns.

    Flags by message: its kind (``inserts``, ``updates``, ``deletes``); whether it has old values
    (``old_logged``), and those of all columns, not only of the replica identity (``whole``); whether it is
    well-formed (``sound``; otherwise nothing else is defined). ``new`` and ``old``: by column, the values of
    each message; NULL without such a row.
    """

    def __init__(self, messages: Sequence[bytes], columns: int) -> None:
        self._columns = columns
        self._data = np.frombuffer(b"".join(messages) + bytes(_PADDING), dtype=np.uint8)
        lengths = np.fromiter(map(len, messages), dtype=np.int64, count=len(messages))
        ends = np.cumsum(lengths)
        begins = ends - lengths
        kind, first_row = self._data.take(begins), self._data.take(begins + _HEAD - 1)
        self.inserts: Flags = kind == _INSERT
        self.updates: Flags = kind == _UPDATE
        self.deletes: Flags = kind == _DELETE
        self.whole: Flags = (first_row == _OLD) & ~self.inserts
        self.old_logged: Flags = self.whole | ((first_row == _KEY) & ~self.inserts)
        self.sound: Flags = (lengths >= _HEAD) & (self.old_logged | ((first_row == _NEW) & ~self.deletes))
        self._offsets, self._ends = begins + _HEAD, ends
        self.old = self._cells(self.old_logged)
        positions = np.flatnonzero(self.old_logged & self.updates & self.sound)
        self.sound[positions] &= self._data.take(self._offsets[positions]) == _NEW
        self._offsets[positions] += 1
        self.new = self._cells(~self.deletes)
        self.sound &= self._offsets == ends

    def texts(self, cells: CellColumn) -> pa.Array:
        """Logged values as strings, which may not be UTF-8."""
        present: Flags = cells.size >= 0
        sizes = np.where(present, cells.size, 0)
        offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
        np.cumsum(sizes, out=offsets[1:])
        data = self._data.take(ranges(cells.first, sizes))
        bits = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(
            pa.string(), len(sizes), [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    def _cells(self, is_logged: Flags) -> list[CellColumn]:
        """By column, the values of the rows at ``_offsets``, in some messages; moves these to their ends."""
        cells = [CellColumn.null(len(is_logged)) for _ in range(self._columns)]
        positions = np.flatnonzero(is_logged & self.sound)
        offsets, ends = self._offsets[positions], self._ends[positions]
        sound: Flags = self._number(offsets, 2) == self._columns
        offsets += 2
        for column in cells:
            offsets[~sound] = 0  # where anything can be read
            kind, size = self._data.take(offsets), self._number(offsets + 1, 4)
            is_text = (kind == _IS_TEXT) | (kind == _IS_BINARY)
            null_sizes = np.where(kind == _IS_NULL, NULL, UNLOGGED)
            column.first[positions] = offsets + 5
            column.size[positions] = np.where(is_text, size, null_sizes)
            offsets += np.where(is_text, 5 + size, 1)
            sound &= (is_text | (kind == _IS_NULL) | (kind == _IS_UNCHANGED)) & (offsets <= ends)
        self.sound[positions] &= sound
        self._offsets[positions] = offsets
        return cells

    def _number(self, offsets: Ints, size: int) -> Ints:
        """The numbers of ``size`` bytes at some positions, the most significant byte first."""
        number: npt.NDArray[np.int64] = self._data.take(offsets).astype(np.int64)
        for index in range(1, size):
            number <<= 8
            number |= self._data.take(offsets + index)
        return number
