"""The candidate networks of results, numbered in the order in which they are first found."""

from __future__ import annotations

import numpy as np

from skws_mesh.columnar.columns import Ints, cells, distinct
from skws_mesh.delta.results import Trees
from skws_mesh.tree import Tree
from skws_schema.graph import edges
from skws_schema.model import Schema

_NONE = -1
_FIRST, _BOTH = 1, 3  # keyword bitmaps


class PathNetworks:
    """Numbers for networks that are paths; a path begins with the first keyword of a query.

    The first numbers are for one tuple with both keywords, by relation; the next ones are for one
    tuple with the only keyword of a query.
    """

    def __init__(self, schema: Schema) -> None:
        self._relations = len(schema.relations)
        self._edges = edges(schema)
        self._steps: list[tuple[int, int]] = [(_NONE, _NONE)] * (2 * self._relations)  # number before, edge
        self._next: Ints = np.full((2 * self._relations, len(self._edges)), _NONE, dtype=np.int64)
        self._trees: dict[int, Tree] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def single(self, relations: Ints) -> Ints:
        """The numbers of single tuples with the only keyword of a query."""
        return relations + self._relations

    def numbers(self, relations: Ints, steps: Ints) -> Ints:
        """The number of each path, given its first relation and its edges, one row of ``steps`` per step."""
        numbers = relations
        for step in steps:
            successors = cells(self._next, numbers, step)
            new = np.flatnonzero(successors == _NONE)
            if len(new):
                self._add(distinct(numbers[new] * len(self._edges) + step[new]))
                successors = cells(self._next, numbers, step)
            numbers = successors
        return numbers

    def network(self, number: int) -> Tree:
        """The candidate network with a number."""
        tree = self._trees.get(number)
        if tree is None:
            tree = self._trees[number] = self._build(number)
        return tree

    def _add(self, codes: Ints) -> None:
        first = len(self._steps)
        previous, edge = np.divmod(codes, len(self._edges))
        self._steps += zip(previous.tolist(), edge.tolist(), strict=True)
        if len(self._steps) > len(self._next):
            larger = np.full((2 * len(self._steps), len(self._edges)), _NONE, dtype=np.int64)
            larger[: len(self._next)] = self._next
            self._next = larger
        self._next[previous, edge] = np.arange(first, len(self._steps))

    def _build(self, number: int) -> Tree:
        edge_ids: list[int] = []
        while (step := self._steps[number])[1] != _NONE:
            edge_ids.append(step[1])
            number = step[0]
        if not edge_ids:
            bitmap = _BOTH if number < self._relations else _FIRST
            return Tree.single(number % self._relations, bitmap)
        tree = Tree.single(number, _FIRST)
        for depth, edge in enumerate(reversed(edge_ids)):
            keywords = 0 if depth < len(edge_ids) - 1 else _BOTH ^ _FIRST
            tree = tree.grow(depth, edge, self._edges[edge].target, keywords, 0)
        return tree


class TreeNetworks:
    """Numbers for networks that may branch."""

    def __init__(self, schema: Schema) -> None:
        self._edges = edges(schema)
        self._numbers: dict[tuple[tuple[int, ...], ...], int] = {}
        self._trees: list[Tree] = []
        self._orders: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._trees)

    def network(self, number: int) -> Tree:
        """The candidate network with a number."""
        return self._trees[number]

    def numbers(self, trees: Trees, relations: Ints) -> tuple[Ints, Ints]:
        """The number of each tree's network, and the tree's nodes in the order of that network.

        ``relations`` are those of the members, negative for missing ones.
        """
        width = len(relations)
        columns = np.vstack([relations, trees.bitmaps, trees.parents, trees.edges])
        kinds, inverse = np.unique(columns, axis=1, return_inverse=True)
        numbers = [self._number(*kind) for kind in kinds.T.reshape(-1, 4, width).tolist()]
        orders = [(*self._orders[number], *range(len(self._orders[number]), width)) for number in numbers]
        rows = np.array(orders, dtype=np.int64).reshape(-1, width)
        return np.array(numbers, dtype=np.int64).take(inverse.ravel()), rows.take(inverse.ravel(), axis=0).T

    def _number(self, relations: list[int], bitmaps: list[int], parents: list[int], steps: list[int]) -> int:
        size = sum(relation >= 0 for relation in relations)
        key = tuple(tuple(column[:size]) for column in (relations, bitmaps, parents, steps))
        number = self._numbers.setdefault(key, len(self._trees))
        if number == len(self._trees):
            tree, order = Tree.single(relations[0], bitmaps[0]), [0]
            stack = [(node, 0) for node in range(size) if parents[node] == 0]
            while stack:
                node, depth = stack.pop()
                tree = tree.grow(depth, steps[node], relations[node], bitmaps[node], 0)
                order.append(node)
                stack += [(child, depth + 1) for child in range(size) if parents[child] == node]
            self._trees.append(tree)
            self._orders.append(tuple(order))
        return number
