"""How many candidate networks there are, without making them.

Trees of relations are counted first, without keywords: a tree weighs 1 by its
number of automorphisms, and what can be below a node is the exponential of
what can be below one of its edges. In how many ways keywords make a tree a
network depends only on how many nodes, and how many leaves among them, may
carry which keywords: each keyword is in one node at least, and each leaf has a
keyword of its own, by inclusion and exclusion over the leaves. With
its keywords a tree has no automorphism, so the products add up to the number
of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb, prod
from typing import Final, TypeAlias

from skws_mesh.cngen import CNGen
from skws_schema.graph import Edge

MOST_STEPS: Final = 1_000_000
"""A second or two on one core."""

Terms: TypeAlias = dict[int, Fraction]
"""Weights of trees by the nodes they have; a key has two digits a kind: its nodes, its leaves."""


class TooManyKindsError(Exception):
    """Nodes are of so many kinds that counting would take long, too."""


def count_networks(generator: CNGen) -> tuple[int, ...]:
    """The number of candidate networks of each size from 1 to T_max. Raises TooManyKindsError."""
    return _Count(generator).sizes()


class _Count:
    """``steps``: products of terms made so far."""

    def __init__(self, generator: CNGen) -> None:
        self.steps = 0
        self._slots = generator.slots
        self._most = generator.max_size
        self._edges = [edge for leaving in generator.edges_from for edge in leaving]
        self._leaving = generator.edges_from
        weights = [_weights(generator, carried) for carried in generator.searchable]
        self._kinds = sorted({bitmap for some in weights for bitmap in some})
        units = {bitmap: (self._most + 1) ** (2 * n) for n, bitmap in enumerate(self._kinds)}
        self._inner = [{units[b]: Fraction(w) for b, w in some.items()} for some in weights]
        self._leaf = [{(self._most + 2) * unit: w for unit, w in some.items()} for some in self._inner]
        self._subtrees: dict[int, list[Terms]] = {edge.id: [{}] for edge in self._edges}

    def sizes(self) -> tuple[int, ...]:
        roots = [_Below(leaving) for leaving in self._leaving]
        below = {edge.id: self._below(edge, roots[edge.target]) for edge in self._edges}
        found = [self._rooted(roots, 1)]
        for size in range(1, self._most):
            for edge in self._edges:
                tree = below[edge.id].forests[size - 1]
                top = self._inner if size > 1 else self._leaf
                self._subtrees[edge.id].append(self.times(top[edge.target], tree))
            for each in {id(one): one for one in (*roots, *below.values())}.values():
                each.extend(self, self._subtrees, size)
            found.append(self._rooted(roots, size + 1))
        return tuple(found)

    def times(self, one: Terms, other: Terms) -> Terms:
        """The product. Raises TooManyKindsError."""
        self.steps += len(one) * len(other)
        if self.steps > MOST_STEPS:
            raise TooManyKindsError
        made: Terms = {}
        for key, weight in one.items():
            for other_key, other_weight in other.items():
                made[key + other_key] = made.get(key + other_key, Fraction(0)) + weight * other_weight
        return made

    def _below(self, edge: Edge, of_root: _Below) -> _Below:
        """The sets of subtrees below a node that an edge leads to."""
        leaving = self._leaving[edge.target]
        back = next(each for each in leaving if each.id == edge.id ^ 1)
        return _Below([each for each in leaving if each is not back]) if back.at_most_one else of_root

    def _rooted(self, roots: Sequence[_Below], size: int) -> int:
        """The number of networks of a size; each is counted once at every node."""
        found = Fraction(0)
        for relation, root in enumerate(roots):
            if size == 1:
                trees = dict(self._leaf[relation])
            else:
                lone = _sum([self._subtrees[edge.id][size - 1] for edge in self._leaving[relation]])
                others = _sum([root.forests[size - 1], {key: -weight for key, weight in lone.items()}])
                trees = _sum(
                    [self.times(self._leaf[relation], lone), self.times(self._inner[relation], others)]
                )
            found += sum((weight * self._labellings(key) for key, weight in trees.items()), Fraction(0))
        return int(found / size)

    def _labellings(self, key: int) -> int:
        """In how many ways the nodes of a tree can carry keywords so that it is total and minimal."""
        nodes, leaves = self._digits(key)
        found = 0
        for barren in product(*(range(count + 1) for count in leaves)):
            ways = prod(map(comb, leaves, barren))
            for slot in range(self._slots):
                here = [kind >> slot & 1 for kind in self._kinds]
                carrying = sum(count for count, may in zip(nodes, here, strict=True) if may)
                ways *= (1 << carrying) - 1 - sum(n for n, may in zip(barren, here, strict=True) if may)
            found += -ways if sum(barren) % 2 else ways
        return found

    def _digits(self, key: int) -> tuple[list[int], list[int]]:
        digits = []
        for _ in range(2 * len(self._kinds)):
            key, digit = divmod(key, self._most + 1)
            digits.append(digit)
        return digits[::2], digits[1::2]


class _Below:
    """Sets of subtrees below a node, by ``leaving`` edges; ``forests[n]`` have n nodes together."""

    def __init__(self, leaving: Sequence[Edge]) -> None:
        self._many = [edge.id for edge in leaving if not edge.at_most_one]
        self._single = [edge.id for edge in leaving if edge.at_most_one]
        self._sums: list[Terms] = [{}]
        # First by edges with several children each, then with one single-child edge after another.
        self._chain: list[list[Terms]] = [[{0: Fraction(1)}] for _ in range(1 + len(self._single))]

    @property
    def forests(self) -> list[Terms]:
        return self._chain[-1]

    def extend(self, count: _Count, subtrees: dict[int, list[Terms]], size: int) -> None:
        """Add the sets of a size, given the subtrees up to it."""
        self._sums.append(_sum([subtrees[edge][size] for edge in self._many]))
        several = self._chain[0]  # the exponential of the sums, by its derivative
        parts = [(n, count.times(self._sums[n], several[size - n])) for n in range(1, size + 1)]
        several.append(_sum([{key: weight * n / size for key, weight in part.items()} for n, part in parts]))
        for before, after, edge in zip(self._chain, self._chain[1:], self._single, strict=False):
            one = (count.times(subtrees[edge][n], before[size - n]) for n in range(1, size + 1))
            after.append(_sum([before[size], *one]))


def _weights(generator: CNGen, carried: int) -> dict[int, int]:
    """The keywords that a node may carry, as kinds that are added up; in an order, of one group alone."""
    groups = generator.sequence.groups
    if not groups:
        return {carried: 1}
    others = carried & ~_union(groups)
    weights = {others: 1 - len(groups)}
    for group in groups:
        weights[carried & group | others] = weights.get(carried & group | others, 0) + 1
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
