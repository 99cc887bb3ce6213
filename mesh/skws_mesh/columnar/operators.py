"""The operators of the columnar mesh as tables of integers, and the partial results that wait for tuples.

The output of an operator waits in *groups*; a group is a member and an edge. A
table maps (group, bitmap of the match) to the next operator. An operator is
made when it is first needed: start-up costs nothing, and the unused part of a
large mesh is never made. A partial result is stored once, with an entry for
every group in which it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from skws_mesh.backend import OperatorUse
from skws_mesh.cngen import CNGen, GrowthPoint
from skws_mesh.columnar.columns import Flags, Hashes, Ints, cells, distinct, mix
from skws_mesh.columnar.hash_index import HashIndex
from skws_mesh.columnar.store import Partials, PartialStore, Table
from skws_mesh.sequence import FREE
from skws_mesh.tree import Tree
from skws_schema.budgets import check

NONE = -1
LEAST_BRIDGED = 4  # nodes of the largest network; with fewer nodes, few partials wait
_CHECK_INTERVAL = 1024  # operators made between two checks of the memory budget
# Codes of operators that do not exist yet: of trees that lack a keyword, and of complete trees.
_UNKNOWN, _UNKNOWN_COMPLETE = -2, -3

Scalar = TypeVar("Scalar", bound=np.generic)


class OperatorTable:
    """Operators by number. ``trees[op]`` is the tree whose instances operator ``op`` returns."""

    def __init__(self, generator: CNGen) -> None:
        self.generator = generator
        self.trees: list[Tree] = []
        self._points: list[GrowthPoint] = []
        self.excluded = 1 << generator.slots  # the bitmap of tuples that take no part
        self._complete = np.zeros(64, dtype=bool)
        self._size = np.ones(64, dtype=np.int64)
        self._parents = np.zeros((64, generator.max_size), dtype=np.int64)
        self._edges = np.full((64, generator.max_size), NONE, dtype=np.int64)
        self._first_group = np.full(64, NONE, dtype=np.int64)
        self._group_count = np.zeros(64, dtype=np.int64)
        self._probes = np.zeros(64, dtype=np.int64)
        self._owner = np.zeros(64, dtype=np.int64)
        self._ranks = np.full((64, generator.max_size), FREE, dtype=np.int64)
        self._next = np.full((64, self.excluded + 1), NONE, dtype=np.int32)
        self._node = np.zeros(64, dtype=np.int64)
        self._edge = np.zeros(64, dtype=np.int64)
        self._open = np.zeros(64, dtype=bool)
        self._bridged = np.zeros(64, dtype=bool)
        self._passing = np.zeros(64, dtype=bool)
        self._roots = np.full((len(generator.schema.relations), self.excluded + 1), NONE, dtype=np.int64)
        for relation, keywords in generator.roots:
            tree = Tree.single(relation, keywords)
            (self._roots[relation, keywords],) = self._add([tree], generator.is_total(tree))

    def __len__(self) -> int:
        return len(self.trees)

    def roots(self, relation: Ints, keywords: Ints) -> Ints:
        """The operator of each tuple that belongs to a root, otherwise NONE."""
        return self._roots[relation, keywords]

    def complete(self, operators: Ints) -> Flags:
        """True for each operator whose output is results."""
        return self._complete.take(operators)

    def groups(self, operators: Ints) -> tuple[Ints, Ints]:
        """The first group and the number of groups of each operator; missing groups are made."""
        new = operators.take(np.flatnonzero(self._first_group.take(operators) == NONE))
        for number, operator in enumerate(distinct(new).tolist()):
            if number % _CHECK_INTERVAL == 0:
                check()
            self._expand(operator)
        return self._first_group.take(operators), self._group_count.take(operators)

    def size(self, operators: Ints) -> Ints:
        """The number of nodes of each operator's tree."""
        return self._size.take(operators)

    def joins(self, operators: Ints, node: int) -> tuple[Ints, Ints]:
        """For each operator, the parent of a node and the edge from it; NONE if there is no such node."""
        return self._parents[operators, node], self._edges[operators, node]

    def ranks(self, operators: Ints) -> Ints:
        """For each operator, the ranks of its nodes in the keyword order; FREE for nodes without one."""
        return self._ranks[operators]

    def node(self, groups: Ints) -> Ints:
        """The member that each group joins next."""
        return self._node.take(groups)

    def open(self, groups: Ints) -> Flags:
        """True for each group that joins any free tuple, not only bridges and tuples with keywords."""
        return self._open.take(groups)

    def bridged(self, groups: Ints) -> Flags:
        """True for each group that joins bridges besides tuples with keywords."""
        return self._bridged.take(groups)

    def passing(self, groups: Ints) -> Flags:
        """True for each group that ends with a bridge, and so does not wait."""
        return self._passing.take(groups)

    def edge(self, groups: Ints) -> Ints:
        return self._edge.take(groups)

    def next(self, groups: Ints, keywords: Ints) -> Ints:
        """The operator of each match; NONE if it leads to no network."""
        operators = cells(self._next, groups, keywords)
        unknown = np.flatnonzero(operators < NONE)
        if len(unknown):
            codes = distinct(groups[unknown] * self._next.shape[1] + keywords[unknown])
            for first in range(0, len(codes), _CHECK_INTERVAL):
                check()
                self._make(codes[first : first + _CHECK_INTERVAL])
            operators = cells(self._next, groups, keywords)
        return operators.astype(np.int64)

    def uses(self, groups: Ints) -> list[OperatorUse]:
        """Each operator that has been expanded; ``groups`` has one element for each waiting partial."""
        operators = np.flatnonzero(self._first_group[: len(self.trees)] != NONE)
        waiting_counts = np.bincount(self._owner[groups], minlength=len(self.trees))
        trees = map(self.trees.__getitem__, operators.tolist())
        return list(
            map(OperatorUse, trees, waiting_counts[operators].tolist(), self._probes[operators].tolist())
        )

    @property
    def expanded(self) -> int:
        """The number of operators that have had output."""
        return int(np.count_nonzero(self._first_group[: len(self.trees)] != NONE))

    def count_probes(self, operators: Ints, times: Ints) -> None:
        """Add to the number of probes of the operators' output."""
        np.add.at(self._probes, operators, times)  # 7 ns each

    def _make(self, codes: Ints) -> None:
        """Make the operators with the given codes: group * width of the table + keywords."""
        table, trees, points, grow = self._next.ravel(), self.trees, self._points, self.generator.grow
        groups, keywords = np.divmod(codes, self._next.shape[1])
        owners, complete = self._owner[groups], table[codes] == _UNKNOWN_COMPLETE
        matches = zip(owners.tolist(), groups.tolist(), keywords.tolist(), complete.tolist(), strict=True)
        new_trees = [grow(trees[owner], points[group], *child) for owner, group, *child in matches]
        indexed_trees = [(index, tree) for index, tree in enumerate(new_trees) if tree is not None]
        indices = [index for index, _ in indexed_trees]
        numbers = self._add([tree for _, tree in indexed_trees], complete[indices])
        owners, groups = owners[indices], groups[indices]
        last = self._size[owners]  # the position of the new node
        self._size[numbers] = last + 1
        self._parents[numbers], self._edges[numbers] = self._parents[owners], self._edges[owners]
        self._parents[numbers, last], self._edges[numbers, last] = self._node[groups], self._edge[groups]
        table[codes] = NONE
        table[codes[indices]] = numbers

    def _add(self, trees: Sequence[Tree], complete: Flags | bool) -> Ints:
        """Add operators for trees, with the columns of a single node; returns their numbers."""
        numbers = np.arange(len(self.trees), len(self.trees) + len(trees))
        self.trees += trees
        while len(self.trees) > len(self._complete):
            self._complete = _doubled(self._complete, False)
            self._first_group = _doubled(self._first_group, NONE)
            self._group_count = _doubled(self._group_count, 0)
            self._probes = _doubled(self._probes, 0)
            self._size = _doubled(self._size, 1)
            self._parents, self._edges = _doubled(self._parents, 0), _doubled(self._edges, NONE)
            self._ranks = _doubled(self._ranks, FREE)
        self._complete[numbers] = complete
        if self.generator.sequence:
            for number, tree in zip(numbers.tolist(), trees, strict=True):
                ranks = map(self.generator.sequence.rank, tree.keywords)
                self._ranks[number, : len(tree.keywords)] = list(ranks)
        return numbers

    def _expand(self, operator: int) -> None:
        tree, largest = self.trees[operator], self.generator.max_size
        to_bridge = largest >= LEAST_BRIDGED and len(tree.relations) == largest - 2
        on_bridge = largest >= LEAST_BRIDGED and len(tree.relations) == largest - 1 and not tree.keywords[-1]
        self._first_group[operator] = len(self._points)
        for point in self.generator.growth_points(tree):
            group = len(self._points)
            self._points.append(point._replace(choices=()))  # the table has the choices
            if group == len(self._node):
                self._node, self._edge = _doubled(self._node, 0), _doubled(self._edge, 0)
                self._next, self._owner = _doubled(self._next, NONE), _doubled(self._owner, 0)
                self._open, self._bridged = _doubled(self._open, False), _doubled(self._bridged, False)
                self._passing = _doubled(self._passing, False)
            self._owner[group] = operator
            joins_free = (0, False) in point.choices
            self._bridged[group] = joins_free and to_bridge
            self._open[group] = joins_free and not to_bridge
            self._passing[group] = on_bridge
            self._node[group] = tree.path[point.depth]
            self._edge[group] = point.edge.id
            # NumPy takes ten times as long to assign one element by a list
            for keywords, complete in point.choices:
                self._next[group, keywords] = _UNKNOWN_COMPLETE if complete else _UNKNOWN
        self._group_count[operator] = len(self._points) - self._first_group[operator]


