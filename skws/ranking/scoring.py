"""Scores results by statistics of the live tuples.

A result is scored once, when it is found, by the tuples alive at that time.
Every engine, slice and shard sees the whole window, so all compute the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.ranking.rankings import (
    Evidence,
    Fans,
    Floats,
    JoinFan,
    Match,
    Product,
    Ranking,
    keyword_rarity,
    keyword_share,
    letters,
    naming,
    passed_joins,
    ranking_named,
    reference_factor,
    referring,
)
from skws.ranking.text_statistics import (
    HEADING,
    NAME,
    Carriers,
    Keywords,
    Place,
    TableTexts,
    TextStatistics,
    fans,
)
from skws.ranking.upper_bounds import UpperBounds
from skws.results.result import Result, Score
from skws.store.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Ints, distinct
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, MICROSECOND

KeywordOccurrence: TypeAlias = tuple[int, str, Place, int, int]
"""A keyword in an attribute of a tuple: its number, the name of the tuple, place, occurrences and length."""
OccurrenceLookup: TypeAlias = Callable[[int, int, int], tuple[KeywordOccurrence, ...]]
"""The keywords of a bitmap that a tuple carries, by relation, slot and bitmap."""


class RankedPlan(NamedTuple):
    """The plan of a query with a ranking."""

    plan: Plan
    ranking: Ranking
    half_life: float | None
    keywords: Keywords
    explain: bool

    @classmethod
    def of(cls, plan: Plan) -> RankedPlan | None:
        """The plan with its ranking; None if it has none."""
        choice = plan.ranking
        if choice is None:
            return None
        ranking, half_life = ranking_named(choice.name), choice.fading(plan.window)
        return cls(plan, ranking, half_life, Keywords(plan.matcher), choice.explain)


class Scored(NamedTuple):
    """A result's score, the tick at which it was found, and the tick at which its window closes."""

    score: Score
    tick: int
    expires: int

    def given_to(self, result: Result) -> Result:
        """The result with this score and these ticks."""
        return replace(result, score=self.score, tick=self.tick, expires=self.expires)


class TextCounts:
    """Counts of texts and keywords among some tuples, each computed once.

    ``texts``: the number of texts of a place, and their characters; ``containing``: the number of texts of a
    place with a keyword, for a query.
    """

    def __init__(
        self,
        schema: Schema,
        texts: Callable[[Place], tuple[int, int]],
        containing: Callable[[int, Place, int], int],
    ) -> None:
        self._schema = schema
        self._texts = cache(texts)
        self._containing = cache(containing)
        self._referring: dict[int, float] = {}

    def of(self, query: int, place: Place, keyword: int) -> PlaceCounts:
        """The counts for the texts of a place and a keyword; for names, there is a text for each tuple."""
        relation, column = place
        if column == NAME:
            return PlaceCounts(self._tuples(), 0, 1, self._refer(relation))
        texts, characters = self._texts(place)
        return PlaceCounts(texts, characters, self._containing(query, place, keyword), self._refer(relation))

    def _tuples(self) -> int:
        return sum(self._texts((relation, NAME))[0] for relation in range(len(self._schema.relations)))

    def _refer(self, relation: int) -> float:
        if relation not in self._referring:
            row_counts = referring(self._schema, relation, lambda one: self._texts((one, NAME))[0])
            self._referring[relation] = row_counts
        return self._referring[relation]


class PlaceCounts(NamedTuple):
    """The texts of a place, their characters, and the texts with a keyword; ``referring`` as in ``Match``."""

    texts: int
    characters: int
    containing: int
    referring: float


