"""Turns facts about a result's tuples into its score, at an instant or over windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.ranking.ceilings import Ceilings
from skws.ranking.corpus import NAME, Carriers, Keywords, Place, TableTexts
from skws.ranking.rankings import Evidence, JoinFan, Match, Ranking, ranking_named
from skws.results.directory import TupleDirectory
from skws.results.model import Result
from skws.results.score import Score
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import MICROSECOND

CountFans: TypeAlias = Callable[[Ints, Ints, Ints], Ints]
"""For each edge, the tuple it is walked from, and the number of a result: how many tuples it leads to."""


Carried: TypeAlias = tuple[int, str, Place, int, int]
"""A keyword in an attribute of a tuple: keyword, tuple, place, occurrences and length."""
InTuple: TypeAlias = Callable[[int, int, int], tuple[Carried, ...]]
"""The keywords of a bitmap that a tuple carries: relation, slot, bitmap."""


class Ranked(NamedTuple):
    """A query whose results get scores."""

    plan: Plan
    ranking: Ranking
    half_life: float | None
    keywords: Keywords
    explain: bool

    @classmethod
    def of(cls, plan: Plan) -> Ranked | None:
        """None if the plan asks for no scores."""
        choice = plan.ranking
        if choice is None:
            return None
        ranking, half_life = ranking_named(choice.name), choice.fading(plan.window)
        return cls(plan, ranking, half_life, Keywords(plan.matcher), choice.explain)


class Judged(NamedTuple):
    """A result's score, the tick at which it was found, and the one at which its window closes."""

    score: Score
    tick: int
    expires: int

    def at(self, seconds: float) -> Judged:
        """With the score as it has faded by then."""
        return self._replace(score=self.score.when(seconds))

    def given_to(self, result: Result) -> Result:
        return replace(result, score=self.score, tick=self.tick, expires=self.expires)


class TextCounts:
    """Counts of texts and keywords among some tuples, each made once.

    ``texts``: of a place their number and their characters; ``containing``: of a query and a place the
    number of texts with a keyword.
    """

    def __init__(
        self, texts: Callable[[Place], tuple[int, int]], containing: Callable[[int, Place, int], int]
    ) -> None:
        self._texts = cache(texts)
        self._containing = cache(containing)

    def of(self, query: int, place: Place, keyword: int) -> tuple[int, int, int]:
        """Of the texts of a place: their number, their characters, and the number with a keyword."""
        count, characters = self._texts(place)
        return count, characters, count if place[1] == NAME else self._containing(query, place, keyword)


