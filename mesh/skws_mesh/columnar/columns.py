"""Tuples as columns: lifespans, and join values as 64-bit integers.

Equal join values become equal integers. Different values may collide, so the
values themselves are compared before a result is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Integers of at most 64 bits."""

NULL = np.int64(-(1 << 63))  # the key of a value that joins with nothing
NOTHING: Ints = np.empty(0, dtype=np.int64)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(29)
_ONE = np.uint64(1)
# Codes below this many times their count are looked up in tables, which is faster than sorting.
_MOST_SPARSITY = 16

Number = TypeVar("Number", bound=np.integer[Any])
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class TupleColumns:
    """A batch of tuples. ``keys[i, j]`` is tuple i's value for its relation's key set j, or NULL.

    ``place`` grows with the order of arrival, which orders tuples with the same start.
    """

    relation: Ints
    start: Ints
    end: Ints
    keys: Ints
    place: Ints

    def __len__(self) -> int:
        return len(self.relation)

    def columns(self) -> tuple[Ints, ...]:
        return self.relation, self.start, self.end, self.keys, self.place


def index_hashes(index: Ints, values: Ints) -> Hashes:
    """Hashes of values in many indexes, comparable in one sorted array: index and value mixed to 64 bits."""
    return mix(values.view(np.uint64) * _MIX, index)


def mix(hashes: Hashes, numbers: Ints) -> Hashes:
    """Mix each hash with a number."""
    codes: Hashes = numbers.view(np.uint64) + _ONE
    codes *= _SPREAD
    codes ^= hashes
    codes ^= codes >> _HALF
    codes *= _MIX
    return codes


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Each value once, in order. Sorting is many times as fast as ``np.unique``, which hashes."""
    sorted_values = np.sort(values)
    is_first = np.ones(len(sorted_values), dtype=bool)
    np.not_equal(sorted_values[1:], sorted_values[:-1], out=is_first[1:])
    return sorted_values.take(np.flatnonzero(is_first))


def kinds_of(codes: Ints) -> tuple[Ints, Ints]:
    """The position of one code for each distinct value, and for each code the number of its value."""
    if not _dense(codes):
        _, first, kinds = np.unique(codes, return_index=True, return_inverse=True)
        return first, kinds
    positions = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    positions[codes] = np.arange(len(codes))
    values = np.flatnonzero(positions >= 0)
    first = positions[values]
    positions[values] = np.arange(len(values))
    return first, positions.take(codes)


def _dense(codes: Ints) -> bool:
    return int(codes.max(initial=-1)) < _MOST_SPARSITY * len(codes)


def repeated(codes: Ints) -> Flags:
    """True for each code that occurs more than once."""
    if not _dense(codes):
        _, kinds, counts = np.unique(codes, return_inverse=True, return_counts=True)
        return (counts > 1).take(kinds)
    is_repeated = np.bincount(codes) > 1
    return is_repeated.take(codes) if is_repeated.any() else np.zeros(len(codes), dtype=bool)


def cells(table: npt.NDArray[Number], rows: Ints, columns: Ints) -> npt.NDArray[Number]:
    """The values of a table at each (row, column), at a third of the cost of indexing by two arrays."""
    values: npt.NDArray[Number] = table.ravel().take(rows * table.shape[1] + columns)
    return values


def ranges(first: Integers, counts: Integers) -> Ints:
    """The numbers first[i], ..., first[i] + counts[i] - 1 for every i, concatenated."""
    numbers = np.repeat(first - (np.cumsum(counts) - counts), counts)
    numbers += np.arange(len(numbers), dtype=np.int64)
    return numbers


def slices(counts: Ints, most: int) -> Iterator[slice]:
    """Consecutive slices of ``counts``; the sum of each is at most about ``most``."""
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(most, int(ends[-1]) if len(ends) else 0, most)).tolist()
    for begin, end in pairwise([0, *cuts, len(counts)]):
        if begin < end:
            yield slice(begin, end)


def write(
    array: npt.NDArray[Scalar], position: int, values: npt.NDArray[Scalar], *, least: int = 0
) -> npt.NDArray[Scalar]:
    """Write ``values`` from a position on; returns the array, or a larger copy if they do not fit.

    A copy has a quarter more space, and space for at least ``least`` values. It keeps the values before the
    position.
    """
    end = position + len(values)
    if end > len(array):
        array = with_space(array, position, max(least, end + end // 4))
    array[position:end] = values
    return array


def with_space(array: npt.NDArray[Scalar], used: int, space: int) -> npt.NDArray[Scalar]:
    """The array, or a copy of its first ``used`` values, with space for ``space`` values.

    Unused space takes no memory yet.
    """
    if space <= len(array):
        return array
    larger = np.empty((space, *array.shape[1:]), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger
