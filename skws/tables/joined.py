"""Which rows have a join value: sorted values beside the numbers of their rows, memory-mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mesh.columnar.columns import NULL, Flags, Ints, ranges
from skws.tables.arrays import load, save


def save_joined(folder: Path, number: int, values: Ints, gone: Flags) -> None:
    """Index the values of all rows but those that are ``gone``."""
    rows = np.flatnonzero((values != NULL) & ~gone)
    rows = rows[np.argsort(values[rows], kind="stable")]
    save(folder, f"join_{number}_values", values[rows])
    save(folder, f"join_{number}_rows", rows.astype(np.uint32))


class Joined:
    """The rows of a table by the values of one set of columns."""

    def __init__(self, folder: Path, number: int) -> None:
        self._values: Ints = load(folder, f"join_{number}_values")
        self._rows = load(folder, f"join_{number}_rows")

    def partners(self, values: Ints) -> Ints:
        """The rows with any of some values, given in order and each once."""
        first, counts = self._found(values)
        found: Ints = self._rows[ranges(first, counts)].astype(np.int64)
        return found

    def counts(self, values: Ints) -> Ints:
        """How many rows have each value."""
        return self._found(values)[1]

    def _found(self, values: Ints) -> tuple[Ints, Ints]:
        first = np.searchsorted(self._values, values)
        met = np.flatnonzero(first < len(self._values))
        met = met[self._values[first[met]] == values[met]]
        counts = np.zeros(len(values), dtype=np.int64)
        counts[met] = np.searchsorted(self._values, values[met], side="right") - first[met]
        return first, counts
