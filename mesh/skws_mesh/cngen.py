"""CNGen: every candidate network once, growing trees on their rightmost path (S-KWS paper, Section 3.2).

Four kinds of duplicates are avoided: the same tree from another root (roots
are processed in order and then removed), by another insertion order (preorder
growth), by swapping equal siblings (left-heavy codes), and from another
occurrence of the root's own label (the greatest code wins). A tree is grown
only while a lower bound on the nodes still needed fits in T_max.

To count networks, trees of relations are counted first, without keywords. The
weight of a tree is 1 divided by the number of its automorphisms, and the forests
below a node are the exponential of the trees below one of its edges. The number
of ways in which keywords make a tree a network depends only on how many nodes,
and how many of the leaves, may carry which keywords: each keyword is in at least
one node and, by inclusion-exclusion over the leaves, each leaf has a keyword that
no other node has. A tree with keywords has no non-trivial automorphism, so the
products add up to the number of networks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import comb, prod
from typing import Final, NamedTuple, TypeAlias

from skws_mesh.sequence import KeywordSequence
from skws_mesh.tree import DEPTH, NodeOrder, Tree, neighbours
from skws_schema.budgets import OverBudgetError, StepBudget
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


class KeywordDistances:
    """Distances over a join graph, in nodes, to the nearest carrier of a keyword. Answers are cached.

    ``edges[r]`` are the edges that leave relation ``r``.
    """

    def __init__(self, edges: Sequence[Sequence[Edge]], searchable: Sequence[int]) -> None:
        self._edges = edges
        self._searchable = searchable
        self._cache: dict[tuple[int, int], int] = {}

    def distance(self, relation: int, keywords: int) -> int:
        """The fewest nodes to add below a node of ``relation`` until one can carry any of ``keywords``."""
        key = (relation, keywords)
        if key not in self._cache:
            self._cache[key] = self._search(relation, keywords)
        return self._cache[key]

    def _search(self, relation: int, keywords: int) -> int:
        visited: set[int] = set()
        frontier = {relation}
        for distance in range(1, len(self._edges) + 2):
            frontier = {e.target for r in frontier for e in self._edges[r]} - visited
            if any(self._searchable[r] & keywords for r in frontier):
                return distance
            visited |= frontier
        return UNREACHABLE


Choice: TypeAlias = tuple[int, bool]


class GrowthPoint(NamedTuple):
    """A node of the rightmost path, by its depth, and an edge by which a child can be added to it.

    ``choices``: the keyword sets that the child may have, each with a flag: True if it completes the tree.
    """

    depth: int
    edge: Edge
    choices: tuple[Choice, ...]


class CNGen:
    """Candidate networks of a keyword query over a schema.

    ``searchable[r]`` is the bitmap of the keywords that tuples of relation
    ``r`` can carry; ``max_size`` is T_max, the most nodes of a network.
    ``sequence`` is the order of the keywords, which rules out some nodes.
    ``without`` and ``without_joins`` are the relations and joins that no network contains.
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
        without_joins: Collection[int] = (),
    ) -> None:
        self.schema = schema
        self.slots = slots
        self.max_size = max_size
        self.all = (1 << slots) - 1
        self.without = frozenset(without)
        self.without_joins = frozenset(without_joins)
        removed = schema.evolution.removed_relations | self.without
        self.sequence = sequence or KeywordSequence()
        bitmaps = searchable or [self.all] * len(schema.relations)
        allowed_bitmaps = [
            bits & self.sequence.of_tables if relation.table else bits
            for bits, relation in zip(bitmaps, schema.relations, strict=True)
        ]
        self.searchable = tuple(0 if r in removed else bits for r, bits in enumerate(allowed_bitmaps))
        self.order = order or NodeOrder.default(slots, grown=schema.evolution.grown)
        self.edges_from = edges_from(schema)
        if self.without or self.without_joins:
            self.edges_from = tuple(
                tuple(
                    edge
                    for edge in relation_edges
                    if removed.isdisjoint((edge.source, edge.target)) and edge.join not in self.without_joins
                )
                for relation_edges in self.edges_from
            )
        self._distances = KeywordDistances(self.edges_from, self.searchable)
        self._kinds: dict[int, tuple[int, ...]] = {}
        self._choices: dict[tuple[object, ...], list[Choice]] = {}
        # Each pair exists once, since lists of choices refer to millions of them.
        self._pairs = [((keywords, False), (keywords, True)) for keywords in range(1 << slots)]

    @property
    def shape(self) -> tuple[object, ...]:
        """A key that is equal for queries with equal networks over the same schema."""
        exclusions = self.without, self.without_joins
        return self.slots, self.max_size, self.searchable, self.order, self.sequence, exclusions

    @cached_property
    def roots(self) -> tuple[tuple[int, int], ...]:
        """The nodes (relation, keywords) that contain the root keyword, in processing order."""
        bit = 1 << self.order.root_keyword
        allows = self.sequence.allows
        roots = [n for n in expanded_nodes(self.searchable) if n.keywords & bit and allows(n.keywords)]
        return tuple(sorted(roots, key=lambda n: -self.order.root_rank(*n)))

    def networks(self, budget: StepBudget | None = None) -> Iterator[Tree]:
        """All candidate networks as canonical rooted trees, grouped by root (cluster).

        Each node of a tree on the way takes a step of the budget. Raises OverBudgetError.
        """
        for relation, keywords in self.roots:
            yield from self.cluster(Tree.single(relation, keywords), budget)

    def cluster(self, root: Tree, budget: StepBudget | None = None) -> Iterator[Tree]:
        """The candidate networks discovered from one root, depth first; ``budget`` as in ``networks``."""
        if self.is_total(root):
            yield root
            return
        stack = [root]
        while stack:
            parent = stack.pop()
            extensions = self.extensions(parent)
            if budget is not None:
                budget.spend(len(parent.relations) * (1 + len(extensions)))
            for tree, complete in extensions:
                if complete:
                    yield tree
                else:
                    stack.append(tree)

    def is_total(self, tree: Tree) -> bool:
        """True if the tree contains every keyword; a tree that CNGen keeps is then minimal, too."""
        return tree.covered == self.all

    def extensions(self, tree: Tree) -> list[tuple[Tree, bool]]:
        """One step of CNGen: the trees with one more node, each with True if it is a candidate network.

        Other trees are returned only if they can still become one.
        ``tree`` must lack a keyword.
        """
        children = (
            (self.grow(tree, point, keywords, complete), complete)
            for point in self.growth_points(tree)
            for keywords, complete in point.choices
        )
        return [(child, complete) for child, complete in children if child is not None]

    def growth_points(self, tree: Tree) -> Iterator[GrowthPoint]:
        """The points at which a node may be added, with the keyword sets it may have."""
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
                    yield GrowthPoint(depth, edge, choices)

    def grow(self, tree: Tree, point: GrowthPoint, keywords: int, complete: bool) -> Tree | None:
        """The tree with one more node; None if the result is a network that has a greater rooting."""
        new = tree.grow(
            point.depth, point.edge.id, point.edge.target, keywords, self._element(point, keywords)
        )
        return new if not complete or self._is_greatest_rooting(new) else None

    def _element(self, point: GrowthPoint, keywords: int) -> int:
        return (point.depth + 1) * DEPTH + self.order.label(point.edge.id, keywords)

    def _legal_choices(self, tree: Tree, depth: int, edge: Edge, bound: int) -> Iterator[Choice]:
        order, root_bit = self.order, 1 << self.order.root_keyword
        root_rank = order.root_rank(tree.relations[0], tree.keywords[0])
        greatest = bound - (depth + 1) * DEPTH
        for choice in self._keyword_choices(tree, depth, edge.target):
            keywords, _ = choice
            if order.label(edge.id, keywords) > greatest:
                continue
            if keywords & root_bit and order.root_rank(edge.target, keywords) > root_rank:
                continue  # the node has already been a root, and was removed
            yield choice

    def _may_finish(self, tree: Tree) -> bool:
        """True if the rightmost leaf holds a unique keyword, so that the tree may grow elsewhere."""
        return bool(tree.keywords[-1] & ~tree.repeated) or len(tree.relations) == 1

    def _keyword_choices(self, tree: Tree, depth: int, target: int) -> list[Choice]:
        """The keyword sets that a new node of ``target`` may have, each with True if it completes the tree.

        They depend on few properties of the tree, so they are cached.
        """
        unique = tree.covered & ~tree.repeated
        size = len(tree.relations)
        leaves = [tree.keywords[leaf] & unique for leaf in tree.finished]
        if tree.path[depth] != size - 1:
            leaves.append(tree.keywords[-1] & unique)
        terminal_root = tree.root_children + (depth == 0) == 1
        root = tree.keywords[0] & unique if terminal_root else -1
        key = (self._kind(target), tree.covered, size, root, *sorted(leaves))
        choices = self._choices.get(key)
        if choices is None:
            choices = self._choices[key] = self._compute_choices(target, tree.covered, size, root, leaves)
        return choices

    def _compute_choices(
        self, target: int, covered: int, size: int, root: int, leaves: list[int]
    ) -> list[Choice]:
        """``leaves``: the unique keywords of finished leaves; ``root``: those of a terminal root, else -1."""
        missing = self.all & ~covered
        budget = self.max_size - size - 1
        choices = []
        allows = self.sequence.allows if self.sequence else None
        for keywords in subsets(self.searchable[target]):
            if any(not leaf & ~keywords for leaf in leaves) or (allows and not allows(keywords)):
                continue
            root_valid = root == -1 or bool(root & ~keywords)
            remaining = missing & ~keywords
            if not remaining:
                if root_valid:
                    choices.append(self._pairs[keywords][True])
            elif self._min_nodes(target, remaining, bool(keywords & missing), root_valid) <= budget:
                choices.append(self._pairs[keywords][False])
        return choices

    def _kind(self, relation: int) -> tuple[int, ...]:
        """The properties of a relation on which the keyword choices for a new node depend."""
        kind = self._kinds.get(relation)
        if kind is None:
            distances = (self._distances.distance(relation, 1 << slot) for slot in range(self.slots))
            kind = self._kinds[relation] = (self.searchable[relation], *distances)
        return kind

    def _min_nodes(self, target: int, missing: int, leaf_valid: bool, root_valid: bool) -> int:
        """The fewest nodes still needed: an unfinished leaf or root needs one more, with a new keyword."""
        nodes = 0
        if not leaf_valid:
            nodes += self._distances.distance(target, missing)
        if not root_valid:
            nodes += 1
        if not leaf_valid and not root_valid and missing.bit_count() < 2:
            return self.max_size + 1
        return max(nodes, 1)

    def _is_greatest_rooting(self, tree: Tree) -> bool:
        """True unless the tree, rooted at another node with the root's label, has a greater code."""
        if tree.keywords.count(tree.keywords[0]) == 1:
            return True  # the usual case
        label = (tree.relations[0], tree.keywords[0])
        candidates = [
            node
            for node in range(1, len(tree.relations))
            if (tree.relations[node], tree.keywords[node]) == label
        ]
        if not candidates:
            return True
        adjacency = neighbours(tree)
        code = tree.elements[1:]
        return all(tuple(self._code(tree, adjacency, node, -1, 0)[1:]) < code for node in candidates)

    def _code(
        self,
        tree: Tree,
        adjacency: list[list[tuple[int, int]]],
        node: int,
        edge: int,
        depth: int,
        previous: int = -1,
    ) -> list[int]:
        """The left-heavy code seen from ``node``, entered from ``previous`` by ``edge`` (-1 at the root)."""
        label = self.order.label(edge, tree.keywords[node]) if edge >= 0 else 0
        codes = [
            self._code(tree, adjacency, neighbour, step, depth + 1, node)
            for step, neighbour in adjacency[node]
            if neighbour != previous
        ]
        codes.sort(reverse=True)
        return [depth * DEPTH + label, *(element for code in codes for element in code)]


