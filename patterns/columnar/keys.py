"""Keys of tuples, by column, as numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as counted_from
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from patterns.evaluation.program import Key
from schema.model import Value

Ints = npt.NDArray[np.int64]
NONE: Final = -1  # the number of a key that is undefined
_ROOM: Final = 1 << 62
# Up to how many possible keys for each one of a batch are counted in a table, rather than sorted.
_SPARSE: Final = 4
_SHORT: Final = 1 << 16  # numbers below are sorted by their digits


@dataclass(frozen=True, slots=True)
class Column:
    """Values of some tuples; ``integers``: the same as an array, None where there are others."""

    values: list[Value]
    integers: Ints | None

    @classmethod
    def of(cls, values: Iterable[Value]) -> Column:
        told = [*values]
        try:
            # Takes integers alone, and booleans, which are equal to 0 and 1 as keys too.
            integers = array("q", cast("list[int]", told))
        except (TypeError, OverflowError):
            return cls(told, None)
        return cls(told, np.frombuffer(integers, dtype=np.int64))


class Numbers:
    """Numbers for keys, the same for equal ones, never for others."""

    def __init__(self) -> None:
        self._of: dict[Key, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._of)

    def of(self, columns: Sequence[Column], count: int) -> Ints:
        """The numbers of so many keys, given by column; NONE for those with a NULL."""
        if not columns:
            return np.zeros(count, dtype=np.int64)
        packed = _packed(columns)
        if packed is None:
            return self._looked_up([column.values for column in columns], count)
        first, which = _distinct(*packed)
        chosen = first.tolist()
        return self._looked_up([[c.values[at] for at in chosen] for c in columns], len(chosen))[which]

    def _looked_up(self, columns: Sequence[list[Value]], count: int) -> Ints:
        keys: Iterable[Key] = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        numbered: Iterator[int] = map(self._of.setdefault, keys, counted_from(self._next))
        found = np.fromiter(numbered, dtype=np.int64, count=count)
        self._next = max(self._next, int(found.max(initial=-1)) + 1)
        for column in columns:
            if None in column:
                found[[i for i, value in enumerate(column) if value is None]] = NONE
        return found

    def forget_but(self, used: Ints) -> None:
        """Keep the keys of some numbers alone."""
        kept = set(used.tolist())
        self._of = {key: number for key, number in self._of.items() if number in kept}


def order_of(numbers: Ints) -> Ints:
    """The order that sorts numbers, from NONE on; equal ones stay as they are."""
    short = len(numbers) and int(numbers.max()) + 1 < _SHORT
    return np.argsort((numbers + 1).astype(np.uint16) if short else numbers, kind="stable")


def _packed(columns: Sequence[Column]) -> tuple[Ints, int] | None:
    """Columns of integers as one, equal where all are, and how many values it can have.

    None if there are other values, or no room.
    """
    packed, possible = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        values = column.integers
        if values is None or not len(values):
            return None
        least = int(values.min())
        span = int(values.max()) - least + 1
        possible *= span
        if possible > _ROOM:
            return None
        packed = packed * span + (values - least)
    return packed, possible


def _distinct(packed: Ints, possible: int) -> tuple[Ints, Ints]:
    """Where each distinct value is found, and which of them each value is."""
    if possible > _SPARSE * len(packed):
        _, first, which = np.unique(packed, return_index=True, return_inverse=True)
        return first, which
    place = np.full(possible, NONE, dtype=np.int64)
    place[packed] = np.arange(len(packed))
    first = place[place >= 0]
    place[packed[first]] = np.arange(len(first))
    return first, place[packed]
