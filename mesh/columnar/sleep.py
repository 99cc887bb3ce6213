"""Which queries sleep: those one of whose keywords no live tuple carries.

They have no partials, and catch up with the live tuples when they wake (S-KWS
paper, Section 4.1, for the whole mesh of a query instead of each operator).
"""

from __future__ import annotations

import numpy as np

from mesh.columnar.columns import Flags, Ints
from mesh.columnar.labels import Labelled


class Sleep:
    """By query: the keywords that live tuples carry, and if it is awake.

    ``everything`` are the keywords that a query needs to wake; tuples with
    the label ``excluded`` take no part.
    """

    def __init__(self, everything: int, excluded: int) -> None:
        self._everything = everything
        self._excluded = excluded
        self._carried: Ints = np.zeros(1, dtype=np.int64)
        self._awake: Flags = np.zeros(1, dtype=bool)

    def enrol(self, query: int) -> None:
        """A query is there from now on, asleep."""
        if query >= len(self._awake):
            more = query + 1
            self._awake = np.concatenate([self._awake, np.zeros(more, dtype=bool)])
            self._carried = np.concatenate([self._carried, np.zeros(more, dtype=np.int64)])

    def forget(self, query: int) -> None:
        """A query is there no longer."""
        self._awake[query], self._carried[query] = False, 0

    def carried(self, query: int) -> int:
        """The keywords of a query that live tuples carry; dead ones may count until they are purged."""
        return int(self._carried[query])

    def awake(self, queries: Ints) -> Flags:
        """Which of the queries are awake."""
        return self._awake[queries]

    def woken(self, labelled: Labelled) -> Flags:
        """By query: who wakes since tuples with these labels came."""
        self._carry(labelled)
        woken: Flags = (self._carried == self._everything) & ~self._awake
        self._awake |= woken
        return woken

    def settle(self, labelled: Labelled) -> bool:
        """These are all labels that are left; True if somebody falls asleep."""
        self._carried[:] = 0
        self._carry(labelled)
        falling_asleep = self._awake & (self._carried != self._everything)
        self._awake &= ~falling_asleep
        return bool(falling_asleep.any())

    def _carry(self, labelled: Labelled) -> None:
        taking_part = labelled.label != self._excluded
        np.bitwise_or.at(self._carried, labelled.query[taking_part], labelled.label[taking_part])