class Scoring:
    """Scores results by the tuples that are alive when they are found.

    It tracks all tuples of an operator. Queries with a ranking are added by number.
    """

    def __init__(self, schema: Schema, live: LiveTuples, directory: TupleDirectory) -> None:
        self._schema = schema
        self._live = live
        self._directory = directory
        self._queries: dict[int, RankedPlan] = {}
        self._statistics: TextStatistics | None = None  # None until a query needs it
        self._keeps_statistics = False
        self._carriers: Mapping[Place, Carriers] = {}  # of the current search
        self._latest = ALWAYS
        self._tables: Mapping[int, TableTexts] = {}

    def __len__(self) -> int:
        """The number of queries with a ranking."""
        return len(self._queries)

    def __contains__(self, query: int) -> bool:
        return query in self._queries

    def tables(self, tables: Mapping[int, TableTexts]) -> None:
        """Set the tables, by relation, whose rows join the live tuples only on demand."""
        self._tables = tables
        if self._statistics is not None:
            self._statistics.add_tables(tables)

    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        """Score the results of a query if its plan asks for it; ``bitmaps``: of the live tuples."""
        ranked_plan = self._add_ranked(query, plan)
        if ranked_plan is not None:
            tuples = self._live.tuples
            slots = bitmaps.tuple[bitmaps.bitmap > 0]
            ranked_plan.keywords.add(self._rows(slots), tuples.start[slots], tuples.end[slots])

    def add_carriers(self, query: int, plan: Plan, carriers: Mapping[Place, Carriers]) -> None:
        """Like ``add``, given the live tuples with each keyword."""
        ranked_plan = self._add_ranked(query, plan)
        if ranked_plan is not None:
            tuples = self._live.tuples
            self._carriers = carriers
            for place, (slots, frequencies, *_) in carriers.items():
                flags = (frequencies > 0).astype(np.int64)
                ranked_plan.keywords.add_flags(place, tuples.start[slots], tuples.end[slots], flags)

    def _add_ranked(self, query: int, plan: Plan) -> RankedPlan | None:
        """Add a query whose results get scores; returns None if its plan asks for none."""
        ranked_plan = RankedPlan.of(plan)
        if ranked_plan is None:
            return None
        tuples = self._live.tuples
        if self._statistics is None:
            self._statistics = TextStatistics(self._schema)
            self._statistics.add_tables(self._tables)
            self._statistics.add(self._directory.rows, tuples.start, tuples.end)
            self._latest = int(tuples.start.max(initial=ALWAYS))
        self._queries[query] = ranked_plan
        return ranked_plan

    def count_rows(self, query: int, relation: int, rows: list[Row]) -> None:
        """Count rows of a table with keywords of a query; ``add_arrivals`` skips them."""
        keywords = self._queries[query].keywords
        keywords.add(
            ((relation, row) for row in rows), np.full(len(rows), ALWAYS), np.full(len(rows), FOREVER)
        )
        keywords.forget(ALWAYS)  # they never end, so one sum for all is enough

    def keep_statistics(self) -> None:
        """From the next query on, keep the counts of all texts, even between searches."""
        self._keeps_statistics = True

    def advance_to(self, now: int) -> None:
        """Score snapshots by the tuples that are alive at ``now``, even if the last arrival was earlier."""
        self._latest = max(self._latest, now)

    def ceilings(self, query: int) -> UpperBounds | None:
        """The bounds of a search's results, after ``add_carriers``; None unless the ranking is built in."""
        ranked_plan = self._queries[query]
        if not isinstance(ranked_plan.ranking, Product) or not ranked_plan.ranking.monotone:
            return None
        weights, greatest = self._weights(query)
        return UpperBounds(
            ranked_plan.ranking,
            ranked_plan.half_life,
            weights,
            greatest,
            self._live,
            self._directory.times,
            self._latest,
        )

    def _weights(self, query: int) -> tuple[Floats, Floats]:
        """The weight of each keyword in each live tuple, then a column of zeros; and the greatest weights."""
        keyword_texts = self._queries[query].plan.keywords
        keywords = range(len(keyword_texts))
        # pages without any weights are not allocated
        weights = np.zeros((len(keywords), len(self._live) + 1))
        counts = self._counts(self._latest)
        for place, (slots, frequencies, lengths, _) in self._carriers.items():
            for keyword in keywords:
                texts, characters, containing, refer = counts.of(query, place, keyword)
                if texts:
                    rarity = keyword_rarity(texts, max(1, containing)) * reference_factor(refer)
                    shares = lengths / (characters / texts) if characters else np.ones(len(slots))
                    occurrences = frequencies[:, keyword].astype(np.float64)
                    # A name in the schema has no length.
                    text_lengths = np.where(lengths > 0, lengths, np.inf)
                    coverage = np.minimum(occurrences * letters(keyword_texts[keyword]) / text_lengths, 1.0)
                    weights[keyword, slots] += rarity * keyword_share(occurrences, shares) * naming(coverage)
        slots = distinct(np.concatenate([NOTHING, *(slots for slots, *_ in self._carriers.values())]))
        return weights, weights[:, slots].max(axis=1, initial=0.0)

    def remove(self, query: int) -> None:
        """Stop scoring the results of a query."""
        self._queries.pop(query, None)
        self._carriers = {}
        if not (self._queries or self._keeps_statistics):
            self._statistics = None

    def add_arrivals(self, first: int, rows: Rows, bitmaps: KeywordBitmaps) -> None:
        """Add the tuples from slot ``first`` on, which just arrived; ``bitmaps`` by slot."""
        if self._statistics is None:
            return
        start, end = self._live.tuples.start, self._live.tuples.end
        self._statistics.add(rows, start[first:], end[first:])
        self._latest = max(self._latest, int(start[first:].max(initial=ALWAYS)))
        for query, ranked_plan in self._queries.items():
            slots = bitmaps.tuple[(bitmaps.query == query) & (bitmaps.bitmap > 0)]
            ranked_plan.keywords.add(self._rows(slots), start[slots], end[slots])

    def add_ends(self, slots: Ints, ticks: Ints) -> None:
        """Record tuples that end early."""
        if self._statistics is None or not len(slots):
            return
        tuples = self._live.tuples
        former_ends, end = tuples.end[slots], np.maximum(ticks, tuples.start[slots])
        self._statistics.end(self._directory.some_rows(slots), former_ends, end)
        for ranked_plan in self._queries.values():
            ranked_plan.keywords.end(self._rows(slots), former_ends, end)

    def forget(self, horizon: int) -> None:
        """Drop statistics before ``horizon``, since no more results are found there."""
        if self._statistics is None:
            return
        self._statistics.forget(horizon)
        for ranked_plan in self._queries.values():
            ranked_plan.keywords.forget(horizon)

    def of(
        self, results: Partials, trees: list[Tree], expires: Ints, *, snapshot: bool
    ) -> list[Scored | None]:
        """The scores of results, each over its tree; None if the query has no ranking."""
        # A snapshot scores all results by the tuples alive now.
        instants = np.maximum(results.start, self._latest) if snapshot else results.start

        joins = self._joins(results, trees, instants)
        counts_at = cache(self._counts)
        in_tuple = cache(self._in_tuple_of)  # a tuple is often in several results
        columns = (results.query, results.members, instants, expires)
        scores: list[Scored | None] = []
        for number, (query, members, tick, ends) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            ranked_plan = self._queries.get(query)
            if ranked_plan is None:
                scores.append(None)
                continue
            count = partial(counts_at(tick).of, query)
            score = self._score(
                ranked_plan, trees[number], members, count, joins[number], partial(in_tuple, query)
            )
            scores.append(Scored(score, tick, ends))
        return scores

    def _score(
        self,
        ranked_plan: RankedPlan,
        tree: Tree,
        members: list[int],
        count: Callable[[Place, int], PlaceCounts],
        joins: tuple[JoinFan, ...],
        in_tuple: OccurrenceLookup,
    ) -> Score:
        """The score of one result over its tree; ``members`` are slots, below 0 for none."""
        slots = [slot for slot in members if slot >= 0]
        times = [int(self._directory.times[slot]) for slot in slots if self._live.tuple_in(slot)[1] != ALWAYS]
        newest = max(times, default=None)
        evidence = Evidence(
            tuple(self._matches(ranked_plan, tree, slots, count, in_tuple)),
            len(slots),
            tuple(sorted((newest - time) / MICROSECOND for time in times)) if newest is not None else (),
            joins,
            ranked_plan.half_life,
        )
        parts = ranked_plan.ranking.parts(evidence)
        newest_time = None if newest is None else newest / MICROSECOND
        return Score(parts, newest_time, ranked_plan.half_life, explained=ranked_plan.explain)

    def _joins(self, results: Partials, trees: list[Tree], instants: Ints) -> list[tuple[JoinFan, ...]]:
        """The joins by which each result passes through tuples, if its query's ranking uses them."""
        queries = {query for query, ranked_plan in self._queries.items() if ranked_plan.ranking.uses_joins}
        result_numbers = [number for number, query in enumerate(results.query.tolist()) if query in queries]
        steps = [(number, node) for number in result_numbers for node in range(1, len(trees[number].edges))]
        joins_of: list[list[JoinFan]] = [[] for _ in trees]
        if steps:
            rows, nodes = np.array(steps, dtype=np.int64).T
            edge = np.array([trees[number].edges[node] for number, node in steps], dtype=np.int64)
            parents = np.array([trees[number].parents[node] for number, node in steps], dtype=np.int64)
            out = fans(self._live, edge, results.members[rows, parents], instants[rows])
            back = fans(self._live, edge ^ 1, results.members[rows, nodes], instants[rows])
            pairs: dict[int, list[Fans]] = {}
            for (number, _), *fan_pair in zip(steps, out.tolist(), back.tolist(), strict=True):
                pairs.setdefault(number, []).append((fan_pair[0], fan_pair[1]))
            for number, fans_of in pairs.items():
                tree = trees[number]
                names = [self._schema.joins[edge // 2].name for edge in tree.edges[1:]]
                for node, fan in passed_joins(tree.parents, names, fans_of):
                    joins_of[number].append(JoinFan(names[node - 1], fan))
        return [tuple(sorted(each, key=lambda fan: (fan.name, fan.tuples))) for each in joins_of]

    def _matches(
        self,
        ranked_plan: RankedPlan,
        tree: Tree,
        slots: list[int],
        count: Callable[[Place, int], PlaceCounts],
        in_tuple: OccurrenceLookup,
    ) -> Iterator[Match]:
        """The matches, in an order that does not depend on the root of the tree."""
        keyword_occurrences: list[KeywordOccurrence] = []
        for node, slot in enumerate(slots):
            if tree.keywords[node]:
                keyword_occurrences += in_tuple(tree.relations[node], slot, tree.keywords[node])
        for keyword, name, place, frequency, length in sorted(keyword_occurrences):
            counts = count(place, keyword)
            relation, column = place
            relation_schema = self._schema.relations[relation]
            yield Match(
                ranked_plan.plan.keywords[keyword],
                name,
                HEADING if column == NAME else relation_schema.attributes[column].name,
                frequency,
                length,
                counts.texts,
                counts.containing,
                counts.characters / counts.texts if counts.texts else 0.0,
                counts.referring,
            )

    def _in_tuple_of(
        self, query: int, relation: int, slot: int, bitmap: int
    ) -> tuple[KeywordOccurrence, ...]:
        return tuple(self._in_tuple(self._queries[query], relation, slot, bitmap))

    def _in_tuple(
        self, ranked_plan: RankedPlan, relation: int, slot: int, bitmap: int
    ) -> Iterator[KeywordOccurrence]:
        # A search already knows the positions of its words, and texts can be long.
        columns = (*self._schema.relations[relation].search_columns, NAME)
        places = ((relation, column) for column in columns)
        place_carriers = [(place, self._carriers[place]) for place in places if place in self._carriers]
        if not place_carriers or not all(carriers.exact for _, carriers in place_carriers):
            yield from self._in_texts(ranked_plan, relation, slot, bitmap)
            return
        name = self._directory.name(slot).id
        for place, carriers in place_carriers:
            frequencies, length = carriers.at(slot)
            yield from (
                (keyword, name, place, count, length)
                for keyword, count in enumerate(frequencies)
                if count and bitmap >> keyword & 1
            )

    def _in_texts(
        self, ranked_plan: RankedPlan, relation: int, slot: int, bitmap: int
    ) -> Iterator[KeywordOccurrence]:
        """The keywords in each attribute of a tuple, found in its texts."""
        row, name = self._directory.row(slot), self._directory.name(slot).id
        keyword_numbers = [
            keyword for keyword in range(len(ranked_plan.plan.keywords)) if bitmap >> keyword & 1
        ]
        for column in self._schema.relations[relation].search_columns:
            if row[column] is not None:
                text = str(row[column])
                counts = ranked_plan.keywords.occurrences(relation, column, text)
                yield from (
                    (k, name, (relation, column), counts[k], len(text)) for k in keyword_numbers if counts[k]
                )
        name_bits = ranked_plan.plan.matcher.names[relation]
        yield from ((k, name, (relation, NAME), 1, 0) for k in keyword_numbers if name_bits >> k & 1)

    def _counts(self, tick: int) -> TextCounts:
        """Counts among the tuples alive at a tick."""
        statistics, queries = self._statistics, self._queries
        assert statistics is not None  # noqa: S101 - queries have a ranking
        return TextCounts(
            self._schema,
            lambda place: statistics.at(place, tick),
            lambda query, place, keyword: queries[query].keywords.containing(place, keyword, tick),
        )

    def _rows(self, slots: Ints) -> Iterator[tuple[int, Row]]:
        relations = self._live.tuples.relation
        return ((int(relations[slot]), self._directory.row(slot)) for slot in slots.tolist())
