"""The join values of rows as 64-bit integers, column by column.

Equal values give equal integers, whatever their types: 1, 1.0 and True do.
Integers are themselves; other values are hashed. Different values may give the
same integer, so results are checked by the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from skws.data.batch import Rows
from skws.data.blocks import Block, integers_of
from skws.index.values import join_values
from skws_mesh.columnar.columns import NULL, Ints
from skws_mesh.columnar.key_sets import KeySets
from skws_schema.graph import Edge, edges
from skws_schema.model import AttributeType, Schema, Value

_LARGEST = (1 << 63) - 1


class JoinValues:
    """Join values over one schema."""

    def __init__(self, schema: Schema, key_sets: KeySets) -> None:
        self._schema = schema
        # Indexes on disk need values that are the same in every process.
        self._lasting = any(relation.source for relation in schema.relations)
        self._key_sets = key_sets
        self._told_apart = [self._tells_apart(edge) for edge in edges(schema)]
        self._all_told_apart = True

    def of(self, rows: Rows) -> Ints:
        """An array of integers: a row for each row, a column for each key set of its relation, then NULL."""
        keys = np.full((len(rows), self._key_sets.width), NULL, dtype=np.int64)
        for relation, blocks, mine, places in rows.by_relation():
            for key_set, columns in enumerate(self._key_sets.columns[relation]):
                keys[:, key_set][mine] = self._column(blocks, columns).take(places)
        return keys

    @property
    def all_exact(self) -> bool:
        """True if ``exact`` holds for all edges."""
        return self._all_told_apart and all(self._told_apart)

    def exact(self, edge: int) -> bool:
        """True if equal integers imply equal values for the columns of an edge."""
        return self._all_told_apart and self._told_apart[edge]

    def _column(self, blocks: Sequence[Block], columns: tuple[int, ...]) -> Ints:
        """The join values of all rows of some blocks of one relation."""
        if self._lasting:
            found = [join_values(block, columns) for block in blocks]
            told_apart = len(columns) > 1 or all(_tells_least_apart(b.integers(columns[0])) for b in blocks)
            self._all_told_apart &= told_apart
            return np.concatenate(found) if len(found) != 1 else found[0]
        if len(columns) > 1:
            together = zip(*(_values(blocks, column) for column in columns), strict=True)
            return _integers([None if None in values else hash(values) for values in together])
        integers = integers_of(blocks, columns[0])
        if integers is None:
            return _integers([_integer(value) for value in _values(blocks, columns[0])])
        least = integers == NULL
        if least.any():  # the one integer that stands for NULL
            self._all_told_apart = False
            integers = np.where(least, hash(int(NULL)), integers)
        return integers

    def _tells_apart(self, edge: Edge) -> bool:
        ends = ((edge.source, edge.source_columns), (edge.target, edge.target_columns))
        return all(
            len(columns) == 1
            and self._schema.relations[relation].attributes[columns[0]].type is AttributeType.INTEGER
            for relation, columns in ends
        )


def _values(blocks: Sequence[Block], column: int) -> Iterable[Value]:
    return chain.from_iterable(block.values(column) for block in blocks)


def _tells_least_apart(integers: Ints | None) -> bool:
    """False if the one integer that stands for NULL occurs."""
    return integers is None or not (integers == NULL).any()


def _integer(value: Value) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return int(value) if -_LARGEST <= value <= _LARGEST else hash(value)
    return None if value is None else hash(value)


def _integers(values: list[int | None]) -> Ints:
    null = int(NULL)
    return np.array([null if value is None else value for value in values], dtype=np.int64)
