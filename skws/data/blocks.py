"""Rows of one relation in the form in which they came: as tuples, or as columns of values or of Arrow.

Engines read whole columns (texts, join values); only results need rows as tuples.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from struct import error as PackError  # noqa: N812 - it is a class
from struct import pack
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from skws.data.texts import Column, Texts
from skws_schema.model import Row, Value

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Nullable:
    """A column with NULLs where ``present`` is False; ``values`` has any number, or an empty text, there."""

    present: Flags
    values: npt.NDArray[Any] | Texts

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, rows: slice) -> Nullable:
        return Nullable(self.present[rows], self.values[rows])

    def take(self, indices: Ints) -> Nullable:
        return Nullable(self.present.take(indices), self.values.take(indices))

    def tolist(self) -> list[Value]:
        values: list[Value] = [*self.values.tolist()]
        for index in np.flatnonzero(~self.present).tolist():
            values[index] = None
        return values


Values: TypeAlias = Sequence[Value] | npt.NDArray[Any] | Texts | Nullable
"""A column of a block: values, or an array of integers of any width, floats or booleans, or texts."""


class Block(Protocol):
    """Rows of one relation; columns are those of the relation."""

    @property
    def relation(self) -> int:
        """The relation's position in the schema."""

    def __len__(self) -> int: ...

    def take(self, indices: Ints) -> Block:
        """A block of some of the rows."""

    def row(self, index: int) -> Row:
        """The row at an index."""

    def rows(self, indices: Ints) -> list[Row]:
        """The rows at some indices."""

    def values(self, column: int) -> Sequence[Value]:
        """The values of a column."""

    def values_at(self, column: int, indices: Ints) -> Sequence[Value]:
        """The values of a column in some rows."""

    def integers(self, column: int) -> Ints | None:
        """A column if all of its values are integers of 64 bits (or booleans), else None."""

    def numbers(self, column: int) -> tuple[npt.NDArray[Any], Flags] | None:
        """A column of numbers or booleans, and flags of those that are not NULL; None for other columns."""

    def texts(self, column: int) -> Column:
        """A column of texts."""

    def texts_at(self, column: int, indices: Ints) -> Texts:
        """A column of some rows as texts; NULL becomes the empty text."""

    def present(self, column: int) -> Flags:
        """Flags of the values of a column that are not NULL."""

    def present_at(self, column: int, indices: Ints) -> Flags:
        """As ``present``, for some rows."""


class _ValueMethods:
    """The methods that blocks of Python values share."""

    __slots__ = ()

    def integers(self: Block, column: int) -> Ints | None:
        return packed_integers(self.values(column))

    def numbers(self, column: int) -> tuple[npt.NDArray[Any], Flags] | None:  # noqa: ARG002 - as its siblings
        return None

    def texts(self: Block, column: int) -> Column:
        return self.values(column)

    def texts_at(self: Block, column: int, indices: Ints) -> Texts:
        return Texts.of([self.values_at(column, indices)])

    def present(self: Block, column: int) -> Flags:
        return _not_null(self.values(column))

    def present_at(self: Block, column: int, indices: Ints) -> Flags:
        return _not_null(self.values_at(column, indices))


def _not_null(values: Sequence[Value]) -> Flags:
    return np.array([value is not None for value in values], dtype=bool)


class RowBlock(_ValueMethods):
    __slots__ = ("_rows", "relation")

    def __init__(self, relation: int, rows: Sequence[Row]) -> None:
        self.relation = relation
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: Ints) -> RowBlock:
        return RowBlock(self.relation, self.rows(indices))

    def row(self, index: int) -> Row:
        return self._rows[index]

    def rows(self, indices: Ints) -> list[Row]:
        return list(map(self._rows.__getitem__, indices.tolist()))

    def values(self, column: int) -> Sequence[Value]:
        return [row[column] for row in self._rows]

    def values_at(self, column: int, indices: Ints) -> Sequence[Value]:
        return [self._rows[index][column] for index in indices.tolist()]


