"""Searches a snapshot, best results first, with early stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush, nsmallest
from itertools import product
from math import inf

import numpy as np
from msgspec.structs import replace

from skws.data.batch import Record
from skws.index.table import TableIndex
from skws.keywords.plan import Plan
from skws.queries.keywords.diagnosis import EmptyResult, KeywordCounts
from skws.queries.keywords.live_words import indexed
from skws.queries.keywords.referred_rows import referred_notes
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.snapshot.keyword_rows import Bounds, KeywordRows
from skws.queries.snapshot.networks import JoinedRows, NetworkResults, TooManyRowsError
from skws.ranking.rankings import Evidence, JoinFan, Match, ranking_named
from skws.results.model import Result, Score, TopChange
from skws.results.names import TupleNames
from skws.results.result_builder import Assembler
from skws.spec.enums import DEFAULT_MAX_SIZE
from skws.spec.query import RankingChoice
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS
from skws_schema.model import sourced
from skws_windows.window import FOREVER

_WORDS = 200_000
_LOADED = 1_000_000
"""Rows that are loaded at most: half a gigabyte."""
_WORTH = 1.0


def why_nothing(plan: Plan, keyword_rows: KeywordRows, tables: Sequence[TableIndex]) -> EmptyResult:
    """Why nothing was found, by all rows."""
    if not any(relation.search_columns for relation in plan.schema.relations) and not plan.query.match_names:
        return EmptyResult(("no column is searched: --schema FILE can declare some as text",))
    counts = KeywordCounts(plan, tuples=sum(map(len, tables)))
    for slot, relation in product(range(len(plan.query.slots)), range(len(tables))):
        counts.count(slot, relation, keyword_rows.count_of(slot, relation))
    return counts.why_nothing(partial(_words, tables))


def _words(tables: Sequence[TableIndex]) -> Mapping[str, int]:
    """The most frequent words, with how many rows have them."""
    words = Counter[str]()
    for table in tables:
        for word, rows in table.words():
            words[word] += rows
    return dict(words.most_common(_WORDS))


@dataclass(slots=True)
class Effort:
    """The ``size`` of the last networks searched, and the number of results so far."""

    size: int = 0
    found: int = 0


class SnapshotSearch:
    """Finds the results of a plan in indexed tables, in order of their scores.

    Networks are searched by size. A result is given once no larger result can
    be better (Hristidis, Gravano and Papakonstantinou, VLDB 2003, "Sparse"), and
    rows that cannot lead to one of the best are pruned before their last join
    (``Bounds``). Once that has joined as many rows as it takes to load all tables
    into memory, the search goes on there, as one of live tuples (``worth``: so many
    rows are joined at the cost of one that is loaded).
    """

    def __init__(self, plan: Plan, tables: Sequence[TableIndex], worth: float = _WORTH) -> None:
        self._per_row = worth
        self.effort = Effort()
        self._plan = plan
        choice = plan.ranking or RankingChoice()
        self._ranking, self._explain = ranking_named(choice.name), choice.explain
        self._tables = tables
        self._keyword_rows = KeywordRows(plan, tables)
        self._bounds = Bounds(plan, self._keyword_rows, self._ranking)
        self._assembler = Assembler(plan)
        self._names = TupleNames(plan.schema, per_position=None)

    def why_nothing(self) -> EmptyResult:
        """Of a search that found nothing."""
        return why_nothing(self._plan, self._keyword_rows, self._tables)

    def notes(self, results: Sequence[Result]) -> tuple[str, ...]:
        """Lines for the user on rows that the results hide."""
        return referred_notes(self._plan, results, self._keyword_rows.carriers)

    def results(self, most: int | None = None) -> Iterator[Result]:
        """The ``most`` best results, best first; of equal scores the smaller id first."""
        rank = 0
        try:
            for result in self._joined(most, self._budget if most is not None else inf):
                rank += 1
                yield result
        except TooManyRowsError:
            yield from self._in_memory(most or 0)[rank:]

    @property
    def _budget(self) -> float:
        """Rows that may be joined before all are loaded, if the live search is quick and there is room."""
        rows = sum(map(len, self._tables))
        small = rows <= _LOADED and self._plan.max_size <= DEFAULT_MAX_SIZE  # it joins all results
        fits = small and not sourced(self._plan.schema) and indexed(self._plan.matcher)
        return rows * self._per_row if fits else inf

    def _in_memory(self, most: int) -> list[Result]:
        """The best results as a search of live tuples finds them: the same ones."""
        engine = StreamEngine(self._plan.schema, self._plan.window)
        begun, carrying = 0, []
        for relation, table in enumerate(self._tables):
            numbers = table.every()
            list(engine.load_tables(Record(relation, 0, row) for row in table.each(numbers)))
            labelled = np.array(sorted(self._keyword_rows.labelled(relation)), dtype=np.int64)
            carrying.append(np.searchsorted(numbers, labelled) + begun)
            begun += len(numbers)
        engine.know(np.concatenate(carrying))
        results = engine.search(self._plan, most)
        self.effort = Effort(results.size, results.found)
        return [replace(each, tick=None, expires=None) for each in results.results]

    def _joined(self, most: int | None, budget: float) -> Iterator[Result]:
        """The results as ``results`` gives them. Raises TooManyRowsError."""
        waiting: list[tuple[float, float, str, Result]] = []
        rank = 0
        self._bounds.want(most)
        networks = NetworkResults(self._keyword_rows, self._tables, self._bounds, budget)
        for size in range(1, self._plan.max_size + 1):
            self.effort.size = size
            for tree, held in networks.of_size(size):
                if held.bound < self._bounds.least or not networks.joined(tree, held):
                    continue
                self.effort.found += 1
                judged = self._judged(tree, held, networks.fans(tree, held))
                self._bounds.found(self._worth(judged[3]))
                heappush(waiting, judged)
                if most is not None and len(waiting) > 2 * most + 1024:
                    waiting = nsmallest(most - rank, waiting)
            heapify(waiting)
            bound = -inf if size == self._plan.max_size else self._bounds.of_size(size + 1)
            while waiting and rank != most and self._worth(waiting[0][3]) > bound:
                rank += 1
                yield replace(heappop(waiting)[3], place=TopChange("enter", rank, None))
            if rank == most:
                return

    @staticmethod
    def _worth(result: Result) -> float:
        assert result.score is not None  # noqa: S101 - all have one
        return result.score.value

    def _judged(
        self, tree: Tree, held: JoinedRows, joins: Iterable[tuple[str, int]]
    ) -> tuple[float, float, str, Result]:
        names = []
        matches: list[tuple[int, Match]] = []
        for node, number in enumerate(held.numbers):
            relation = tree.relations[node]
            row = self._keyword_rows.row(relation, number)
            occurrence = self._tables[relation].occurrence(np.array([number])).get(0, 0)
            names.append(self._names.relations[relation].of(row, ALWAYS, occurrence))
            if tree.keywords[node]:
                matches += (
                    (self._plan.keywords.index(each.keyword), each)
                    for each in self._keyword_rows.matches(relation, number, names[-1].id)
                )
        ordered = sorted(matches, key=lambda pair: (pair[0], pair[1].tuple))
        fans = tuple(JoinFan(*each) for each in sorted(joins))
        evidence = Evidence(tuple(match for _, match in ordered), len(held.numbers), (), fans, None)
        score = Score(self._ranking.parts(evidence), explained=self._explain)
        result = self._assembler.result("+", tree, names, None, FOREVER, snapshot=True)
        tier, value = score.rank
        return -tier, -value, result.id, replace(result, score=score)
