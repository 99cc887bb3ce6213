"""The guards that hold at each record, as one small number: its letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from windows.expressions import guards as g
from windows.expressions.columns import Columns, Ints

_TABULATED: Final = 12
"""Up to so many guards, a table of all combinations is small."""
_BITS: Final = 62


class Letters:
    """Numbers the combinations of guards that occur, in order of occurrence.

    The processor's automata move by these numbers. Combinations that cannot
    occur never get one, so nothing need be decided about guards at run time.
    """

    def __init__(self, guards: Sequence[g.Guard]) -> None:
        self.guards = tuple(guards)
        self.signs: list[tuple[bool, ...]] = []
        self._known: dict[bytes | int, int] = {}
        size = 1 << len(guards) if len(guards) <= _TABULATED else 0
        self._table = np.full(size, -1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.signs)

    def of(self, columns: Columns) -> Ints:
        """The letter of each record of a batch."""
        held = [columns.holds(guard) for guard in self.guards]
        if len(self.guards) > _BITS:
            return self._wide(np.array(held))
        codes = np.zeros(len(columns), dtype=np.int64)
        for bit, flags in enumerate(held):
            codes |= flags.astype(np.int64) << bit
        return self._tabulated(codes) if len(self._table) else self._looked_up(codes)

    def _tabulated(self, codes: Ints) -> Ints:
        found = self._table[codes]
        if (found < 0).any():
            for code in np.unique(codes[found < 0]).tolist():
                self._table[code] = self._number(code, self._signs(code))
            found = self._table[codes]
        return found

    def _looked_up(self, codes: Ints) -> Ints:
        distinct, places = np.unique(codes, return_inverse=True)
        numbers = [self._number(code, self._signs(code)) for code in distinct.tolist()]
        return np.array(numbers, dtype=np.int64)[places]

    def _wide(self, held: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Ints:
        """For more guards than an integer has bits."""
        packed = np.packbits(held, axis=0).T
        distinct, first, places = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        numbers = [
            self._number(code.tobytes(), tuple(held[:, place].tolist()))
            for code, place in zip(distinct, first.tolist(), strict=True)
        ]
        return np.array(numbers, dtype=np.int64)[places.reshape(-1)]

    def _signs(self, code: int) -> tuple[bool, ...]:
        return tuple(bool(code >> bit & 1) for bit in range(len(self.guards)))

    def _number(self, code: bytes | int, signs: tuple[bool, ...]) -> int:
        if code not in self._known:
            self._known[code] = len(self.signs)
            self.signs.append(signs)
        return self._known[code]
