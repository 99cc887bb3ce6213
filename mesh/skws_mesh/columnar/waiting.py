"""Partial results that wait for tuples: each once, with an entry for every group that it waits in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skws_mesh.columnar.columns import Flags, Hashes, Ints, cells, mixed
from skws_mesh.columnar.hash_index import HashIndex
from skws_mesh.columnar.operators import OperatorTable
from skws_mesh.columnar.store import Partials, PartialStore, Table


class NewPartials:
    """New partials that will wait, collected while they are joined with the live tuples."""

    def __init__(self) -> None:
        self.partials: list[Partials] = []
        self._entries: list[tuple[Ints, Ints, Hashes]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, some: Partials, places: Ints, groups: Ints, hashes: Hashes) -> None:
        """Those at the places, once for each group and the hash of its join value."""
        wait = np.zeros(len(some), dtype=bool)
        wait[places] = True
        if not wait.all():
            some, places = some.taken(wait), (np.cumsum(wait) - 1)[places]
        self.partials.append(some)
        self._entries.append((places + self._size, groups, hashes))
        self._size += len(some)

    @property
    def nbytes(self) -> int:
        entries = sum(column.nbytes for entry in self._entries for column in entry)
        return entries + sum(some.nbytes for some in self.partials)

    def all(self) -> tuple[Partials, Ints, Ints, Hashes]:
        """All partials, at least one, and of all entries places, groups and hashes."""
        places, groups, hashes = zip(*self._entries, strict=True)
        return (
            Partials.together(self.partials),
            np.concatenate(places),
            np.concatenate(groups),
            np.concatenate(hashes),
        )


class Waiting:
    """The waiting partials of a mesh; some may be dead and not yet purged.

    An open group waits by join value, a closed one by join value and query.
    """

    def __init__(self, width: int, operators: OperatorTable) -> None:
        self._operators = operators
        self._store = PartialStore(width)
        few = np.empty(0, dtype=np.int32)
        self._entries = Table((few, few))  # type: ignore[arg-type]  # place of a partial, group; widened when read
        self._open = HashIndex()  # join value -> number of an entry
        self._closed = HashIndex()  # (join value, query) -> number of an entry

    def __len__(self) -> int:
        """The number of partials."""
        return self._store.size

    @property
    def partials(self) -> Partials:
        """Views of all partials; their columns are as narrow as they are kept."""
        return self._store.partials

    @property
    def groups(self) -> Ints:
        """The groups that partials wait in, once for every partial."""
        return self._entries.columns()[1].astype(np.int64)

    def add(self, new: Partials, places: Ints, groups: Ints, hashes: Hashes) -> None:
        """Add waiting partials; an entry has a place among them, a group and the hash of a join value."""
        first = self._store.append(new.columns())
        number = self._entries.append((places + first, groups))
        is_open = self._operators.open(groups)
        opened, closed = np.flatnonzero(is_open), np.flatnonzero(~is_open)
        self._open.add(hashes[opened], number + opened)
        self._closed.add(mixed(hashes[closed], new.query[places[closed]]), number + closed)

    def in_open_groups(self, hashes: Hashes) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The partials that wait for these hashes: (position in ``hashes``, place of the partial, group).

        In parts; no partial may be added between two of them.
        """
        return self._found(self._open, hashes)

    def in_closed_groups(self, hashes: Hashes) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The same in closed groups, for hashes of join value and query."""
        return self._found(self._closed, hashes)

    def looking(self) -> tuple[Ints, Ints]:
        """The look-ups of open groups: edges, each with a member."""
        places, groups = self._at(np.flatnonzero(self._operators.open(self.groups)))
        members = cells(self._store.partials.members, places, self._operators.node(groups))
        return self._operators.edge(groups), members.astype(np.int64)

    def end(self, slots: Ints, ends: Ints) -> None:
        """End the partials that contain one of ``slots`` with it, given the ends of all tuples."""
        self._store.end(slots, ends)

    def mark(self, horizon: int, referred: Flags) -> None:
        """Flag the tuples, by slot, that partials which end after ``horizon`` hold."""
        self._store.mark(horizon, referred)

    def compact(self, horizon: int, slots: Ints) -> None:
        """Drop what ended at or before ``horizon``; members get their tuples' new slots."""
        self._follow(self._store.compact(horizon, slots))

    def keep(self, kept: Flags) -> None:
        """Drop all other partials."""
        self._follow(self._store.keep(kept))

    def _follow(self, renumbered: Ints) -> None:
        """Give partials their new places; those with negative ones are gone."""
        entries = self._entries.follow(renumbered)
        self._open.remap(entries)
        self._closed.remap(entries)

    def _found(self, index: HashIndex, hashes: Hashes) -> Iterator[tuple[Ints, Ints, Ints]]:
        for position, entries in index.probed(hashes):
            yield position, *self._at(entries)

    def _at(self, entries: Ints) -> tuple[Ints, Ints]:
        """The places of the partials and the groups of some entries."""
        places, groups = (column.take(entries).astype(np.int64) for column in self._entries.columns())
        return places, groups
