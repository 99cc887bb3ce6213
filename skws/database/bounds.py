"""What no result can be better than: of a size, of a network, of the rows that are joined so far.

A bound is the score of what would contain missing keywords where they weigh
most, through joins that nobody shares. It holds for rankings that are
``monotone``; with others nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from heapq import heappush, heapreplace
from math import inf, prod
from typing import Final, TypeAlias

from mesh.tree import Tree
from skws.database.carriers import Carriers
from skws.plan import Plan
from skws.ranking.evidence import Evidence, JoinFan
from skws.ranking.rankings import Product, Ranking

Weights: TypeAlias = tuple[float, ...]
"""What each keyword of the query weighs."""
_REMEMBERED: Final = 100_000
_TRIED: Final = 1000  # rows, before bounds may be given up
_WORTH: Final = 8  # rows that a bound may be made of, for each that is left out
_SURE: Final = 1 + 1e-9  # bounds are computed in another order than scores


class Bounds:
    """Bounds for one query; told of the scores that are found, it knows what is not wanted any more.

    ``least``: what is worse is not wanted; -inf until ``most`` results are found, for good if all are wanted.
    """

    def __init__(self, plan: Plan, carriers: Carriers, ranking: Ranking) -> None:
        self._plan = plan
        self._carriers = carriers
        self._ranking = ranking
        self._product = ranking if isinstance(ranking, Product) and ranking.monotone else None
        self._monotone: bool = getattr(ranking, "monotone", False)
        self._slots = range(len(plan.keywords))
        self._most: int | None = None
        self._scores: list[float] = []  # the best ones, as many as are wanted
        self.least = -inf
        self.uses_joins = ranking.uses_joins
        self.best_of = cache(self._find_best)
        self._value = lru_cache(_REMEMBERED)(self._value_of)
        strongest = [max(self._with(slot), key=lambda p: p[0], default=(0.0, 0, 0)) for slot in self._slots]
        self._best: Weights = tuple(weight for weight, _, _ in strongest)
        self._best_matches = tuple(
            match
            for slot, (weight, relation, number) in enumerate(strongest)
            if weight
            for match in carriers.matches(relation, number, f"best of {slot}")
            if match.keyword == plan.keywords[slot]
        )

    def want(self, most: int | None) -> None:
        """The ``most`` best results are wanted, None for all."""
        self._most, self._scores, self.least = most, [], -inf
        self._tried = self._left_out = 0

    @property
    def known(self) -> bool:
        """Whether there are bounds of rows, and results that are not wanted."""
        return self._product is not None and self._most is not None

    @property
    def pay(self) -> bool:
        """Whether bounds of rows that lack keywords, which take counting, are worth their making.

        Not before there are results to compare with, nor when they have left too little out.
        """
        if not self.known or self.least == -inf:
            return False
        return self._tried < _TRIED or self._left_out * _WORTH >= self._tried

    def tried(self, rows: int, left_out: int) -> None:
        """Bounds of so many rows were made, and so many were left out by them."""
        self._tried += rows
        self._left_out += left_out

    def found(self, score: float) -> None:
        """A result has been found."""
        if not self._most:
            return
        if len(self._scores) < self._most:
            heappush(self._scores, score)
        elif score > self._scores[0]:
            heapreplace(self._scores, score)
        if len(self._scores) == self._most:
            self.least = self._scores[0]

    def of_size(self, size: int) -> float:
        """No result of so many tuples or more is better."""
        if not self._monotone:
            return inf
        joins = tuple(JoinFan("", 1) for _ in range(size - 1))
        parts = self._ranking.parts(Evidence(self._best_matches, size, (), joins, None))
        return prod(part.value for part in parts) * _SURE

    def of_rows(self, tree: Tree, size: int) -> Callable[[Weights, tuple[int, ...]], float]:
        """What no result of so many tuples that a tree grows into is better than.

        Given for what each keyword weighs in the tree's rows, where it weighs most, and how many share
        the values of joins. Keywords that nodes to come may contain count with what they weigh at best.
        """
        open_slots = self._open(tree) if size > len(tree.relations) else 0
        best = tuple(weight if open_slots >> slot & 1 else 0.0 for slot, weight in enumerate(self._best))
        return partial(self._value, best, size)

    def _value_of(self, best: Weights, size: int, weights: Weights, fans: tuple[int, ...]) -> float:
        assert self._product is not None  # noqa: S101 - asked where ``known``
        return self._product.value([best, weights], size, fans) * _SURE

    def _open(self, tree: Tree) -> int:
        """The keywords that nodes to come may contain."""
        every = (1 << len(self._slots)) - 1
        if len(self._slots) == 2:  # each is in one leaf alone
            return every & ~tree.covered
        settled = 0
        for leaf in tree.finished:
            alone = tree.keywords[leaf] & ~tree.repeated
            if alone.bit_count() == 1:
                settled |= alone
        return every & ~settled

    def _find_best(self, relation: int, bitmap: int) -> Weights:
        """For each keyword of a bitmap what it weighs in the row of a relation where it weighs most."""
        found = [
            self._carriers.weights(relation, number) for number in self._carriers.weighed(relation, bitmap)
        ]
        return tuple(map(max, zip(*found, strict=True))) if found else tuple(0.0 for _ in self._slots)

    def _with(self, slot: int) -> Iterator[tuple[float, int, int]]:
        """What a keyword weighs in the rows that contain it, with the relation and number of each."""
        for relation in range(len(self._plan.schema.relations)):
            for bitmap in self._carriers.bitmaps(relation):
                if bitmap >> slot & 1:
                    for number in self._carriers.weighed(relation, bitmap):
                        yield self._carriers.weights(relation, number)[slot], relation, number
