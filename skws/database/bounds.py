"""What no result can be better than: of a size, of a network, of the rows that are joined so far.

A bound is the score of what would contain keywords where they weigh most,
through joins that nobody shares. It holds for rankings that are ``monotone``;
with others nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from heapq import heappush, heapreplace
from math import inf, prod
from typing import Final

from mesh.tree import Tree
from skws.database.carriers import Carriers
from skws.database.networks import Fans, Numbers
from skws.plan import Plan
from skws.ranking.evidence import Evidence, JoinFan, Match
from skws.ranking.rankings import Ranking, keyword_weight

_SURE: Final = 1 + 1e-9  # bounds are computed in another order than scores
_REMEMBERED: Final = 200_000  # rows


class Bounds:
    """Bounds for one query; told of the scores that are found, it knows what is not wanted any more."""

    def __init__(self, plan: Plan, carriers: Carriers, ranking: Ranking) -> None:
        self._plan = plan
        self._carriers = carriers
        self._ranking = ranking
        self._monotone: bool = getattr(ranking, "monotone", False)
        self._scores: list[float] = []  # the best ones, as many as are wanted
        self._least = -inf  # of them, once there are so many
        self._best_of = cache(self._find_best)
        self._matches = lru_cache(_REMEMBERED)(self._matches_of)
        slots = range(len(plan.keywords))
        self._best = [match for slot in slots for match in self._strongest(slot, self._with(slot))]

    def of_size(self, size: int) -> float:
        """No result of so many tuples or more is better."""
        return self._bound(self._best, size) if self._monotone else inf

    def found(self, score: float, most: int | None) -> None:
        """A result has been found; the ``most`` best are wanted, None for all."""
        if most is None:
            return
        if len(self._scores) < most:
            heappush(self._scores, score)
        elif self._scores and score > self._scores[0]:
            heapreplace(self._scores, score)
        if most and len(self._scores) == most:
            self._least = self._scores[0]

    def hopeful(self, tree: Tree, rows: Sequence[Numbers], fans: Fans) -> Sequence[Numbers]:
        """The rows of all nodes but the last of a network that may lead to one of the best."""
        if self._least == -inf or not self._monotone or not rows:
            return rows
        nodes = [node for node, bitmap in enumerate(tree.keywords) if bitmap]
        size, last = len(tree.relations), len(tree.relations) - 1
        best = [self._best_of(tree.relations[node], tree.keywords[node]) for node in nodes]
        if self._bound([match for matches in best for match in matches], size) < self._least:
            return ()
        at_last = best[-1] if nodes[-1] == last else ()
        known = [(node, tree.relations[node]) for node in nodes if node != last]

        def matches(numbers: Numbers) -> Iterator[Match]:
            yield from at_last
            for node, relation in known:
                yield from self._matches(relation, numbers[node])

        def may_be(numbers: Numbers) -> bool:
            found = tuple(matches(numbers))
            if self._bound(found, size) < self._least:
                return False
            if not self._ranking.uses_joins:
                return True
            joins = tuple(JoinFan(*fan) for fan in fans(tree, numbers))
            return self._bound(found, size, joins) >= self._least

        return [numbers for numbers in rows if may_be(numbers)]

    def _bound(self, matches: Iterable[Match], size: int, joins: tuple[JoinFan, ...] = ()) -> float:
        """``joins``: as far as they are known; else nobody shares them."""
        joins = joins or tuple(JoinFan("", 1) for _ in range(size - 1))
        parts = self._ranking.parts(Evidence(tuple(matches), size, (), joins, None))
        return prod(part.value for part in parts) * _SURE

    def _matches_of(self, relation: int, number: int) -> tuple[Match, ...]:
        return tuple(self._carriers.matches(relation, number, f"{relation}:{number}"))

    def _find_best(self, relation: int, bitmap: int) -> list[Match]:
        """For each keyword of a bitmap its matches in the row of a relation where it weighs most."""
        if bitmap == self._carriers.usual(relation):  # by the relation's name alone: all are alike
            rows = [(relation, n) for n in self._carriers.carrying(relation, bitmap)][:1]
        else:
            rows = [(relation, n) for n in self._carriers.carrying(relation, bitmap)]
        slots = [slot for slot in range(len(self._plan.keywords)) if bitmap >> slot & 1]
        return [match for slot in slots for match in self._strongest(slot, rows)]

    def _strongest(self, slot: int, rows: Iterable[tuple[int, int]]) -> list[Match]:
        """The matches of a keyword in the row where it weighs most."""
        keyword = self._plan.keywords[slot]
        weights: list[tuple[float, list[Match]]] = [(0.0, [])]
        for relation, number in rows:
            name = f"best of {slot} in {relation}"
            mine = [m for m in self._carriers.matches(relation, number, name) if m.keyword == keyword]
            weights.append((sum(map(keyword_weight, mine)), mine))
        return max(weights, key=lambda pair: pair[0])[1]

    def _with(self, slot: int) -> Iterator[tuple[int, int]]:
        """The rows with a keyword; of those that have it by their relation's name alone, any one."""
        for relation, labels in enumerate(self._carriers.labels):
            yield from ((relation, n) for n, label in labels.items() if label >= 0 and label >> slot & 1)
            if self._carriers.usual(relation) >> slot & 1:
                usual = next(self._carriers.carrying(relation, self._carriers.usual(relation)), None)
                if usual is not None:
                    yield relation, usual