class Scorer(ABC):
    """Scores the results of an operator, all of whose tuples it follows, by statistics of some of them.

    Queries that have a ranking are added by their numbers.
    """

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        self._schema = schema
        self._live = live
        self._known = known
        self._queries: dict[int, Ranked] = {}

    def __len__(self) -> int:
        """The number of queries with a ranking."""
        return len(self._queries)

    def __contains__(self, query: int) -> bool:
        return query in self._queries

    def tables(self, tables: Mapping[int, TableTexts]) -> None:  # noqa: B027 - windows have whole tables
        """By relation: tables whose rows join the live tuples only on demand."""

    def count_rows(self, query: int, relation: int, rows: list[Row]) -> None:  # noqa: B027 - as above
        """Count rows of a table with keywords of a query; ``arrived`` skips them."""

    @abstractmethod
    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        """Score the results of a query if its plan asks for it; ``bitmaps`` are those of live tuples."""

    def add_carriers(  # noqa: B027 - as below
        self, query: int, plan: Plan, carriers: Mapping[Place, Carriers]
    ) -> None:
        """As ``add``, where it is known which live tuples contain which keywords."""

    def stay(self) -> None:  # noqa: B027 - windows have no searches
        """Keep what all queries share, even where none is left: searches come one by one."""

    def ceilings(self, query: int) -> Ceilings | None:  # noqa: ARG002 - windows have no searches
        """Those of the results of a search; None if unknown."""
        return None

    @abstractmethod
    def remove(self, query: int) -> None:
        """Score the results of a query no longer."""

    @abstractmethod
    def arrived(self, first: int, rows: Rows, bitmaps: KeywordBitmaps) -> None:
        """The tuples from slot ``first`` on just came; ``bitmaps`` by slot."""

    def ended(self, slots: Ints, ticks: Ints) -> None:  # noqa: B027 - tuples have their ends
        """Tuples are about to end early."""

    def forget(self, horizon: int) -> None:  # noqa: B027 - what is kept by slot goes with its tuples
        """Drop statistics before ``horizon``: no more results are found there."""

    @abstractmethod
    def of(
        self, results: Partials, trees: list[Tree], expires: Ints, *, snapshot: bool
    ) -> list[Judged | None]:
        """The scores of results, each over its tree; None where its query has no ranking."""

    def _scored(
        self,
        results: Partials,
        trees: list[Tree],
        spans: tuple[Ints, Ints],
        fans: CountFans,
        counts: tuple[Ints, Callable[[int], TextCounts]],
    ) -> list[Judged | None]:
        """As ``of``; ``spans``: the ticks at which results are found, and expire.

        ``counts``: a number for each result, and the counts that hold for results of one number.
        """
        joins = self._joins(results, trees, fans)
        groups, counted = counts[0].tolist(), cache(counts[1])
        in_tuple = cache(self._in_tuple_of)  # a tuple tends to be in several results
        columns = (results.query, results.members, *spans)
        judged: list[Judged | None] = []
        for number, (query, members, tick, ends) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            ranked = self._queries.get(query)
            if ranked is None:
                judged.append(None)
                continue
            count = partial(counted(groups[number]).of, query)
            score = self._score(
                ranked, trees[number], members, count, joins[number], partial(in_tuple, query)
            )
            judged.append(Judged(score, tick, ends))
        return judged

    def _score(
        self,
        ranked: Ranked,
        tree: Tree,
        members: list[int],
        count: Callable[[Place, int], tuple[int, int, int]],
        joins: tuple[JoinFan, ...],
        in_tuple: InTuple,
    ) -> Score:
        """The score of one result over its tree; ``members`` are slots, below 0 for none."""
        slots = [slot for slot in members if slot >= 0]
        times = [int(self._known.times[slot]) for slot in slots if self._live.tuple_in(slot)[1] != ALWAYS]
        newest = max(times, default=None)
        evidence = Evidence(
            tuple(self._matches(ranked, tree, slots, count, in_tuple)),
            len(slots),
            tuple(sorted((newest - time) / MICROSECOND for time in times)) if newest is not None else (),
            joins,
            ranked.half_life,
        )
        parts = ranked.ranking.parts(evidence)
        found = None if newest is None else newest / MICROSECOND
        return Score(parts, found, ranked.half_life, explained=ranked.explain)

    def _joins(self, results: Partials, trees: list[Tree], count: CountFans) -> list[tuple[JoinFan, ...]]:
        """The joins of each result, busier side counted; empty where its query's ranking asks for none."""
        asking = {query for query, ranked in self._queries.items() if ranked.ranking.uses_joins}
        wanted = [number for number, query in enumerate(results.query.tolist()) if query in asking]
        steps = [(number, node) for number in wanted for node in range(1, len(trees[number].edges))]
        found: list[list[JoinFan]] = [[] for _ in trees]
        if steps:
            rows, nodes = np.array(steps, dtype=np.int64).T
            edge = np.array([trees[number].edges[node] for number, node in steps], dtype=np.int64)
            above = np.array([trees[number].parents[node] for number, node in steps], dtype=np.int64)
            out = count(edge, results.members[rows, above], rows)
            back = count(edge ^ 1, results.members[rows, nodes], rows)
            for (number, _), join, fan in zip(steps, edge // 2, np.maximum(out, back), strict=True):
                found[number].append(JoinFan(self._schema.joins[join].name, int(fan)))
        return [tuple(sorted(each, key=lambda fan: (fan.name, fan.tuples))) for each in found]

    def _matches(
        self,
        ranked: Ranked,
        tree: Tree,
        slots: list[int],
        count: Callable[[Place, int], tuple[int, int, int]],
        in_tuple: InTuple,
    ) -> Iterator[Match]:
        """In an order that does not depend on how the tree is rooted."""
        found: list[Carried] = []
        for node, slot in enumerate(slots):
            if tree.keywords[node]:
                found += in_tuple(tree.relations[node], slot, tree.keywords[node])
        for keyword, name, place, occurring, length in sorted(found):
            texts, characters, containing = count(place, keyword)
            relation, column = place
            described = self._schema.relations[relation]
            yield Match(
                ranked.plan.keywords[keyword],
                name,
                "relation's name" if column == NAME else described.attributes[column].name,
                occurring,
                length,
                texts,
                containing,
                characters / texts if texts else 0.0,
            )

    def _in_tuple_of(self, query: int, relation: int, slot: int, bitmap: int) -> tuple[Carried, ...]:
        return tuple(self._in_tuple(self._queries[query], relation, slot, bitmap))

    def _in_tuple(self, ranked: Ranked, relation: int, slot: int, bitmap: int) -> Iterator[Carried]:
        """Keyword, tuple, place, occurrences and length for each keyword in each attribute of a tuple."""
        row, name = self._known.row(slot), self._known.name(slot).id
        carried = [keyword for keyword in range(len(ranked.plan.keywords)) if bitmap >> keyword & 1]
        for column in self._schema.relations[relation].search_columns:
            if row[column] is not None:
                text = str(row[column])
                counts = ranked.keywords.occurrences(relation, column, text)
                yield from ((k, name, (relation, column), counts[k], len(text)) for k in carried if counts[k])
        named = ranked.plan.matcher.names[relation]
        yield from ((k, name, (relation, NAME), 1, 0) for k in carried if named >> k & 1)
