"""A keyword query over a snapshot: the best results first, and no more work than they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest
from math import inf

from msgspec.structs import replace

from mesh.tree import Tree
from skws.database.bounds import Bounds
from skws.database.carriers import Carriers
from skws.database.diagnosis import why_nothing
from skws.database.networks import Held, NetworkResults
from skws.database.store import Store
from skws.plan import Plan
from skws.ranking.choice import RankingChoice
from skws.ranking.evidence import Evidence, JoinFan, Match
from skws.ranking.score import Score
from skws.results.assemble import Assembler, TupleNames
from skws.results.model import Place, Result
from windows.tuples import ALWAYS
from windows.window import FOREVER


@dataclass(slots=True)
class Effort:
    """How far a search went: networks of which ``size`` were looked at last, and what was found in them."""

    size: int = 0
    found: int = 0


class SnapshotSearch:
    """Finds the results of a plan in a store, in order of their scores.

    Networks are looked at by size. A result is given once nothing of a
    greater size can be better (Hristidis, Gravano and Papakonstantinou,
    VLDB 2003, "Sparse"), and rows that cannot lead to one of the best are left
    out before their last join (``Bounds``).
    """

    def __init__(self, plan: Plan, store: Store) -> None:
        self.effort = Effort()
        self._plan = plan
        choice = plan.ranking or RankingChoice()
        self._ranking, self._explain = choice.ranking, choice.explain
        self._store = store
        self._carriers = Carriers(plan, store)
        self._bounds = Bounds(plan, self._carriers, self._ranking)
        self._networks = NetworkResults(self._carriers, store, self._bounds)
        self._assembler = Assembler(plan)
        self._names = TupleNames(plan.schema, per_position=None)

    def why_nothing(self) -> list[str]:
        """Lines for the user of a search that found nothing."""
        return why_nothing(self._plan, self._carriers, self._store)

    def results(self, most: int | None = None) -> Iterator[Result]:
        """At most so many, best first; of equal scores the smaller id first."""
        waiting: list[tuple[float, float, str, Result]] = []
        rank = 0
        self._bounds.want(most)
        for size in range(1, self._plan.max_size + 1):
            self.effort.size = size
            for tree, held in self._networks.of_size(size):
                if held.bound < self._bounds.least:
                    continue
                self.effort.found += 1
                judged = self._judged(tree, held)
                self._bounds.found(self._worth(judged[3]))
                heappush(waiting, judged)
                if most is not None and len(waiting) > 2 * most + 1024:
                    waiting = nsmallest(most - rank, waiting)
            heapify(waiting)
            bound = -inf if size == self._plan.max_size else self._bounds.of_size(size + 1)
            while waiting and rank != most and self._worth(waiting[0][3]) > bound:
                rank += 1
                yield replace(heappop(waiting)[3], place=Place("enter", rank, None))
            if rank == most:
                return

    @staticmethod
    def _worth(result: Result) -> float:
        assert result.score is not None  # noqa: S101 - all have one
        return result.score.value

    def _judged(self, tree: Tree, held: Held) -> tuple[float, float, str, Result]:
        names = []
        matches: list[tuple[int, Match]] = []
        for node, number in enumerate(held.numbers):
            relation = tree.relations[node]
            row = self._carriers.row(relation, number)
            occurrence = self._store.occurrence(relation, number)
            names.append(self._names.name(relation, row, ALWAYS, occurrence))
            if tree.keywords[node]:
                matches += (
                    (self._plan.keywords.index(each.keyword), each)
                    for each in self._carriers.matches(relation, number, names[-1].id)
                )
        ordered = sorted(matches, key=lambda pair: (pair[0], pair[1].tuple))
        fans = tuple(JoinFan(*each) for each in sorted(self._networks.fans(tree, held)))
        evidence = Evidence(tuple(match for _, match in ordered), len(held.numbers), (), fans, None)
        score = Score(self._ranking.parts(evidence), explained=self._explain)
        result = self._assembler.result("+", tree, names, None, FOREVER, snapshot=True)
        tier, value = score.rank
        return -tier, -value, result.id, replace(result, score=score)