class ColumnBlock(_ValueMethods):
    """Rows as columns: lists of Python values, arrays, or texts; rows are made on demand.

    ``searched``: columns that are searched and rarely read. They become ``Texts`` when blocks are
    concatenated, which take half the memory of Python's strings.
    """

    __slots__ = ("_columns", "_searched", "relation")

    def __init__(
        self, relation: int, columns: Sequence[Values], searched: Collection[int] = frozenset()
    ) -> None:
        self.relation = relation
        self._columns = columns
        self._searched = searched

    @classmethod
    def concat(cls, blocks: Sequence[ColumnBlock]) -> ColumnBlock:
        """The rows of several blocks of one relation, at least one, one after the other."""
        first = blocks[0]
        if len(blocks) == 1:
            return first
        parts = zip(*(block._columns for block in blocks), strict=True)  # noqa: SLF001 - its own
        searched = first._searched  # noqa: SLF001 - its own
        columns = [_concat(group, as_texts=number in searched) for number, group in enumerate(parts)]
        return cls(first.relation, columns, searched)

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def columns(self) -> Sequence[Values]:
        """The columns as they are stored."""
        return self._columns

    @property
    def searched(self) -> Collection[int]:
        """The columns that are searched and rarely read."""
        return self._searched

    def take(self, indices: Ints) -> ColumnBlock:
        return ColumnBlock(
            self.relation, [_take(column, indices) for column in self._columns], self._searched
        )

    def between(self, first: int, end: int) -> ColumnBlock:
        """The rows from index ``first`` to before ``end``; arrays and texts are not copied."""
        return ColumnBlock(self.relation, [column[first:end] for column in self._columns], self._searched)

    def row(self, index: int) -> Row:
        return self.rows(np.array([index]))[0]

    def rows(self, indices: Ints) -> list[Row]:
        return list(zip(*(_values_at(column, indices) for column in self._columns), strict=True))

    def values(self, column: int) -> Sequence[Value]:
        return _to_list(self._columns[column])

    def values_at(self, column: int, indices: Ints) -> Sequence[Value]:
        return _values_at(self._columns[column], indices)

    def integers(self, column: int) -> Ints | None:
        values = self._columns[column]
        if isinstance(values, np.ndarray):
            return None if values.dtype.kind == "f" else values.astype(np.int64, copy=False)
        return None if isinstance(values, Texts | Nullable) else packed_integers(values)

    def numbers(self, column: int) -> tuple[npt.NDArray[Any], Flags] | None:
        values = self._columns[column]
        inner = values.values if isinstance(values, Nullable) else values
        if not isinstance(inner, np.ndarray):
            return None
        return inner.astype(np.int64, copy=False) if inner.dtype.kind == "i" else inner, self.present(column)

    def texts(self, column: int) -> Column:
        values = self._columns[column]
        inner = values.values if isinstance(values, Nullable) else values
        return inner if isinstance(inner, Texts) else super().texts(column)

    def texts_at(self, column: int, indices: Ints) -> Texts:
        values = self._columns[column]
        inner = values.values if isinstance(values, Nullable) else values
        return inner.some(indices) if isinstance(inner, Texts) else super().texts_at(column, indices)

    def present(self, column: int) -> Flags:
        values = self._columns[column]
        if isinstance(values, Nullable):
            return values.present
        return np.ones(len(self), dtype=bool) if _is_typed(values) else super().present(column)

    def present_at(self, column: int, indices: Ints) -> Flags:
        typed = _is_typed(self._columns[column])
        return self.present(column).take(indices) if typed else super().present_at(column, indices)


class BlockFile(Protocol):
    """A file that has the rows of blocks."""

    @property
    def path(self) -> Path:
        """The path at which it was opened."""

    @property
    def content(self) -> str:
        """Identifies the rows of the file: their checksums."""


class MappedBlock(ColumnBlock):
    """Rows whose columns are views of a file, since copies would take memory.

    ``first``: the number of the block's first row in the file; the others follow.
    """

    __slots__ = ("file", "first")

    def __init__(self, block: ColumnBlock, file: BlockFile, first: int) -> None:
        super().__init__(block.relation, block.columns, block.searched)
        self.file = file
        self.first = first


