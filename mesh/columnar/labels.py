"""Which tuples carry keywords of which queries: the sparse matrix of keyword bitmaps.

Most tuples carry no keyword of most queries; what is not stored is 0, the
label of free tuples. Entries are kept in order of (slot, query).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges

QUERY_BITS = 20  # queries that a mesh can have had: about a million
_QUERY = (1 << QUERY_BITS) - 1


@dataclass(frozen=True, slots=True)
class Labelled:
    """Tuples (by slot, or by place in a batch) with their keyword bitmaps for queries, in order of both."""

    tuple: Ints
    query: Ints
    label: Ints

    def __len__(self) -> int:
        return len(self.tuple)

    def taken(self, chosen: Flags) -> Labelled:
        return Labelled(self.tuple[chosen], self.query[chosen], self.label[chosen])

    def followed_by(self, other: Labelled, first: int) -> Labelled:
        """These and the labels of tuples that are counted from ``first`` on, behind all of these."""
        columns = (other.tuple + first, other.query, other.label)
        own = (self.tuple, self.query, self.label)
        return Labelled(*map(np.concatenate, zip(own, columns, strict=True)))

    @classmethod
    def none(cls) -> Labelled:
        return cls(NOTHING, NOTHING, NOTHING)


class Labels:
    """The labels of live tuples by slot and query."""

    def __init__(self) -> None:
        self._places: Ints = NOTHING  # slot and query in one integer, sorted
        self._labels: Ints = NOTHING
        self._some: Flags = np.empty(0, dtype=bool)  # by slot: it has a label

    def __len__(self) -> int:
        return len(self._places)

    def append(self, new: Labelled, slots: int) -> None:
        """Add labels of new tuples, the slots up to ``slots`` being in use."""
        self._set(
            np.concatenate([self._places, _place(new.tuple, new.query)]),
            np.concatenate([self._labels, new.label]),
            slots,
        )

    def insert(self, new: Labelled, slots: int) -> None:
        """Add labels of any tuples, for queries that are new."""
        places = np.concatenate([self._places, _place(new.tuple, new.query)])
        order = np.argsort(places, kind="stable")
        self._set(places[order], np.concatenate([self._labels, new.label])[order], slots)

    def of(self, query: Ints, slots: Ints) -> Ints:
        """The label of each (query, tuple)."""
        found = np.zeros(len(slots), dtype=np.int64)
        if len(slots) and slots.max() >= len(self._some):  # free tuples that came since
            self._some = np.concatenate([self._some, np.zeros(int(slots.max()) + 1, dtype=bool)])
        carrying = np.flatnonzero(self._some.take(slots))
        if len(carrying):
            places = _place(slots[carrying], query[carrying])
            first = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
            hit = self._places[first] == places
            found[carrying[hit]] = self._labels[first[hit]]
        return found

    def carried(self, slots: Ints) -> tuple[Ints, Labelled]:
        """All labels of each tuple, with the place of the tuple in ``slots``."""
        first = np.searchsorted(self._places, _place(slots, 0))
        counts = np.searchsorted(self._places, _place(slots + 1, 0)) - first
        found = ranges(first, counts)
        of = np.repeat(np.arange(len(slots), dtype=np.int64), counts)
        return of, Labelled(slots[of], self._places[found] & _QUERY, self._labels[found])

    def all(self) -> Labelled:
        """All that is labelled."""
        return Labelled(self._places >> QUERY_BITS, self._places & _QUERY, self._labels)

    def forget(self, query: int) -> None:
        """Drop all labels for one query."""
        kept = self._places & _QUERY != query
        self._set(self._places[kept], self._labels[kept], len(self._some))

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; those of negative ones go."""
        renumbered = slots[self._places >> QUERY_BITS]
        kept: Flags = renumbered >= 0
        query = self._places[kept] & _QUERY
        live = int(slots.max(initial=-1)) + 1
        self._set(renumbered[kept] << QUERY_BITS | query, self._labels[kept], live)

    def _set(self, places: Ints, labels: Ints, slots: int) -> None:
        self._places, self._labels = places, labels
        self._some = np.zeros(slots, dtype=bool)
        self._some[places >> QUERY_BITS] = True


def distinct_pairs(slots: Ints, query: Ints) -> tuple[Ints, Ints]:
    """Each (slot, query) once."""
    places = distinct(_place(slots, query))
    return places >> QUERY_BITS, places & _QUERY


def _place(slots: Ints, query: Ints | int) -> Ints:
    return slots << QUERY_BITS | query
