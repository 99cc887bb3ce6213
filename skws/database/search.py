"""A keyword query over a snapshot: the best results first, and no more work than they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, nsmallest
from math import inf, prod

from mesh.tree import Tree
from skws.database.carriers import Carriers
from skws.database.networks import NetworkResults, Numbers
from skws.database.store import Store
from skws.plan import Plan
from skws.ranking.choice import RankingChoice
from skws.ranking.evidence import Evidence, JoinFan, Match
from skws.ranking.rankings import keyword_weight
from skws.ranking.score import Score
from skws.results.assemble import Assembler, TupleNames
from skws.results.model import Place, Result
from windows.tuples import ALWAYS
from windows.window import FOREVER

_SURE = 1 + 1e-9  # bounds are computed in another order than scores


@dataclass(slots=True)
class Effort:
    """How far a search went: networks of which ``size`` were looked at last, and what was found in them."""

    size: int = 0
    found: int = 0


class SnapshotSearch:
    """Finds the results of a plan in a store, in order of their scores.

    Networks are looked at by size. A result is given once nothing of a
    greater size can be better (Hristidis, Gravano and Papakonstantinou,
    VLDB 2003, "Sparse"): for rankings that are ``monotone``, by the score of
    what would contain each keyword where it weighs most, through joins that nobody
    shares; with others, at the end.
    """

    def __init__(self, plan: Plan, store: Store) -> None:
        self.effort = Effort()
        self._plan = plan
        choice = plan.ranking or RankingChoice()
        self._ranking, self._explain = choice.ranking, choice.explain
        self._store = store
        self._carriers = Carriers(plan, store)
        self._networks = NetworkResults(self._carriers, store)
        self._assembler = Assembler(plan)
        self._names = TupleNames(plan.schema, by_count=False)
        self._best = self._best_matches()

    def results(self, most: int | None = None) -> Iterator[Result]:
        """At most so many, best first; of equal scores the smaller id first."""
        waiting: list[tuple[float, float, str, Result]] = []
        rank = 0
        for size in range(1, self._plan.max_size + 1):
            self.effort.size = size
            for tree, numbers in self._networks.of_size(size):
                self.effort.found += 1
                heappush(waiting, self._judged(tree, numbers))
                if most is not None and len(waiting) > 2 * most + 1024:
                    waiting = nsmallest(most - rank, waiting)
            heapify(waiting)
            bound = -inf if size == self._plan.max_size else self._bound(size + 1)
            while waiting and rank != most and self._worth(waiting[0][3]) > bound:
                rank += 1
                yield replace(heappop(waiting)[3], place=Place("enter", rank, None))
            if rank == most:
                return

    @staticmethod
    def _worth(result: Result) -> float:
        assert result.score is not None  # noqa: S101 - all have one
        return result.score.value

    def _judged(self, tree: Tree, numbers: Numbers) -> tuple[float, float, str, Result]:
        names = []
        matches: list[tuple[int, Match]] = []
        for node, number in enumerate(numbers):
            relation = tree.relations[node]
            row = self._carriers.row(relation, number)
            keyed = self._plan.schema.relations[relation].key
            occurrence = 0 if keyed else self._store.occurrence(relation, number, row)
            names.append(self._names.name(relation, row, ALWAYS, occurrence))
            if tree.keywords[node]:
                matches += (
                    (self._plan.keywords.index(each.keyword), each)
                    for each in self._carriers.matches(relation, number, names[-1].id)
                )
        ordered = sorted(matches, key=lambda pair: (pair[0], pair[1].tuple))
        fans = tuple(JoinFan(*each) for each in sorted(self._networks.fans(tree, numbers)))
        evidence = Evidence(tuple(match for _, match in ordered), len(numbers), (), fans, None)
        score = Score(self._ranking.parts(evidence), explained=self._explain)
        result = self._assembler.result("+", tree, names, None, FOREVER, snapshot=True)
        tier, value = score.rank
        return -tier, -value, result.id, replace(result, score=score)

    def _bound(self, size: int) -> float:
        """No result of so many tuples or more is better."""
        if not getattr(self._ranking, "monotone", False):
            return inf
        joins = tuple(JoinFan("", 1) for _ in range(size - 1))
        parts = self._ranking.parts(Evidence(tuple(self._best), size, (), joins, None))
        return prod(part.value for part in parts) * _SURE

    def _best_matches(self) -> list[Match]:
        """For each keyword its matches in the tuple where it weighs most."""
        best: list[Match] = []
        for slot, keyword in enumerate(self._plan.keywords):
            weights: list[tuple[float, list[Match]]] = [(0.0, [])]
            for relation, number in self._with(slot):
                mine = [m for m in self._carriers.matches(relation, number, keyword) if m.keyword == keyword]
                weights.append((sum(map(keyword_weight, mine)), mine))
            best += max(weights, key=lambda pair: pair[0])[1]
        return best

    def _with(self, slot: int) -> Iterator[tuple[int, int]]:
        """The tuples with a keyword; of those that have it by their relation's name alone, any one."""
        for relation, labels in enumerate(self._carriers.labels):
            yield from ((relation, n) for n, label in labels.items() if label >= 0 and label >> slot & 1)
            if self._carriers.usual(relation) >> slot & 1:
                usual = next(self._carriers.carrying(relation, self._carriers.usual(relation)), None)
                if usual is not None:
                    yield relation, usual
