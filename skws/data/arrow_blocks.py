"""Rows of one relation as Arrow columns: from Parquet files, and from indexes of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skws.data import arrow
from skws.data.blocks import Flags, Ints
from skws.data.texts import Texts
from skws_schema.model import Row, Value

_NUMBERS = {"int64", "double", "bool"}
_SPARSE = 4
"""If fewer than one row in this many is read, the others are not touched."""


class ArrowBlock:
    """Rows as Arrow columns whose types are those of the attributes: string, int64, double, bool.

    Time stamps are int64, in microseconds.
    """

    __slots__ = ("_columns", "relation")

    def __init__(self, relation: int, columns: Sequence[pa.Array]) -> None:
        self.relation = relation
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def slice(self, first: int, end: int) -> ArrowBlock:
        return ArrowBlock(self.relation, [column.slice(first, end - first) for column in self._columns])

    def take(self, indices: Ints) -> ArrowBlock:
        return ArrowBlock(self.relation, self._take_columns(indices))

    def row(self, index: int) -> Row:
        return tuple(column[index].as_py() for column in self._columns)

    def rows(self, indices: Ints) -> list[Row]:
        return list(
            zip(*(self.values_at(column, indices) for column in range(len(self._columns))), strict=True)
        )

    def values(self, column: int) -> Sequence[Value]:
        values: list[Value] = self._columns[column].to_pylist()
        return values

    def integers(self, column: int) -> Ints | None:
        array = self._columns[column]
        if array.null_count or str(array.type) != "int64":
            return None
        return arrow.integers(array)

    def numbers(self, column: int) -> tuple[npt.NDArray[Any], Flags] | None:
        array = self._columns[column]
        if str(array.type) not in _NUMBERS:
            return None
        return arrow.filled(array), self.present(column)

    def texts(self, column: int) -> pa.Array:
        return self._columns[column]

    def texts_at(self, column: int, indices: Ints) -> Texts:
        if len(indices) * _SPARSE > len(self):
            return Texts.of([self._columns[column]]).some(indices)
        return Texts.of([self._columns[column].take(arrow.of_integers(indices))])

    def present(self, column: int) -> Flags:
        array = self._columns[column]
        return arrow.flags(array.is_valid()) if array.null_count else np.ones(len(array), dtype=bool)

    def present_at(self, column: int, indices: Ints) -> Flags:
        return self.present(column).take(indices)

    def values_at(self, column: int, indices: Ints) -> Sequence[Value]:
        array, integers = self._columns[column], self.integers(column)
        values: list[Value]  # Arrow and NumPy give untyped lists
        if integers is not None:
            values = integers[indices].tolist()
        elif str(array.type) == "string":
            values = list(arrow.texts_at(array, indices))
        else:
            values = array.take(arrow.of_integers(indices)).to_pylist()
        return values

    def _take_columns(self, indices: Ints) -> list[pa.Array]:
        arrow_indices = arrow.of_integers(indices)
        return [column.take(arrow_indices) for column in self._columns]
