"""Join values as 64-bit integers, column by column; engines need them without Arrow.

Equal values give equal integers, whatever their types: 1, 1.0 and True do.
Integers are unchanged; other values are hashed. Different values may give the
same integer, so results are checked by the values. Python's hashes of texts
differ between processes, so an index on disk uses other hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Final

import numpy as np

from skws.data.batch import Rows
from skws.data.blocks import Block, integers_of
from skws.data.texts import Texts
from skws_mesh.columnar.columns import NULL, Flags, Hashes, Ints, mix
from skws_mesh.columnar.live import KeySets
from skws_schema.graph import Edge, edges
from skws_schema.model import AttributeType, Relation, Schema, Value

_TEXTS: Final = (AttributeType.TEXT, AttributeType.STRING)
_PRIME: Final = np.uint64(0x100000001B3)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_ABSENT: Final = np.int64(0x5F3759DF)  # for NULL, if NULLs equal each other
_WHOLE: Final = float(1 << 63)
_LARGEST: Final = (1 << 63) - 1
_LEAST: Final = -(1 << 63)


def join_values(block: Block, columns: Sequence[int]) -> Ints:
    """One integer per row, NULL if one of the columns is NULL."""
    parts = [_column(block, column) for column in columns]
    if len(parts) == 1:
        values, present = parts[0]
        values = np.where(values == NULL, hash(int(NULL)), values)
    else:
        values, present = (
            _combined([codes for codes, _ in parts]),
            np.logical_and.reduce([flags for _, flags in parts]),
        )
    return np.where(present, values, NULL)


def row_identities(block: Block, relation: Relation) -> Ints:
    """One integer per row: for its key or, without one, for the whole row."""
    columns = range(len(relation.attributes))
    if not relation.key:
        return _identities(block, columns)
    has_key = np.logical_and.reduce([present for _, present in _code_columns(block, relation.key_columns)])
    key_identities = _identities(block, relation.key_columns)
    return key_identities if has_key.all() else np.where(has_key, key_identities, _identities(block, columns))


def likely_identities(block: Block, relation: Relation) -> Ints:
    """One integer per row, the same for rows of one identity; rows of other identities usually differ.

    This is faster than ``row_identities``, as it only compares the lengths of texts.
    """
    columns = relation.key_columns or range(len(relation.attributes))
    return _combined([_length_or_value(block, relation, column) for column in columns])


def identity_values(blocks: Sequence[Block], columns: Sequence[int]) -> tuple[Ints, Flags]:
    """One integer per row of some blocks of one relation, and flags of the rows without NULL.

    Equal values give equal integers. NULLs are equal to each other if there are several columns; for one
    column the integer of NULL is undefined. Different integers of a single column stay different.
    """
    parts = [_code_columns(block, columns) for block in blocks]
    present = [np.logical_and.reduce([flags for _, flags in block_columns]) for block_columns in parts]
    if len(columns) == 1:
        codes = [block_columns[0][0] for block_columns in parts]
    else:
        codes = [
            _combined([np.where(flags, column_codes, _ABSENT) for column_codes, flags in block_columns])
            for block_columns in parts
        ]
    return np.concatenate(codes), np.concatenate(present)


def _identities(block: Block, columns: Sequence[int]) -> Ints:
    """One integer per row for the values of some columns; NULLs are equal to each other."""
    return _combined([np.where(present, codes, _ABSENT) for codes, present in _code_columns(block, columns)])


def _length_or_value(block: Block, relation: Relation, column: int) -> Ints:
    if relation.attributes[column].type in _TEXTS:  # whatever the form of the block
        return np.diff(Texts.of([block.texts(column)]).offsets).astype(np.int64)
    codes, present = _column(block, column)
    return np.where(present, codes, _ABSENT)


def text_hashes(texts: Texts) -> Hashes:
    """A hash of each text; NULL counts as the empty text."""
    first, end = int(texts.offsets[0]), int(texts.offsets[-1])  # other texts may share the data
    if first == end:
        return np.zeros(len(texts), dtype=np.uint64)
    begins, lengths = texts.offsets[:-1] - first, np.diff(texts.offsets).astype(np.int64)
    text_bytes = np.frombuffer(texts.data, dtype=np.uint8, count=end - first, offset=first).astype(np.uint64)
    positions = np.arange(len(text_bytes), dtype=np.int64) - np.repeat(begins, lengths)
    weights = _powers(1 << max(6, int(lengths.max()).bit_length()))
    sums = np.zeros(len(text_bytes) + 1, dtype=np.uint64)
    np.cumsum((text_bytes + np.uint64(1)) * weights[positions], out=sums[1:])
    hashes: Hashes = (sums[begins + lengths] - sums[begins] + lengths.view(np.uint64)) * _SPREAD
    hashes ^= hashes >> _HALF
    return hashes * _SPREAD


def _code_columns(block: Block, columns: Sequence[int]) -> list[tuple[Ints, Flags]]:
    return [_column(block, column) for column in columns]


def _column(block: Block, column: int) -> tuple[Ints, Flags]:
    """Integers for the values of a column, and flags of the values that are not NULL."""
    integers = block.integers(column)
    if integers is not None:
        return integers, np.ones(len(block), dtype=bool)
    numbers = block.numbers(column)
    if numbers is not None:
        return _of_numbers(numbers[0]), numbers[1]
    texts = block.texts(column)
    present = block.present(column)
    if isinstance(texts, Texts) or not isinstance(texts, Sequence):
        return text_hashes(Texts.of([texts])).view(np.int64), present
    values = block.values(column)
    if any(isinstance(value, str) for value in values):
        return text_hashes(Texts.of([texts])).view(np.int64), present
    numbers_or_zero = [0 if value is None else value for value in values]
    exact = np.array(
        [isinstance(value, int) and _LEAST <= value <= _LARGEST for value in numbers_or_zero], dtype=bool
    )
    codes = np.empty(len(numbers_or_zero), dtype=np.int64)
    codes[exact] = [
        value for value, is_exact in zip(numbers_or_zero, exact.tolist(), strict=True) if is_exact
    ]
    if not exact.all():
        inexact = [
            value for value, is_exact in zip(numbers_or_zero, exact.tolist(), strict=True) if not is_exact
        ]
        codes[~exact] = _of_numbers(np.array(inexact, dtype=np.float64))
    return codes, present


def _of_numbers(numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Ints:
    """Equal numbers give equal integers, whatever their types: 1, 1.0 and True do."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.int64)
    floats = numbers.astype(np.float64)
    is_whole = (np.floor(floats) == floats) & (np.abs(floats) < _WHOLE)
    hashes = mix(floats.view(np.uint64) * _SPREAD, np.zeros(len(floats), dtype=np.int64)).view(np.int64)
    return np.where(is_whole, np.where(is_whole, floats, 0).astype(np.int64), hashes)


