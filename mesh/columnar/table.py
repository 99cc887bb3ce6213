"""The operators of the columnar mesh as tables of integers.

What an operator's output waits for is a *group*: a member and an edge. The
operator that a match belongs to stands at (group, label of the match), a label
being the bitmap of the tuple's keywords.
Operators are made when first met, so start-up costs nothing and a large mesh
costs what of it is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mesh.columnar import bridges
from mesh.columnar.columns import Flags, Ints, distinct
from mesh.generate import CNGen, Place
from mesh.sequence import FREE
from mesh.tree import Tree

NONE = -1
_UNKNOWN = -2

OperatorCounts: TypeAlias = list[tuple[Tree, int]]
Scalar = TypeVar("Scalar", bound=np.generic)


class OperatorTable:
    """Operators by number. ``trees[op]`` is the tree whose instances the operator gives out.

    ``needed`` tells for which trees there are operators at all.
    """

    def __init__(self, generator: CNGen, needed: Callable[[Tree], bool]) -> None:
        self._generator = generator
        self._needed = needed
        self.trees: list[Tree] = []
        self._places: list[Place] = []
        self.excluded = 1 << generator.slots  # the label of tuples that take no part
        self._complete = np.zeros(64, dtype=bool)
        self._size = np.zeros(64, dtype=np.int64)
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
            if needed(tree):
                self._roots[relation, keywords] = self._add(tree, generator.is_total(tree))

    def __len__(self) -> int:
        return len(self.trees)

    def add_network(self, tree: Tree) -> int:
        """The number of a network that is evaluated elsewhere."""
        return self._add(tree, complete=True)

    def roots(self, relation: Ints, keywords: Ints) -> Ints:
        """The operator of each tuple that is a root's, else NONE."""
        return self._roots[relation, keywords]

    def complete(self, operators: Ints) -> Flags:
        """Which operators give out results."""
        return self._complete[operators]

    def groups(self, operators: Ints) -> tuple[Ints, Ints]:
        """First group and number of groups of each operator, made if need be."""
        for new in distinct(operators[self._first_group[operators] == NONE]).tolist():
            self._expand(new)
        return self._first_group[operators], self._group_count[operators]

    def size(self, operators: Ints) -> Ints:
        """The number of nodes of each operator's tree."""
        return self._size[operators]

    def joins(self, operators: Ints, node: int) -> tuple[Ints, Ints]:
        """For each operator the parent of a node, and the edge from there: NONE if there is no such node."""
        return self._parents[operators, node], self._edges[operators, node]

    def ranks(self, operators: Ints) -> Ints:
        """For each operator the groups of keywords in order that its nodes are of, FREE where of none."""
        return self._ranks[operators]

    def node(self, groups: Ints) -> Ints:
        """The member that each group joins next."""
        return self._node[groups]

    def open(self, groups: Ints) -> Flags:
        """Which groups join any free tuple; to the others only bridges and tuples with keywords matter."""
        return self._open[groups]

    def bridged(self, groups: Ints) -> Flags:
        """Which groups join bridges besides tuples with keywords."""
        return self._bridged[groups]

    def passing(self, groups: Ints) -> Flags:
        """Which groups end with a bridge: they do not wait."""
        return self._passing[groups]

    def edge(self, groups: Ints) -> Ints:
        """The edge by which each group joins."""
        return self._edge[groups]

    def next(self, groups: Ints, keywords: Ints) -> Ints:
        """The operator of each match, NONE where no network can come of it."""
        found = self._next[groups, keywords]
        unknown = np.flatnonzero(found == _UNKNOWN)
        if len(unknown):
            for group, carried in {*zip(groups[unknown].tolist(), keywords[unknown].tolist(), strict=True)}:
                self._next[group, carried] = self._make(group, carried)
            found = self._next[groups, keywords]
        return found.astype(np.int64)

    def waiting(self, groups: Ints) -> OperatorCounts:
        """Each operator that was ever expanded, with how often one of its groups occurs."""
        owners = self._owner[groups]
        return self._expanded(np.bincount(owners, minlength=len(self.trees)))

    def probed(self, operators: Ints, times: Ints) -> None:
        """Output of these operators looks for partners, so many times."""
        np.add.at(self._probes, operators, times)  # 7 ns each

    def probes(self) -> OperatorCounts:
        """Each operator that was ever expanded, with how often its output has looked for partners."""
        return self._expanded(self._probes)

    def _expanded(self, counts: Ints) -> OperatorCounts:
        expanded = np.flatnonzero(self._first_group[: len(self.trees)] != NONE)
        return [(self.trees[operator], int(counts[operator])) for operator in expanded.tolist()]

    def _make(self, group: int, keywords: int) -> int:
        place = self._places[group]
        complete = dict(place.choices)[keywords]
        tree = self._generator.grow(self.trees[self._owner[group]], place, keywords, complete)
        return NONE if tree is None or not self._needed(tree) else self._add(tree, complete)

    def _add(self, tree: Tree, complete: bool) -> int:
        number = len(self.trees)
        self.trees.append(tree)
        if number == len(self._complete):
            self._complete = _doubled(self._complete, False)
            self._first_group = _doubled(self._first_group, NONE)
            self._group_count = _doubled(self._group_count, 0)
            self._probes = _doubled(self._probes, 0)
            self._size = _doubled(self._size, 0)
            self._parents, self._edges = _doubled(self._parents, 0), _doubled(self._edges, NONE)
            self._ranks = _doubled(self._ranks, FREE)
        self._complete[number] = complete
        size = self._size[number] = len(tree.relations)
        self._parents[number, 1:size] = tree.parents[1:]
        self._edges[number, 1:size] = tree.edges[1:]
        if self._generator.sequence:
            self._ranks[number, :size] = [self._generator.sequence.rank(each) for each in tree.keywords]
        return number

    def _expand(self, operator: int) -> None:
        tree, largest = self.trees[operator], self._generator.max_size
        to_bridge = largest >= bridges.LEAST_SIZE and len(tree.relations) == largest - 2
        on_bridge = (
            largest >= bridges.LEAST_SIZE and len(tree.relations) == largest - 1 and not tree.keywords[-1]
        )
        self._first_group[operator] = len(self._places)
        for place in self._generator.places(tree):
            group = len(self._places)
            self._places.append(place)
            if group == len(self._node):
                self._node, self._edge = _doubled(self._node, 0), _doubled(self._edge, 0)
                self._next, self._owner = _doubled(self._next, NONE), _doubled(self._owner, 0)
                self._open, self._bridged = _doubled(self._open, False), _doubled(self._bridged, False)
                self._passing = _doubled(self._passing, False)
            self._owner[group] = operator
            joins_free = any(not keywords for keywords, _ in place.choices)
            self._bridged[group] = joins_free and to_bridge
            self._open[group] = joins_free and not to_bridge
            self._passing[group] = on_bridge
            self._node[group] = tree.path[place.depth]
            self._edge[group] = place.edge.id
            for keywords, _ in place.choices:  # NumPy takes ten times as long for one by a list
                self._next[group, keywords] = _UNKNOWN
        self._group_count[operator] = len(self._places) - self._first_group[operator]


def _doubled(array: npt.NDArray[Scalar], fill: int) -> npt.NDArray[Scalar]:
    grown: npt.NDArray[Scalar] = np.full((2 * len(array), *array.shape[1:]), fill, dtype=array.dtype)
    grown[: len(array)] = array
    return grown
