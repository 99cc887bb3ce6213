"""CNGen: every candidate network once, growing trees on their rightmost path (S-KWS paper, Section 3.2).

Four kinds of duplicates are avoided: the same tree from another root (roots
go in order and are removed), by another insertion order (preorder growth),
by swapping equal siblings (left-heavy codes), and from another occurrence of
the root's own label (the greatest code wins). A tree is grown only while a
lower bound on the nodes still needed fits in T_max.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from skws_mesh.sequence import KeywordSequence
from skws_mesh.tree import DEPTH, NodeOrder, Tree, neighbours
from skws_schema.graph import Edge, edges_from
from skws_schema.model import Schema


class ExpandedNode(NamedTuple):
    """``R{K}``: the tuples of relation ``relation`` that contain exactly the keywords of the bitmap.

    Ordered by relation, then by bitmap: the paper's *nid* (Section 3.2). The
    node is free if the bitmap is 0.
    """

    relation: int
    keywords: int


def expanded_nodes(searchable: Sequence[int]) -> Iterator[ExpandedNode]:
    """All nodes, ascending.

    ``searchable[r]`` is the bitmap of the keywords that tuples of relation
    ``r`` can contain; nodes outside it are empty in every stream and left out.
    """
    for relation, bitmap in enumerate(searchable):
        for keywords in subsets(bitmap):
            yield ExpandedNode(relation, keywords)


def subsets(bitmap: int) -> Iterator[int]:
    """All bitmaps contained in ``bitmap``, ascending, from 0 to itself."""
    subset = 0
    while True:
        yield subset
        if subset == bitmap:
            return
        subset = (subset - bitmap) & bitmap


UNREACHABLE = 1 << 20


class Reach:
    """Distances over a join graph, in nodes, to carriers of keywords; remembered per question.

    ``edges`` are those that leave each relation.
    """

    def __init__(self, edges: Sequence[Sequence[Edge]], searchable: Sequence[int]) -> None:
        self._edges = edges
        self._searchable = searchable
        self._known: dict[tuple[int, int], int] = {}

    def distance(self, relation: int, keywords: int) -> int:
        """Fewest nodes to add below a node of ``relation`` until one can carry any of ``keywords``."""
        key = (relation, keywords)
        if key not in self._known:
            self._known[key] = self._search(relation, keywords)
        return self._known[key]

    def _search(self, relation: int, keywords: int) -> int:
        seen: set[int] = set()
        frontier = {relation}
        for distance in range(1, len(self._edges) + 2):
            frontier = {e.target for r in frontier for e in self._edges[r]} - seen
            if any(self._searchable[r] & keywords for r in frontier):
                return distance
            seen |= frontier
        return UNREACHABLE


Choice: TypeAlias = tuple[int, bool]


class Place(NamedTuple):
    """A node of the rightmost path, by its depth, and an edge by which a child can be added to it.

    ``choices``: the keyword sets that the child may have, each with whether it completes the tree.
    """

    depth: int
    edge: Edge
    choices: tuple[Choice, ...]


class CNGen:
    """Candidate networks of a keyword query over a schema.

    ``searchable[r]`` is the bitmap of the keywords that tuples of relation
    ``r`` can carry; ``max_size`` is T_max, the most nodes of a network.
    ``sequence`` is the order of the keywords, which rules out nodes.
    ``without`` are the relations that no network has.
    """

    def __init__(
        self,
        schema: Schema,
        slots: int,
        max_size: int,
        searchable: Sequence[int] | None = None,
        order: NodeOrder | None = None,
        sequence: KeywordSequence | None = None,
        without: Collection[int] = (),
    ) -> None:
        self.schema = schema
        self.slots = slots
        self.max_size = max_size
        self.all = (1 << slots) - 1
        self.without = frozenset(without)
        removed = schema.evolution.removed_relations | self.without
        self.sequence = sequence or KeywordSequence()
        carried = searchable or [self.all] * len(schema.relations)
        ordered = [
            bits & self.sequence.of_tables if relation.table else bits
            for bits, relation in zip(carried, schema.relations, strict=True)
        ]
        self.searchable = tuple(0 if r in removed else bits for r, bits in enumerate(ordered))
        self.order = order or NodeOrder.default(slots, grown=schema.evolution.grown)
        self.edges_from = edges_from(schema)
        if self.without:
            self.edges_from = tuple(
                () if relation in removed else tuple(edge for edge in leaving if edge.target not in removed)
                for relation, leaving in enumerate(self.edges_from)
            )
        self._reach = Reach(self.edges_from, self.searchable)
        self._kinds: dict[int, tuple[int, ...]] = {}
        self._choices: dict[tuple[object, ...], list[Choice]] = {}
        # Each pair is there once: lists of choices hold millions of them.
        self._pairs = [((keywords, False), (keywords, True)) for keywords in range(1 << slots)]

    @property
    def shape(self) -> tuple[object, ...]:
        """What the networks depend on besides the schema: equal for queries with equal networks."""
        return self.slots, self.max_size, self.searchable, self.order, self.sequence, self.without

    @cached_property
    def roots(self) -> tuple[tuple[int, int], ...]:
        """The nodes (relation, keywords) that contain the root keyword, in the order they are processed."""
        bit = 1 << self.order.root_keyword
        allows = self.sequence.allows
        found = [n for n in expanded_nodes(self.searchable) if n.keywords & bit and allows(n.keywords)]
        return tuple(sorted(found, key=lambda n: -self.order.root_rank(*n)))

    def networks(self) -> Iterator[Tree]:
        """All candidate networks as canonical rooted trees, grouped by root (cluster)."""
        for relation, keywords in self.roots:
            yield from self.cluster(Tree.single(relation, keywords))

    def cluster(self, root: Tree) -> Iterator[Tree]:
        """The candidate networks discovered from one root, depth first."""
        if self.is_total(root):
            yield root
            return
        stack = [root]
        while stack:
            for tree, complete in self.extensions(stack.pop()):
                if complete:
                    yield tree
                else:
                    stack.append(tree)

    def is_total(self, tree: Tree) -> bool:
        """True if the tree contains every keyword; a tree that CNGen keeps is then minimal, too."""
        return tree.covered == self.all

    def extensions(self, tree: Tree) -> list[tuple[Tree, bool]]:
        """One step of CNGen: the trees with one node more, each with whether it is a candidate network.

        Others are returned only if they have the potential of becoming one.
        ``tree`` must lack a keyword.
        """
        grown = (
            (self.grow(tree, place, keywords, complete), complete)
            for place in self.places(tree)
            for keywords, complete in place.choices
        )
        return [(new, complete) for new, complete in grown if new is not None]

    def places(self, tree: Tree) -> Iterator[Place]:
        """Where a node can legally be added, with the keyword sets it may have."""
        if len(tree.relations) == self.max_size:
            return
        last = len(tree.path) - 1
        for depth, bound in enumerate(tree.growth_bounds()):
            if depth < last and not self._may_finish(tree):
                continue
            for edge in self.edges_from[tree.relations[tree.path[depth]]]:
                if edge.at_most_one and _already_joined(tree, tree.path[depth], edge):
                    continue
                choices = tuple(self._legal_choices(tree, depth, edge, bound))
                if choices:
                    yield Place(depth, edge, choices)

    def grow(self, tree: Tree, place: Place, keywords: int, complete: bool) -> Tree | None:
        """The tree with a node more; None if it is a network that has a greater rooting."""
        new = tree.grow(
            place.depth, place.edge.id, place.edge.target, keywords, self._element(place, keywords)
        )
        return new if not complete or self._is_greatest_rooting(new) else None

    def _element(self, place: Place, keywords: int) -> int:
        return (place.depth + 1) * DEPTH + self.order.label(place.edge.id, keywords)

    def _legal_choices(self, tree: Tree, depth: int, edge: Edge, bound: int) -> Iterator[Choice]:
        order, root_bit = self.order, 1 << self.order.root_keyword
        root_rank = order.root_rank(tree.relations[0], tree.keywords[0])
        greatest = bound - (depth + 1) * DEPTH
        for choice in self._keyword_choices(tree, depth, edge.target):
            keywords, _ = choice
            if order.label(edge.id, keywords) > greatest:
                continue
            if keywords & root_bit and order.root_rank(edge.target, keywords) > root_rank:
                continue  # that node has been a root already, and was removed
            yield choice

    def _may_finish(self, tree: Tree) -> bool:
        """True if the rightmost leaf holds a unique keyword, so that growth may go on elsewhere."""
        return bool(tree.keywords[-1] & ~tree.repeated) or len(tree.relations) == 1

    def _keyword_choices(self, tree: Tree, depth: int, target: int) -> list[Choice]:
        """The keyword sets a new node of ``target`` may have, each with whether it completes the tree.

        Depends on little of the tree, so answers are remembered.
        """
        unique = tree.covered & ~tree.repeated
        size = len(tree.relations)
        leaves = [tree.keywords[leaf] & unique for leaf in tree.finished]
        if tree.path[depth] != size - 1:
            leaves.append(tree.keywords[-1] & unique)
        terminal_root = tree.root_children + (depth == 0) == 1
        root = tree.keywords[0] & unique if terminal_root else -1
        key = (self._kind(target), tree.covered, size, root, *sorted(leaves))
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = self._compute_choices(target, tree.covered, size, root, leaves)
        return found

    def _compute_choices(
        self, target: int, covered: int, size: int, root: int, leaves: list[int]
    ) -> list[Choice]:
        """``leaves``: unique keywords of finished leaves; ``root``: those of a terminal root, else -1."""
        missing = self.all & ~covered
        budget = self.max_size - size - 1
        found = []
        allows = self.sequence.allows if self.sequence else None
        for keywords in subsets(self.searchable[target]):
            if any(not leaf & ~keywords for leaf in leaves) or (allows and not allows(keywords)):
                continue
            root_valid = root == -1 or bool(root & ~keywords)
            left = missing & ~keywords
            if not left:
                if root_valid:
                    found.append(self._pairs[keywords][True])
            elif self._needed(target, left, bool(keywords & missing), root_valid) <= budget:
                found.append(self._pairs[keywords][False])
        return found

    def _kind(self, relation: int) -> tuple[int, ...]:
        """What the choices of keywords for a new node of a relation depend on."""
        found = self._kinds.get(relation)
        if found is None:
            distances = (self._reach.distance(relation, 1 << slot) for slot in range(self.slots))
            found = self._kinds[relation] = (self.searchable[relation], *distances)
        return found

    def _needed(self, target: int, missing: int, leaf_valid: bool, root_valid: bool) -> int:
        """Fewest nodes still needed: an unfinished leaf or root needs one more with a new keyword."""
        nodes = 0
        if not leaf_valid:
            nodes += self._reach.distance(target, missing)
        if not root_valid:
            nodes += 1
        if not leaf_valid and not root_valid and missing.bit_count() < 2:
            return self.max_size + 1
        return max(nodes, 1)

    def _is_greatest_rooting(self, tree: Tree) -> bool:
        """True unless the tree, rooted at another node with the root's label, has a greater code."""
        if tree.keywords.count(tree.keywords[0]) == 1:
            return True  # as most are
        label = (tree.relations[0], tree.keywords[0])
        others = [
            node
            for node in range(1, len(tree.relations))
            if (tree.relations[node], tree.keywords[node]) == label
        ]
        if not others:
            return True
        around = neighbours(tree)
        own = tree.elements[1:]
        return all(tuple(self._code(tree, around, node, -1, 0)[1:]) < own for node in others)

    def _code(
        self,
        tree: Tree,
        around: list[list[tuple[int, int]]],
        node: int,
        edge: int,
        depth: int,
        came: int = -1,
    ) -> list[int]:
        """Left-heavy code seen from ``node``, entered from ``came`` through ``edge`` (-1: as the root)."""
        label = self.order.label(edge, tree.keywords[node]) if edge >= 0 else 0
        below = [
            self._code(tree, around, other, step, depth + 1, node)
            for step, other in around[node]
            if other != came
        ]
        below.sort(reverse=True)
        return [depth * DEPTH + label, *(element for code in below for element in code)]


def _already_joined(tree: Tree, node: int, edge: Edge) -> bool:
    """True if ``node`` has a neighbour through ``edge``: with a key at the far end there is no second one."""
    if tree.edges[node] >= 0 and tree.edges[node] ^ 1 == edge.id:
        return True
    return any(
        tree.parents[other] == node and tree.edges[other] == edge.id
        for other in range(node + 1, len(tree.relations))
    )
