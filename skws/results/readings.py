"""How networks read, by number: what all of their results have in common stands in columns once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mesh.columnar.columns import NOTHING, Ints, distinct
from mesh.columnar.store import Table
from skws.results.assemble import Reading


class Readings:
    """Readings by number, in the order in which their networks were first met.

    What tells networks apart is an integer, and ``reading`` makes what is not there.
    """

    def __init__(self, reading: Callable[[int], Reading]) -> None:
        self._reading = reading
        self._numbers: dict[int, int] = {}  # by network
        self._readings: list[Reading] = []
        self._queries: dict[str, int] = {}
        self._of_each = Table((NOTHING, NOTHING, NOTHING))  # size, row among those of its size, query
        self._of_size: dict[int, Table] = {}

    def __getitem__(self, number: int) -> Reading:
        return self._readings[number]

    def numbers(self, networks: Sequence[int]) -> Ints:
        """The numbers of some networks, each given once."""
        new = [network for network in networks if network not in self._numbers]
        if new:
            self._numbers.update(
                zip(new, range(len(self._readings), len(self._readings) + len(new)), strict=True)
            )
            self._add(list(map(self._reading, new)))
        return np.fromiter(map(self._numbers.__getitem__, networks), dtype=np.int64, count=len(networks))

    def some(self, numbers: Ints) -> list[Reading]:
        """Some of the readings."""
        return list(map(self._readings.__getitem__, numbers.tolist()))

    def sizes(self, numbers: Ints) -> Ints:
        """How many nodes each has."""
        return self._of_each.columns()[0].take(numbers)

    def queries(self, numbers: Ints) -> Ints:
        """The numbers of the texts of their queries, below ``query_texts``."""
        return self._of_each.columns()[2].take(numbers)

    @property
    def query_texts(self) -> int:
        """How many texts of queries there are."""
        return len(self._queries)

    def columns(self, size: int, numbers: Ints) -> Ints:
        """The columns of some that have so many nodes, a row each (``Reading.columns``)."""
        (table,) = self._of_size[size].columns()
        return table.take(self._of_each.columns()[1].take(numbers), axis=0)

    def _add(self, new: Sequence[Reading]) -> None:
        self._readings += new
        sizes = np.array([len(reading.positions) for reading in new], dtype=np.int64)
        rows = np.empty_like(sizes)
        for size in distinct(sizes).tolist():
            mine = np.flatnonzero(sizes == size)
            table = np.array([new[place].columns for place in mine.tolist()], dtype=np.int64)
            kept = self._of_size.setdefault(size, Table((np.empty((0, table.shape[1]), dtype=np.int64),)))
            rows[mine] = kept.append((table,)) + np.arange(len(mine))
        queries = [self._queries.setdefault(reading.query, len(self._queries)) for reading in new]
        self._of_each.append((sizes, rows, np.array(queries, dtype=np.int64)))