class TruncationBlock(_ValueMethods):
    """Truncations of one relation: a single empty row represents all of them. Its columns are NULL."""

    __slots__ = ("relation",)

    def __init__(self, relation: int) -> None:
        self.relation = relation

    def __len__(self) -> int:
        return 1

    def take(self, indices: Ints) -> TruncationBlock:  # noqa: ARG002 - all rows are that one
        return self

    def row(self, index: int) -> Row:  # noqa: ARG002 - as above
        return ()

    def rows(self, indices: Ints) -> list[Row]:
        return [()] * len(indices)

    def values(self, column: int) -> Sequence[Value]:  # noqa: ARG002 - as above
        return [None]

    def values_at(self, column: int, indices: Ints) -> Sequence[Value]:  # noqa: ARG002 - as above
        return [None] * len(indices)


def _is_typed(column: Values) -> TypeGuard[npt.NDArray[Any] | Texts | Nullable]:
    return isinstance(column, np.ndarray | Texts | Nullable)


def _values_at(column: Values, indices: Ints) -> Sequence[Value]:
    """A column of some rows, as values."""
    return column.at(indices) if isinstance(column, Texts) else _to_list(_take(column, indices))


def _take(column: Values, indices: Ints) -> Values:
    """A column of some rows, in the same form."""
    if isinstance(column, np.ndarray):
        return column.take(indices)
    if isinstance(column, Texts | Nullable):
        return column.take(indices)
    return list(map(column.__getitem__, indices.tolist()))


def _to_list(column: Values) -> Sequence[Value]:
    if isinstance(column, np.ndarray | Texts | Nullable):
        return column.tolist()
    return column


def _concat(parts: Sequence[Values], *, as_texts: bool) -> Values:
    typed = [part for part in parts if _is_typed(part)]
    if len(typed) == len(parts) and len(set(map(_kind, typed))) == 1:
        return _concat_typed(typed)
    if as_texts:
        texts = _concat_texts(parts)
        if texts is not None:
            return texts
    return list(chain.from_iterable(map(_to_list, parts)))


def _kind(column: npt.NDArray[Any] | Texts | Nullable) -> str:
    """The kind of values that a column holds besides NULLs."""
    inner = column.values if isinstance(column, Nullable) else column
    return "texts" if isinstance(inner, Texts) else inner.dtype.kind


def _concat_typed(parts: Sequence[npt.NDArray[Any] | Texts | Nullable]) -> Values:
    inner = [part.values if isinstance(part, Nullable) else part for part in parts]
    texts = [part for part in inner if isinstance(part, Texts)]
    arrays = [part for part in inner if isinstance(part, np.ndarray)]
    values = Texts.concat(texts) if texts else np.concatenate(arrays)
    if not any(isinstance(part, Nullable) for part in parts):
        return values
    present = [p.present if isinstance(p, Nullable) else np.ones(len(p), dtype=bool) for p in parts]
    return Nullable(np.concatenate(present), values)


def _concat_texts(parts: Sequence[Values]) -> Texts | None:
    """Texts one after the other; None if some values are NULL or not texts."""
    pieces: list[Texts] = []
    for kind, group in groupby(parts, key=type):
        if kind is Texts:
            pieces += group  # type: ignore[arg-type]  # all are Texts
            continue
        values: list[Value] = list(chain.from_iterable(map(_to_list, group)))
        texts = Texts.of_strings(values)
        if texts is None:
            return None
        pieces.append(texts)
    return Texts.concat(pieces)


def integers_of(blocks: Sequence[Block], column: int) -> Ints | None:
    """A column of several blocks, one after the other, if all its values are integers (or booleans)."""
    if len(blocks) == 1:
        return blocks[0].integers(column)
    if all(isinstance(block, RowBlock) for block in blocks):  # there may be many small ones
        return packed_integers(list(chain.from_iterable(block.values(column) for block in blocks)))
    parts = [block.integers(column) for block in blocks]
    int_parts = [part for part in parts if part is not None]
    return np.concatenate(int_parts) if len(int_parts) == len(parts) else None


def packed_integers(values: Sequence[Value]) -> Ints | None:
    """The values as 64-bit integers; None if some are of another type or too large."""
    try:  # four times as fast as checking the types first
        return np.frombuffer(pack(f"{len(values)}q", *values), dtype=np.int64)
    except PackError:
        return None