def _combined(parts: Sequence[Ints]) -> Ints:
    hashes = np.zeros(len(parts[0]), dtype=np.uint64)
    for number, part in enumerate(parts, 1):
        hashes = mix((hashes + part.view(np.uint64)) * _SPREAD, np.full(len(part), number, dtype=np.int64))
    return np.where(hashes.view(np.int64) == NULL, _ABSENT, hashes.view(np.int64))


@cache
def _powers(count: int) -> Hashes:
    powers = np.full(count, _PRIME, dtype=np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


class JoinValues:
    """Join values over one schema."""

    def __init__(self, schema: Schema, key_sets: KeySets) -> None:
        self._schema = schema
        # Indexes on disk need values that are the same in every process.
        self._stable = any(relation.source for relation in schema.relations)
        self._key_sets = key_sets
        self._exact_edges = [self._is_exact(edge) for edge in edges(schema)]
        self._values_exact = True

    def of(self, rows: Rows) -> Ints:
        """An array with a line per row: the integers of the key sets of its relation, then NULL."""
        keys = np.full((len(rows), self._key_sets.width), NULL, dtype=np.int64)
        for relation, blocks, row_numbers, indices in rows.by_relation():
            for key_set, columns in enumerate(self._key_sets.columns[relation]):
                keys[:, key_set][row_numbers] = self._column(blocks, columns).take(indices)
        return keys

    def begin_with_stored(self, *, told_apart: bool) -> None:
        """Begin with the values of an index. ``told_apart``: equal integers among them are equal values."""
        self._stable = True
        self._values_exact &= told_apart

    @property
    def all_exact(self) -> bool:
        """True if ``exact`` holds for all edges."""
        return self._values_exact and all(self._exact_edges)

    def exact(self, edge: int) -> bool:
        """True if equal integers imply equal values for the columns of an edge."""
        return self._values_exact and self._exact_edges[edge]

    def _column(self, blocks: Sequence[Block], columns: tuple[int, ...]) -> Ints:
        """The join values of all rows of some blocks of one relation."""
        if self._stable:
            join_columns = [join_values(block, columns) for block in blocks]
            told_apart = len(columns) > 1 or all(_lacks_null_code(b.integers(columns[0])) for b in blocks)
            self._values_exact &= told_apart
            return np.concatenate(join_columns) if len(join_columns) != 1 else join_columns[0]
        if len(columns) > 1:
            tuples = zip(*(_values(blocks, column) for column in columns), strict=True)
            return _integers([None if None in values else hash(values) for values in tuples])
        present: Flags | None = None
        integers = integers_of(blocks, columns[0])
        if integers is None:
            with_nulls = _integers_and_nulls(blocks, columns[0])
            if with_nulls is None:
                return _integers([_integer(value) for value in _values(blocks, columns[0])])
            integers, present = with_nulls
        is_null_code = integers == NULL if present is None else (integers == NULL) & present
        if is_null_code.any():  # the integer that represents NULL is also a value
            self._values_exact = False
            integers = np.where(is_null_code, hash(int(NULL)), integers)
        return integers if present is None else np.where(present, integers, NULL)

    def _is_exact(self, edge: Edge) -> bool:
        ends = ((edge.source, edge.source_columns), (edge.target, edge.target_columns))
        return all(
            len(columns) == 1
            and self._schema.relations[relation].attributes[columns[0]].type is AttributeType.INTEGER
            for relation, columns in ends
        )


def _integers_and_nulls(blocks: Sequence[Block], column: int) -> tuple[Ints, Flags] | None:
    """A column of several blocks with NULLs, and its flags; None if it has values of another type."""
    columns, flags = [], []
    for block in blocks:
        integers = block.integers(column)
        present = np.ones(len(block), dtype=bool)
        if integers is None:
            numbers = block.numbers(column)
            if numbers is None or numbers[0].dtype.kind == "f":
                return None
            integers, present = numbers[0].astype(np.int64, copy=False), numbers[1]
        columns.append(integers)
        flags.append(present)
    return np.concatenate(columns), np.concatenate(flags)


def _values(blocks: Sequence[Block], column: int) -> Iterable[Value]:
    return chain.from_iterable(block.values(column) for block in blocks)


def _lacks_null_code(integers: Ints | None) -> bool:
    """False if a value is the integer that represents NULL."""
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
