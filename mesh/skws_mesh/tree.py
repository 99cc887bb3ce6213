"""Rooted trees over the expanded schema, as CNGen grows them, and the order in which it visits nodes.

A tree is stored in preorder, so appending a node on the rightmost path is the
only way to grow it. Its *code* lists (depth, label) in preorder. A tree is
canonical (left-heavy) if the code of every subtree is at least that of its
right sibling; then every prefix of the tree is canonical, too.

Any total order of nodes gives the same candidate networks (Sections 3.2 and 3.3). The paper advises the
rarest keyword for the roots and nodes with many keywords first, since both
keep the left inputs of a left-deep operator small. Nodes that a change of the
schema adds rank below all older ones (Section 4.4), which leaves the trees of
old operators as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

DEPTH = 1 << 40  # above every label: deeper elements compare greater


class Tree(NamedTuple):
    """A prefix of a candidate network; all sequences run over its nodes in preorder.

    ``edges[i]`` is the directed edge walked from the parent to node ``i`` (-1
    at the root). ``elements`` is the code. ``path`` holds the positions on the
    rightmost path, root first; ``finished`` the leaves that lie off it.
    ``covered`` are the keywords in some node, ``repeated`` those in several.
    """

    relations: tuple[int, ...]
    keywords: tuple[int, ...]
    parents: tuple[int, ...]
    edges: tuple[int, ...]
    elements: tuple[int, ...]
    path: tuple[int, ...]
    finished: tuple[int, ...]
    covered: int
    repeated: int
    root_children: int

    @classmethod
    def single(cls, relation: int, keywords: int) -> Tree:
        return cls((relation,), (keywords,), (-1,), (-1,), (0,), (0,), (), keywords, 0, 0)

    def grow(self, depth: int, edge: int, relation: int, keywords: int, element: int) -> Tree:
        """Append a child to the node at depth ``depth`` of the rightmost path."""
        size = len(self.relations)
        parent = self.path[depth]
        is_inner = parent == size - 1
        return Tree(
            (*self.relations, relation),
            (*self.keywords, keywords),
            (*self.parents, parent),
            (*self.edges, edge),
            (*self.elements, element),
            (*self.path[: depth + 1], size),
            self.finished if is_inner else (*self.finished, size - 1),
            self.covered | keywords,
            self.repeated | (self.covered & keywords),
            self.root_children + (depth == 0),
        )

    def uses_any(self, relations: Collection[int], joins: Collection[int]) -> bool:
        """True if a node is of one of the relations, or an edge of one of the joins, given by position."""
        return any(r in relations for r in self.relations) or any(e // 2 in joins for e in self.edges[1:])

    def growth_bounds(self) -> list[int]:
        """For each depth of the rightmost path, the greatest element that a child there may have.

        The bounds keep the left-heavy order: at every level the growing subtree is at
        most its left sibling. A bound of -1 admits no child.
        """
        elements, parents, path = self.elements, self.parents, self.path
        size, last = len(elements), len(path) - 1
        bounds = []
        inherited = 2 * len(elements) * DEPTH + DEPTH
        for depth, node in enumerate(path):
            if depth:
                left = left_sibling(parents, node)
                if left >= 0:
                    inherited = min(inherited, self._continuation(left, node))
            bound = inherited
            if depth < last:
                child = path[depth + 1]
                # A lone left sibling must be strictly greater, since equal subtrees have no unique keyword.
                bound = min(bound, elements[child] - (child == size - 1))
            bounds.append(bound)
        return bounds

    def _continuation(self, left: int, right: int) -> int:
        """The greatest next element that keeps the subtree at ``right`` below the one at ``left``."""
        code = self.elements[right:]
        reference = self.elements[left:right]
        if code != reference[: len(code)]:
            return 2 * len(self.elements) * DEPTH + DEPTH
        return reference[len(code)] if len(code) < len(reference) else -1


def left_sibling(parents: Sequence[int], node: int) -> int:
    """Position of the nearest earlier child of the same parent, or -1."""
    for other in range(node - 1, parents[node], -1):
        if parents[other] == parents[node]:
            return other
    return -1


def neighbours(tree: Tree) -> list[list[tuple[int, int]]]:
    """For each node its (edge walked, neighbour) pairs, including the parent's."""
    adjacency: list[list[tuple[int, int]]] = [[] for _ in tree.relations]
    for node in range(1, len(tree.relations)):
        parent = tree.parents[node]
        adjacency[parent].append((tree.edges[node], node))
        adjacency[node].append((tree.edges[node] ^ 1, parent))
    return adjacency


# Far above the ranks by keywords, and far below one level of depth in a tree's code.
_GENERATION = 1 << 36
_MOST_GENERATIONS = 8  # later ones share the last: the order of new nodes among each other does not matter
_LEAST_FREQUENCY = 1e-9


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """Ranks of the nodes; the highest is visited first.

    ``root_keyword`` is the position of the keyword that every root contains.
    ``grown`` holds the numbers of (relations, joins) before each change of the schema.
    """

    slots: int
    root_keyword: int
    keyword_ranks: tuple[int, ...]
    grown: tuple[tuple[int, int], ...] = ()

    @classmethod
    def default(
        cls,
        slots: int,
        frequencies: Sequence[float] | None = None,
        grown: tuple[tuple[int, int], ...] = (),
    ) -> NodeOrder:
        """Nodes with many keywords first, then those with rare ones, if ``frequencies`` are given.

        ``frequencies`` has one element per keyword. Roots contain the rarest keyword, or the first one if
        there are no frequencies.
        """
        rarest = min(range(slots), key=lambda s: frequencies[s]) if frequencies else 0
        rarity = [-log(max(f, _LEAST_FREQUENCY)) for f in frequencies] if frequencies else [0.0] * slots
        weight = [sum(rarity[s] for s in range(slots) if k >> s & 1) for k in range(1 << slots)]
        by_rank = sorted(range(1 << slots), key=lambda k: (k.bit_count(), weight[k], -k))
        ranks = [0] * (1 << slots)
        for rank, keywords in enumerate(by_rank):
            ranks[keywords] = rank
        return cls(slots, rarest, tuple(ranks), grown)

    def root_rank(self, relation: int, keywords: int) -> int:
        """The rank of a node as a root; nodes of higher rank are processed, and removed, earlier."""
        rank = (self.keyword_ranks[keywords] << 20) - relation
        return rank - self._generation(relation, 0) * _GENERATION if self.grown else rank

    def label(self, edge: int, keywords: int) -> int:
        """The rank of a child among its siblings: first by keywords, then by the edge that leads to it."""
        rank = (self.keyword_ranks[keywords] << 20) + edge
        return rank - self._generation(edge // 2, 1) * _GENERATION if self.grown else rank

    def _generation(self, position: int, column: int) -> int:
        """The number of schema changes before a relation (``column`` 0) or join (1) existed."""
        return sum(position >= sizes[column] for sizes in self.grown[:_MOST_GENERATIONS])
