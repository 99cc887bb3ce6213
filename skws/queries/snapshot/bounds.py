"""Upper bounds on scores: of results of a size, of a network, of rows joined so far.

A bound is the score of a result whose missing keywords are in the tuples where
they weigh most, with joins whose values no other tuple shares. It holds for
``monotone`` rankings; others prune nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from heapq import heappush, heapreplace
from math import inf, prod
from typing import Final, TypeAlias

from skws.keywords.plan import Plan
from skws.queries.snapshot.keyword_rows import KeywordRows
from skws.ranking.rankings import Evidence, JoinFan, Product, Ranking
from skws_mesh.tree import Tree

Weights: TypeAlias = tuple[float, ...]
"""The weight of each keyword of the query."""
_REMEMBERED: Final = 100_000
_TRIED: Final = 1000  # rows that get bounds in any case
_WORTH: Final = 8  # rows that may get bounds for each one that is pruned
_SURE: Final = 1 + 1e-9  # bounds are computed in another order than scores


class Bounds:
    """Bounds for one query.

    ``least``: the least score of a wanted result; -inf until ``most`` are found, or if all are wanted.
    """

    def __init__(self, plan: Plan, keyword_rows: KeywordRows, ranking: Ranking) -> None:
        self._plan = plan
        self._keyword_rows = keyword_rows
        self._ranking = ranking
        self._product = ranking if isinstance(ranking, Product) and ranking.monotone else None
        self._monotone: bool = getattr(ranking, "monotone", False)
        self._slots = range(len(plan.keywords))
        self._most: int | None = None
        self._scores: list[float] = []  # the best, as many as are wanted
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
            for match in keyword_rows.matches(relation, number, f"best of {slot}")
            if match.keyword == plan.keywords[slot]
        )

    def want(self, most: int | None) -> None:
        """The ``most`` best results are wanted, None for all."""
        self._most, self._scores, self.least = most, [], -inf
        self._tried = self._left_out = 0

    @property
    def known(self) -> bool:
        """True if rows have bounds, and only some results are wanted."""
        return self._product is not None and self._most is not None

    @property
    def pay(self) -> bool:
        """Whether bounds of rows without all keywords pay.

        They do not before there are results to compare with, nor if they have pruned too little.
        """
        if not self.known or self.least == -inf:
            return False
        return self._tried < _TRIED or self._left_out * _WORTH >= self._tried

    def tried(self, rows: int, left_out: int) -> None:
        """Note the number of rows that got bounds, and of those that were pruned."""
        self._tried += rows
        self._left_out += left_out

    def found(self, score: float) -> None:
        if not self._most:
            return
        if len(self._scores) < self._most:
            heappush(self._scores, score)
        elif score > self._scores[0]:
            heapreplace(self._scores, score)
        if len(self._scores) == self._most:
            self.least = self._scores[0]

    def of_size(self, size: int) -> float:
        """The bound of results with ``size`` tuples or more."""
        if not self._monotone:
            return inf
        joins = tuple(JoinFan("", 1) for _ in range(size - 1))
        parts = self._ranking.parts(Evidence(self._best_matches, size, (), joins, None))
        return prod(part.value for part in parts) * _SURE

    def of_rows(self, tree: Tree, size: int) -> Callable[[Weights, tuple[int, ...]], float]:
        """The bound of results with ``size`` tuples that a tree grows into.

        Its arguments are each keyword's greatest weight in the tree's rows, and the fans of joins.
        Keywords that later nodes may contain count with their greatest weight.
        """
        open_slots = self._open(tree) if size > len(tree.relations) else 0
        best = tuple(weight if open_slots >> slot & 1 else 0.0 for slot, weight in enumerate(self._best))
        return partial(self._value, best, size)

    def _value_of(self, best: Weights, size: int, weights: Weights, fans: tuple[int, ...]) -> float:
        assert self._product is not None  # noqa: S101 - asked where ``known``
        return self._product.value([best, weights], size, fans) * _SURE

    def _open(self, tree: Tree) -> int:
        """The keywords that later nodes may contain."""
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
        """The greatest weight of each keyword of a bitmap in the rows of a relation."""
        found = [
            self._keyword_rows.weights(relation, number)
            for number in self._keyword_rows.weighed(relation, bitmap)
        ]
        return tuple(map(max, zip(*found, strict=True))) if found else tuple(0.0 for _ in self._slots)

    def _with(self, slot: int) -> Iterator[tuple[float, int, int]]:
        """The weight of a keyword in each row that contains it, with the row's relation and number."""
        for relation in range(len(self._plan.schema.relations)):
            for bitmap in self._keyword_rows.bitmaps(relation):
                if bitmap >> slot & 1:
                    for number in self._keyword_rows.weighed(relation, bitmap):
                        yield self._keyword_rows.weights(relation, number)[slot], relation, number
