"""Candidate networks as users read them: free trees in one fixed reading order.

CNGen roots a network according to its node order. The reading order starts at
the terminal node with the first keywords, so that the same network always reads
the same: ``director{tarantino} - movie{} - plays{} - actor{travolta}``.
Networks of one cluster share operators; these form the tree of the networks'
common prefixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from skws_mesh.cngen import CNGen
from skws_mesh.tree import Tree, neighbours
from skws_schema.budgets import memory_checked
from skws_schema.graph import Edge, edges, present_edges
from skws_schema.model import Schema


class CandidateNetwork(NamedTuple):
    """Nodes in preorder from the start of the reading.

    ``positions[i]`` is the position of node ``i`` in the tree from which it was made;
    ``parents[i]`` and ``edges[i]`` are -1 at the start.
    """

    relations: tuple[int, ...]
    keywords: tuple[int, ...]
    parents: tuple[int, ...]
    edges: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.relations)

    @classmethod
    def of(cls, tree: Tree) -> CandidateNetwork:
        if tree.parents == _chain(len(tree.parents)) and _slots(tree.keywords[0]) < _slots(tree.keywords[-1]):
            # Most networks do not branch, and are already in reading order.
            positions = tuple(range(len(tree.relations)))
            return cls(tree.relations, tree.keywords, tree.parents, tree.edges, positions)
        adjacency = neighbours(tree)
        reading: list[tuple[int, int, int]] = []
        _read(tree, adjacency, _reading_start(tree, adjacency), -1, -1, reading)
        positions, parents, edge_ids = zip(*reading, strict=True)
        return cls(
            relations=tuple(map(tree.relations.__getitem__, positions)),
            keywords=tuple(map(tree.keywords.__getitem__, positions)),
            parents=parents,
            edges=edge_ids,
            positions=positions,
        )

    def joins(self, schema: Schema) -> tuple[tuple[int, int, str], ...]:
        """Each join as (node on its left side, node on its right side, its name), in reading order."""
        return tuple(map(partial(_join, schema), self.parents[1:], range(1, self.size), self.edges[1:]))

    def text(self, schema: Schema, keywords: Sequence[str]) -> str:
        """The network on one line; joins are named if the two relations have more than one."""
        return Wording(schema, keywords).text(self)


class Wording:
    """The text of the networks of one query; the text of each node and connector is computed once."""

    def __init__(self, schema: Schema, keywords: Sequence[str]) -> None:
        self._connectors = _connectors(schema)
        self._node = cache(partial(node_text, schema, keywords=keywords))
        self._step = cache(partial(_step_text, self._connectors, edges(schema), self._node))
        self._join = cache(partial(_join, schema))

    def joins(self, network: CandidateNetwork) -> tuple[tuple[int, int, str], ...]:
        """Like ``CandidateNetwork.joins``."""
        return tuple(map(self._join, network.parents[1:], range(1, network.size), network.edges[1:]))

    def text(self, network: CandidateNetwork) -> str:
        """Like ``CandidateNetwork.text``."""
        if network.parents == _chain(network.size):  # most networks do not branch
            first = self._node(network.relations[0], network.keywords[0])
            return " ".join([first, *map(self._step, network.edges[1:], network.keywords[1:])])
        labels = list(map(self._node, network.relations, network.keywords))
        branches: list[list[str]] = [[] for _ in labels]  # by node; the last branch comes first
        for node in range(network.size - 1, 0, -1):
            text = f"{self._connectors[network.edges[node]]} {_branch_text(labels[node], branches[node])}"
            branches[network.parents[node]].append(text)
        return _branch_text(labels[0], branches[0])


def _step_text(
    connectors: Sequence[str],
    schema_edges: Sequence[Edge],
    node: Callable[[int, int], str],
    edge: int,
    bitmap: int,
) -> str:
    return f"{connectors[edge]} {node(schema_edges[edge].target, bitmap)}"


def _join(schema: Schema, parent: int, node: int, edge: int) -> tuple[int, int, str]:
    """A join as (node on its left side, node on its right side, name)."""
    left, right = (parent, node) if edge % 2 == 0 else (node, parent)
    return left, right, schema.joins[edge // 2].name


@lru_cache(maxsize=64)
def _chain(size: int) -> tuple[int, ...]:
    """The parents of nodes in a network that does not branch."""
    return tuple(range(-1, size - 1))


def _branch_text(label: str, branches: list[str]) -> str:
    """A node with its branches, all but the last one in brackets; ``branches`` begins with the last."""
    if not branches:
        return label
    last, *side_branches = branches
    return " ".join([label, *(f"[{branch}]" for branch in reversed(side_branches)), last])


def node_text(schema: Schema, relation: int, bitmap: int, keywords: Sequence[str]) -> str:
    """A node of the expanded schema, such as ``movie{pulp, fiction}``."""
    return f"{schema.relations[relation].name}{{{', '.join(keywords_in(bitmap, tuple(keywords)))}}}"


@lru_cache(maxsize=4096)
def keywords_in(bitmap: int, keywords: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for slot, word in enumerate(keywords) if bitmap >> slot & 1)


@lru_cache(maxsize=64)
def _connectors(schema: Schema) -> tuple[str, ...]:
    """For each edge ``-`` if the relations have one join; otherwise its name, and the side of a self-join."""
    join_counts = Counter(frozenset((edge.source, edge.target)) for edge in present_edges(schema))
    return tuple(_connector(schema, edge, join_counts) for edge in edges(schema))


def _connector(schema: Schema, edge: Edge, join_counts: Mapping[frozenset[int], int]) -> str:
    is_parallel = join_counts[frozenset((edge.source, edge.target))] > 2
    if edge.source == edge.target:
        name = schema.joins[edge.join].name
        return f"-({name})->" if edge.forward else f"<-({name})-"
    return f"-({schema.joins[edge.join].name})-" if is_parallel else "-"


def _reading_start(tree: Tree, adjacency: list[list[tuple[int, int]]]) -> int:
    """The terminal node whose keywords come first in query order; of several, the one that reads first."""
    ends = [node for node, steps in enumerate(adjacency) if len(steps) <= 1]
    slots = [_slots(tree.keywords[node]) for node in ends]
    first = min(slots)
    if slots.count(first) == 1:
        return ends[slots.index(first)]
    candidates = [node for node, node_slots in zip(ends, slots, strict=True) if node_slots == first]
    return min(candidates, key=lambda node: _reading_code(tree, adjacency, node))


@lru_cache(maxsize=256)
def _slots(bitmap: int) -> tuple[int, ...]:
    return tuple(slot for slot in range(bitmap.bit_length()) if bitmap >> slot & 1)


def _reading_code(
    tree: Tree, adjacency: list[list[tuple[int, int]]], start: int
) -> list[tuple[int, int, int, int]]:
    reading: list[tuple[int, int, int]] = []
    _read(tree, adjacency, start, -1, -1, reading)
    return [(tree.relations[node], tree.keywords[node], edge, parent) for node, parent, edge in reading]


def _read(
    tree: Tree,
    adjacency: list[list[tuple[int, int]]],
    node: int,
    edge: int,
    parent: int,
    reading: list[tuple[int, int, int]],
) -> None:
    """Append (node, index of its parent in the reading, edge) in preorder, the longest branch last."""
    previous = reading[parent][0] if parent >= 0 else -1
    while True:  # along nodes that do not branch
        index = len(reading)
        reading.append((node, parent, edge))
        branches = [(step, neighbour) for step, neighbour in adjacency[node] if neighbour != previous]
        if len(branches) != 1:
            break
        previous, parent = node, index
        ((edge, node),) = branches
    if branches:
        branches.sort(key=lambda branch: _branch_code(tree, adjacency, branch[1], branch[0], node))
    for step, neighbour in branches:
        _read(tree, adjacency, neighbour, step, index, reading)


def _branch_code(
    tree: Tree, adjacency: list[list[tuple[int, int]]], node: int, edge: int, previous: int
) -> tuple[int, int, int, int, tuple[object, ...]]:
    branches = sorted(
        _branch_code(tree, adjacency, neighbour, step, node)
        for step, neighbour in adjacency[node]
        if neighbour != previous
    )
    size = 1 + sum(branch[0] for branch in branches)
    return size, tree.relations[node], tree.keywords[node], edge, tuple(branches)


_MOST_CONSIDERED: Final = 2_000
"""The most networks of a cluster from which the smallest are drawn; making all could take very long."""

Prefix: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class OperatorPrefix:
    """The operator of the first ``size`` nodes of ``tree``, and the operators above it that are drawn."""

    tree: Tree
    size: int
    above: dict[tuple[int, int, int], OperatorPrefix] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if it returns results; then no operator is above it."""
        return self.size == len(self.tree.relations)

    @property
    def prefix(self) -> Prefix:
        return prefix_of(self.tree, self.size)


