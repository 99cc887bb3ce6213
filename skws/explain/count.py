"""Counts over the whole mesh, cluster by cluster, without keeping it.

Every operator that CNGen makes is visited once; above a bound the visit ends,
and what has been counted is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.generate import CNGen
from mesh.tree import Tree

MOST_OPERATORS: Final = 500_000
"""About three seconds on one core."""


@dataclass(frozen=True, slots=True)
class ClusterCount:
    """The operators above one root (S-KWS paper, Section 3.3), roots and joins together.

    ``sizes[n]`` is the number of networks of n + 1 nodes. ``made`` operators
    CNGen makes, of which ``kept`` lead to a network. ``whole``: all are counted.
    """

    relation: int
    keywords: int
    sizes: tuple[int, ...]
    made: int
    kept: int
    whole: bool

    @property
    def networks(self) -> int:
        return sum(self.sizes)

    @property
    def trimmed(self) -> int:
        return self.made - self.kept

    @property
    def depth(self) -> int:
        """Nodes of the largest network; 0 without networks."""
        return max((n for n, count in enumerate(self.sizes, start=1) if count), default=0)

    @property
    def joins(self) -> int:
        """Joins of the mesh: its operators without the root."""
        return max(self.kept - 1, 0)

    @property
    def joins_apart(self) -> int:
        """Joins if each network had its own: those of a forest."""
        return sum(n * count for n, count in enumerate(self.sizes))


@dataclass(frozen=True, slots=True)
class MeshCount:
    """All clusters in the order of their roots; ``uncounted`` roots came after the bound."""

    clusters: tuple[ClusterCount, ...]
    uncounted: int

    @property
    def whole(self) -> bool:
        return not self.uncounted and all(cluster.whole for cluster in self.clusters)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sum(column) for column in zip(*(c.sizes for c in self.clusters), strict=True))

    @property
    def networks(self) -> int:
        return sum(c.networks for c in self.clusters)

    @property
    def made(self) -> int:
        return sum(c.made for c in self.clusters)

    @property
    def kept(self) -> int:
        return sum(c.kept for c in self.clusters)

    @property
    def joins(self) -> int:
        return sum(c.joins for c in self.clusters)

    @property
    def joins_apart(self) -> int:
        return sum(c.joins_apart for c in self.clusters)


def count_mesh(generator: CNGen, most: int = MOST_OPERATORS) -> MeshCount:
    """Count networks and operators of each cluster; stops soon after ``most`` operators."""
    clusters: list[ClusterCount] = []
    left = most
    for relation, keywords in generator.roots:
        if left <= 0:
            break
        clusters.append(_Visit(generator, left).cluster(relation, keywords))
        left -= clusters[-1].made
    return MeshCount(tuple(clusters), len(generator.roots) - len(clusters))


class _Visit:
    """One walk over the operators of a cluster."""

    def __init__(self, generator: CNGen, most: int) -> None:
        self._generator = generator
        self._most = most
        self._made = 0
        self._sizes = [0] * generator.max_size
        self._whole = True

    def cluster(self, relation: int, keywords: int) -> ClusterCount:
        root = Tree.single(relation, keywords)
        kept = self._kept(root, self._generator.is_total(root))
        return ClusterCount(relation, keywords, tuple(self._sizes), self._made, kept, self._whole)

    def _kept(self, tree: Tree, complete: bool) -> int:
        """Operators from here on that lead to a network."""
        self._made += 1
        if complete:
            self._sizes[len(tree.relations) - 1] += 1
            return 1
        if self._made >= self._most:
            self._whole = False
            return 0
        above = sum(self._kept(*extension) for extension in self._generator.extensions(tree))
        return above + 1 if above else 0