def _doubled(array: npt.NDArray[Scalar], fill: int) -> npt.NDArray[Scalar]:
    larger: npt.NDArray[Scalar] = np.full((2 * len(array), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class NewPartials:
    """New partials that will wait, collected while they are joined with the live tuples."""

    def __init__(self) -> None:
        self.partials: list[Partials] = []
        self._entries: list[tuple[Ints, Ints, Hashes]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, new: Partials, rows: Ints, groups: Ints, hashes: Hashes) -> None:
        """Add the partials at ``rows``, once for each group with the hash of its join value."""
        waits = np.zeros(len(new), dtype=bool)
        waits[rows] = True
        if not waits.all():
            new, rows = new.take(waits), (np.cumsum(waits) - 1)[rows]
        self.partials.append(new)
        self._entries.append((rows + self._size, groups, hashes))
        self._size += len(new)

    @property
    def nbytes(self) -> int:
        entries = sum(column.nbytes for entry in self._entries for column in entry)
        return entries + sum(partials.nbytes for partials in self.partials)

    def all(self) -> tuple[Partials, Ints, Ints, Hashes]:
        """All partials, at least one, and the rows, groups and hashes of all entries."""
        rows, groups, hashes = zip(*self._entries, strict=True)
        return (
            Partials.concat(self.partials),
            np.concatenate(rows),
            np.concatenate(groups),
            np.concatenate(hashes),
        )


class Waiting:
    """The waiting partials of a mesh; some may be dead and not yet purged.

    Partials in an open group wait by join value, those in a closed one by join value and query.
    """

    def __init__(self, width: int, operators: OperatorTable) -> None:
        self._operators = operators
        self._store = PartialStore(width)
        empty = np.empty(0, dtype=np.int32)
        self._entries = Table((empty, empty))  # type: ignore[arg-type]  # row of a partial, group; widened
        self._open = HashIndex()  # join value -> number of an entry
        self._closed = HashIndex()  # (join value, query) -> number of an entry

    def __len__(self) -> int:
        """The number of partials."""
        return self._store.size

    @property
    def partials(self) -> Partials:
        """Views of all partials; columns are as narrow as stored."""
        return self._store.partials

    @property
    def groups(self) -> Ints:
        """The groups in which partials wait, one for every partial and group."""
        return self._entries.columns()[1].astype(np.int64)

    def add(self, new: Partials, rows: Ints, groups: Ints, hashes: Hashes) -> None:
        """Add waiting partials; an entry has the row of a partial, a group and the hash of a join value."""
        first = self._store.append(new.columns())
        first_entry = self._entries.append((rows + first, groups))
        is_open = self._operators.open(groups)
        open_indices, closed_indices = np.flatnonzero(is_open), np.flatnonzero(~is_open)
        self._open.add(hashes[open_indices], first_entry + open_indices)
        self._closed.add(
            mix(hashes[closed_indices], new.query[rows[closed_indices]]), first_entry + closed_indices
        )

    def in_open_groups(self, hashes: Hashes) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The partials that wait for these hashes, as (position in ``hashes``, row of the partial, group).

        They come in parts; no partial may be added between two parts.
        """
        return self._matches(self._open, hashes)

    def in_closed_groups(self, hashes: Hashes) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Like ``in_open_groups``, for closed groups and hashes of join value and query."""
        return self._matches(self._closed, hashes)

    def lookups(self) -> tuple[Ints, Ints]:
        """The look-ups of open groups, as (edges, members)."""
        rows, groups = self._rows_and_groups(np.flatnonzero(self._operators.open(self.groups)))
        members = cells(self._store.partials.members, rows, self._operators.node(groups))
        return self._operators.edge(groups), members.astype(np.int64)

    def end(self, slots: Ints, ends: Ints) -> None:
        """End each partial with its tuples in ``slots``; ``ends``: the ends of all tuples, by slot."""
        self._store.end(slots, ends)

    def mark(self, horizon: int, flags: Flags) -> None:
        """Flag the tuples, by slot, of partials that end after ``horizon``."""
        self._store.mark(horizon, flags)

    def compact(self, horizon: int, slots: Ints) -> None:
        """Drop partials that ended at or before ``horizon``; members get the new slots of their tuples."""
        self._renumber(self._store.compact(horizon, slots))

    def keep(self, flags: Flags) -> None:
        """Drop all partials that are not flagged in ``flags``."""
        self._renumber(self._store.keep(flags))

    def _renumber(self, new_rows: Ints) -> None:
        """Give partials their new rows; those with negative ones are dropped."""
        entries = self._entries.renumber(new_rows)
        self._open.remap(entries)
        self._closed.remap(entries)

    def _matches(self, index: HashIndex, hashes: Hashes) -> Iterator[tuple[Ints, Ints, Ints]]:
        for position, entries in index.probe_in_parts(hashes):
            yield position, *self._rows_and_groups(entries)

    def _rows_and_groups(self, entries: Ints) -> tuple[Ints, Ints]:
        """The rows of the partials and the groups of some entries."""
        rows, groups = (column.take(entries).astype(np.int64) for column in self._entries.columns())
        return rows, groups