def _already_joined(tree: Tree, node: int, edge: Edge) -> bool:
    """True if ``node`` has a neighbour through ``edge``; if the edge leads to a key, there is only one."""
    if tree.edges[node] >= 0 and tree.edges[node] ^ 1 == edge.id:
        return True
    return any(
        tree.parents[other] == node and tree.edges[other] == edge.id
        for other in range(node + 1, len(tree.relations))
    )


MOST_STEPS: Final = 1_000_000
"""The most steps of a count; they take one or two seconds on one core."""

Terms: TypeAlias = dict[int, Fraction]
"""Weights of trees by the number of nodes of each kind; a key has two digits per kind: nodes and leaves."""


class TooManyKindsError(Exception):
    """There are so many kinds of nodes that counting would take as long as enumerating."""


def count_networks(generator: CNGen, steps: int = MOST_STEPS) -> tuple[int, ...]:
    """The number of candidate networks of each size from 1 to T_max. Raises TooManyKindsError."""
    try:
        with StepBudget(steps, "counting networks") as budget:
            return _Count(generator, budget).sizes()
    except OverBudgetError:
        raise TooManyKindsError from None


class _Count:
    """Counts networks; each product of two terms takes a step of the budget."""

    def __init__(self, generator: CNGen, budget: StepBudget) -> None:
        self._budget = budget
        self._slots = generator.slots
        self._most = generator.max_size
        self._edges = [edge for edges in generator.edges_from for edge in edges]
        self._edges_from = generator.edges_from
        weights = [_weights(generator, keywords) for keywords in generator.searchable]
        self._kinds = sorted({bitmap for relation_weights in weights for bitmap in relation_weights})
        units = {bitmap: (self._most + 1) ** (2 * n) for n, bitmap in enumerate(self._kinds)}
        self._inner = [
            {units[b]: Fraction(w) for b, w in relation_weights.items()} for relation_weights in weights
        ]
        self._leaf = [
            {(self._most + 2) * unit: w for unit, w in relation_weights.items()}
            for relation_weights in self._inner
        ]
        self._subtrees: dict[int, list[Terms]] = {edge.id: [{}] for edge in self._edges}

    def sizes(self) -> tuple[int, ...]:
        roots = [_Subforests(edges) for edges in self._edges_from]
        below = {edge.id: self._subforests(edge, roots[edge.target]) for edge in self._edges}
        counts = [self._network_count(roots, 1)]
        for size in range(1, self._most):
            for edge in self._edges:
                tree = below[edge.id].forests[size - 1]
                top = self._inner if size > 1 else self._leaf
                self._subtrees[edge.id].append(self.times(top[edge.target], tree))
            for sets in {id(one): one for one in (*roots, *below.values())}.values():
                sets.extend(self, self._subtrees, size)
            counts.append(self._network_count(roots, size + 1))
        return tuple(counts)

    def times(self, left: Terms, right: Terms) -> Terms:
        """The product of two sums of terms."""
        self._budget.spend(len(left) * len(right))
        terms: Terms = {}
        for key, weight in left.items():
            for other_key, other_weight in right.items():
                terms[key + other_key] = terms.get(key + other_key, Fraction(0)) + weight * other_weight
        return terms

    def _subforests(self, edge: Edge, root: _Subforests) -> _Subforests:
        """The sets of subtrees below a node that an edge leads to."""
        edges = self._edges_from[edge.target]
        reverse = next(other for other in edges if other.id == edge.id ^ 1)
        return (
            _Subforests([other for other in edges if other is not reverse]) if reverse.at_most_one else root
        )

    def _network_count(self, roots: Sequence[_Subforests], size: int) -> int:
        """The number of networks of a size; the sum over all roots counts each network once per node."""
        total = Fraction(0)
        for relation, root in enumerate(roots):
            if size == 1:
                trees = dict(self._leaf[relation])
            else:
                single = _sum([self._subtrees[edge.id][size - 1] for edge in self._edges_from[relation]])
                several = _sum([root.forests[size - 1], {key: -weight for key, weight in single.items()}])
                trees = _sum(
                    [self.times(self._leaf[relation], single), self.times(self._inner[relation], several)]
                )
            total += sum((weight * self._labellings(key) for key, weight in trees.items()), Fraction(0))
        return int(total / size)

    def _labellings(self, key: int) -> int:
        """The number of ways in which a tree's nodes can carry keywords so that it is total and minimal."""
        nodes, leaves = self._digits(key)
        total = 0
        for barren in product(*(range(count + 1) for count in leaves)):
            ways = prod(map(comb, leaves, barren))
            for slot in range(self._slots):
                flags = [kind >> slot & 1 for kind in self._kinds]
                carrying = sum(count for count, may in zip(nodes, flags, strict=True) if may)
                ways *= (1 << carrying) - 1 - sum(n for n, may in zip(barren, flags, strict=True) if may)
            total += -ways if sum(barren) % 2 else ways
        return total

    def _digits(self, key: int) -> tuple[list[int], list[int]]:
        digits = []
        for _ in range(2 * len(self._kinds)):
            key, digit = divmod(key, self._most + 1)
            digits.append(digit)
        return digits[::2], digits[1::2]