def prefix_of(tree: Tree, size: int | None = None) -> Prefix:
    """The key of an operator: relations, keywords, parents and edges of the first nodes, by default all."""
    return (tree.relations[:size], tree.keywords[:size], tree.parents[:size], tree.edges[:size])


def drawn_networks(generator: CNGen, relation: int, keywords: int, limit: int) -> list[Tree]:
    """At most ``limit`` networks of a cluster, the smallest of the first ones that are found."""
    if not limit:
        return []
    networks = memory_checked(generator.cluster(Tree.single(relation, keywords)))
    return sorted(islice(networks, max(limit, _MOST_CONSIDERED)), key=_by_size)[:limit]


def prefix_tree(networks: Iterable[Tree]) -> OperatorPrefix | None:
    """The operators of networks with one root, as a tree of prefixes; None if there are no networks."""
    root: OperatorPrefix | None = None
    for tree in memory_checked(networks):
        root = operator = root or OperatorPrefix(tree, 1)
        for node in range(1, len(tree.relations)):
            step = (tree.parents[node], tree.edges[node], tree.keywords[node])
            operator = operator.above.setdefault(step, OperatorPrefix(tree, node + 1))
    return root


def _by_size(tree: Tree) -> tuple[int, Prefix]:
    return len(tree.relations), prefix_of(tree)
