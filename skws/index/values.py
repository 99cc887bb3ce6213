"""Join values as 64-bit integers that are the same in every process, column by column.

Python's hashes of texts differ between processes, so an index on disk has its
own. Integers are their own join values; other values are hashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from skws.data.blocks import Block
from skws.data.texts import Texts
from skws_mesh.columnar.columns import NULL, Flags, Hashes, Ints, mixed
from skws_schema.model import Relation

_PRIME: Final = np.uint64(0x100000001B3)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_ABSENT: Final = np.int64(0x5F3759DF)  # for NULL, where NULLs equal each other
_WHOLE: Final = float(1 << 63)


def join_values(block: Block, columns: Sequence[int]) -> Ints:
    """One integer a row, NULL where one of the columns is NULL."""
    parts = [_column(block, column) for column in columns]
    if len(parts) == 1:
        values, there = parts[0]
        values = np.where(values == NULL, hash(int(NULL)), values)
    else:
        values, there = _combined([found for found, _ in parts]), np.logical_and.reduce([t for _, t in parts])
    return np.where(there, values, NULL)


def row_identities(block: Block, relation: Relation) -> Ints:
    """One integer a row: for its key or, without one, for the whole row."""
    whole = _identities(block, range(len(relation.attributes)))
    if not relation.key:
        return whole
    keyed = np.logical_and.reduce([there for _, there in _all(block, relation.key_columns)])
    return np.where(keyed, _identities(block, relation.key_columns), whole)


def _identities(block: Block, columns: Sequence[int]) -> Ints:
    """One integer a row for the values of some columns; NULLs are equal to each other."""
    return _combined([np.where(there, found, _ABSENT) for found, there in _all(block, columns)])


def text_hashes(texts: Texts) -> Hashes:
    """A hash of each text; NULL counts as the empty one."""
    if not texts.data:
        return np.zeros(len(texts), dtype=np.uint64)
    begins, lengths = texts.offsets[:-1], np.diff(texts.offsets)
    used = np.frombuffer(texts.data, dtype=np.uint8).astype(np.uint64)
    places = np.arange(len(used), dtype=np.int64) - np.repeat(begins, lengths)
    weights = _powers(1 << max(6, int(lengths.max()).bit_length()))
    sums = np.zeros(len(used) + 1, dtype=np.uint64)
    np.cumsum((used + np.uint64(1)) * weights[places], out=sums[1:])
    found: Hashes = (sums[begins + lengths] - sums[begins] + lengths.view(np.uint64)) * _SPREAD
    found ^= found >> _HALF
    return found * _SPREAD


def _all(block: Block, columns: Sequence[int]) -> list[tuple[Ints, Flags]]:
    return [_column(block, column) for column in columns]


def _column(block: Block, column: int) -> tuple[Ints, Flags]:
    """Integers for the values of a column, and where there are any."""
    integers = block.integers(column)
    if integers is not None:
        return integers, np.ones(len(block), dtype=bool)
    numbers = block.numbers(column)
    if numbers is not None:
        return _of_numbers(numbers[0]), numbers[1]
    texts = block.texts(column)
    if isinstance(texts, Texts):
        return text_hashes(texts).view(np.int64), np.ones(len(block), dtype=bool)
    if not isinstance(texts, Sequence):
        return text_hashes(Texts.of([texts])).view(np.int64), texts.is_valid().to_numpy(zero_copy_only=False)
    values = block.values(column)
    there = np.array([value is not None for value in values], dtype=bool)
    if any(isinstance(value, str) for value in values):
        return text_hashes(Texts.of([texts])).view(np.int64), there
    known = [0 if value is None else value for value in values]
    exact = all(isinstance(value, int) for value in known)
    return _of_numbers(np.array(known, dtype=np.int64 if exact else np.float64)), there


def _of_numbers(numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Ints:
    """Equal numbers give equal integers, whatever their types: 1, 1.0 and True do."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.int64)
    floats = numbers.astype(np.float64)
    whole = (np.floor(floats) == floats) & (np.abs(floats) < _WHOLE)
    found = mixed(floats.view(np.uint64) * _SPREAD, np.zeros(len(floats), dtype=np.int64)).view(np.int64)
    return np.where(whole, np.where(whole, floats, 0).astype(np.int64), found)


def _combined(parts: Sequence[Ints]) -> Ints:
    found = np.zeros(len(parts[0]), dtype=np.uint64)
    for number, part in enumerate(parts, 1):
        found = mixed((found + part.view(np.uint64)) * _SPREAD, np.full(len(part), number, dtype=np.int64))
    return np.where(found.view(np.int64) == NULL, _ABSENT, found.view(np.int64))


@cache
def _powers(most: int) -> Hashes:
    found = np.full(most, _PRIME, dtype=np.uint64)
    found[0] = 1
    return np.multiply.accumulate(found)