class _Subforests:
    """Sets of subtrees below a node, by ``edges``; those in ``forests[n]`` have n nodes in total."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._multiple_edges = [edge.id for edge in edges if not edge.at_most_one]
        self._single_edges = [edge.id for edge in edges if edge.at_most_one]
        self._sums: list[Terms] = [{}]
        # The first element has the edges that allow several children; each next one adds a single-child edge.
        self._chain: list[list[Terms]] = [[{0: Fraction(1)}] for _ in range(1 + len(self._single_edges))]

    @property
    def forests(self) -> list[Terms]:
        return self._chain[-1]

    def extend(self, count: _Count, subtrees: dict[int, list[Terms]], size: int) -> None:
        """Add the sets of size ``size``, given all subtrees of at most this size."""
        self._sums.append(_sum([subtrees[edge][size] for edge in self._multiple_edges]))
        exponential = self._chain[0]  # the exponential of the sums, computed by its derivative
        parts = [(n, count.times(self._sums[n], exponential[size - n])) for n in range(1, size + 1)]
        exponential.append(
            _sum([{key: weight * n / size for key, weight in part.items()} for n, part in parts])
        )
        for previous, forests, edge in zip(self._chain, self._chain[1:], self._single_edges, strict=False):
            products = (count.times(subtrees[edge][n], previous[size - n]) for n in range(1, size + 1))
            forests.append(_sum([previous[size], *products]))


def _weights(generator: CNGen, keywords: int) -> dict[int, int]:
    """Kinds of nodes by the keywords they may carry, with weights; with an order, a kind has one group."""
    groups = generator.sequence.groups
    if not groups:
        return {keywords: 1}
    ungrouped = keywords & ~_union(groups)
    weights = {ungrouped: 1 - len(groups)}
    for group in groups:
        weights[keywords & group | ungrouped] = weights.get(keywords & group | ungrouped, 0) + 1
    return {bitmap: weight for bitmap, weight in weights.items() if weight}


def _union(bitmaps: Sequence[int]) -> int:
    union = 0
    for bitmap in bitmaps:
        union |= bitmap
    return union


def _sum(parts: Sequence[Terms]) -> Terms:
    total: Terms = {}
    for part in parts:
        for key, weight in part.items():
            total[key] = total.get(key, Fraction(0)) + weight
    return {key: weight for key, weight in total.items() if weight}
