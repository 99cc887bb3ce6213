"""Networks of one cluster as the tree of their common prefixes: the operators that they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from mesh.generate import CNGen
from mesh.tree import Tree

_CONSIDERED: Final = 2_000

Prefix: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class OperatorPrefix:
    """The operator of the first ``size`` nodes of ``tree``, and the drawn ones above it."""

    tree: Tree
    size: int
    above: dict[tuple[int, int, int], OperatorPrefix] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if its output are results; nothing then stands above it."""
        return self.size == len(self.tree.relations)

    @property
    def prefix(self) -> Prefix:
        return prefix_of(self.tree, self.size)


def prefix_of(tree: Tree, size: int) -> Prefix:
    """What names an operator: relations, keywords, parents and edges of its nodes."""
    return (tree.relations[:size], tree.keywords[:size], tree.parents[:size], tree.edges[:size])


def drawn_networks(generator: CNGen, relation: int, keywords: int, most: int) -> list[Tree]:
    """At most ``most`` networks of a cluster, the smallest among the first that are found."""
    if not most:
        return []
    found = generator.cluster(Tree.single(relation, keywords))
    return sorted(islice(found, max(most, _CONSIDERED)), key=_by_size)[:most]


def prefix_tree(networks: Iterable[Tree]) -> OperatorPrefix | None:
    """The operators below networks that have one root; None without networks."""
    root: OperatorPrefix | None = None
    for tree in networks:
        root = at = root or OperatorPrefix(tree, 1)
        for node in range(1, len(tree.relations)):
            step = (tree.parents[node], tree.edges[node], tree.keywords[node])
            at = at.above.setdefault(step, OperatorPrefix(tree, node + 1))
    return root


def _by_size(tree: Tree) -> tuple[int, Prefix]:
    return len(tree.relations), prefix_of(tree, len(tree.relations))
