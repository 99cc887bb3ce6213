"""Scores results by statistics of the live tuples.

A result is scored once, when it is found, by the tuples alive then. Every
engine, slice and shard sees the whole window, so all give the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, log2, prod
from typing import Final

import numpy as np

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.ranking.corpus import Carriers, Corpus, Place, TableTexts
from skws.ranking.judging import Carried, Judged, Ranked, Scorer, TextCounts, fans
from skws.ranking.rankings import (
    Evidence,
    Floats,
    JoinFan,
    Match,
    Product,
    keyword_damping,
    keyword_rarity,
    keyword_share,
    keyword_weight,
    log_of_fans,
)
from skws.results.directory import TupleDirectory
from skws.results.score import Rank
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Ints, cells, kinds_of
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, MICROSECOND

_SURE: Final = 1 + 1e-9  # bounds are computed in another order than scores


class Scoring(Scorer):
    """Scores results by the tuples that are alive when they are found."""

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        super().__init__(schema, live, known)
        self._corpus: Corpus | None = None  # until a query asks
        self._stays = False
        self._edges = 2 * len(schema.joins)
        self._carriers: Mapping[Place, Carriers] = {}  # of the search that runs
        self._weights: Floats | None = None  # of its keywords
        self._latest = ALWAYS
        self._tables: Mapping[int, TableTexts] = {}

    def tables(self, tables: Mapping[int, TableTexts]) -> None:
        self._tables = tables
        if self._corpus is not None:
            self._corpus.add_tables(tables)

    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        ranked = self._ranked(query, plan)
        if ranked is not None:
            tuples = self._live.tuples
            slots = bitmaps.tuple[bitmaps.bitmap > 0]
            ranked.keywords.add(self._rows(slots), tuples.start[slots], tuples.end[slots])

    def add_carriers(self, query: int, plan: Plan, carriers: Mapping[Place, Carriers]) -> None:
        ranked = self._ranked(query, plan)
        if ranked is not None:
            tuples = self._live.tuples
            self._carriers = carriers
            for place, (slots, often, *_) in carriers.items():
                flags = (often > 0).astype(np.int64)
                ranked.keywords.add_flags(place, tuples.start[slots], tuples.end[slots], flags)

    def _ranked(self, query: int, plan: Plan) -> Ranked | None:
        """A query whose results get scores; None if its plan asks for none."""
        ranked = Ranked.of(plan)
        if ranked is None:
            return None
        tuples = self._live.tuples
        if self._corpus is None:
            self._corpus = Corpus(self._schema)
            self._corpus.add_tables(self._tables)
            self._corpus.add(self._known.rows, tuples.start, tuples.end)
            self._latest = int(tuples.start.max(initial=ALWAYS))
        self._queries[query] = ranked
        return ranked

    def count_rows(self, query: int, relation: int, rows: list[Row]) -> None:
        keywords = self._queries[query].keywords
        keywords.add(
            ((relation, row) for row in rows), np.full(len(rows), ALWAYS), np.full(len(rows), FOREVER)
        )
        keywords.forget(ALWAYS)  # that is: sum them up

    def stay(self) -> None:
        """Count all texts from the next query on, also while no query has a ranking."""
        self._stays = True

    def bound(self, query: int, size: int) -> Rank | None:
        """For ``monotone`` rankings of ``add_carriers``: each keyword in the texts where it weighs most."""
        ranked = self._queries[query]
        if not self._carriers or not getattr(ranked.ranking, "monotone", False):
            return None
        counts = self._counts(self._latest)
        matches = [
            match
            for number in range(len(ranked.plan.keywords))
            for match in self._best(query, number, counts)
        ]
        joins = tuple(JoinFan("", 1) for _ in range(size - 1))
        parts = ranked.ranking.parts(Evidence(tuple(matches), size, (), joins, None))
        value = prod(part.value for part in parts) * _SURE
        return 0, (log2(value) if value > 0 else -inf) + self._freshest(ranked)

    def _freshest(self, ranked: Ranked) -> float:
        """What freshness adds to the order of a result with the newest tuple."""
        if ranked.half_life is None:
            return 0.0
        return int(self._known.times.max(initial=ALWAYS)) / MICROSECOND / ranked.half_life

    def ceilings(self, query: int, results: Partials, network: Callable[[int], Tree] | None = None) -> Floats:
        """Where there is a ``bound``: what each keyword weighs in the tuples of the result itself."""
        ranked = self._queries[query]
        if not self._carriers or not isinstance(ranked.ranking, Product):
            return super().ceilings(query, results, network)
        weights = np.zeros(len(results))
        for keyword in self._weighed(query).T:
            heaviest = keyword.take(results.members[:, 0])
            for members in results.members.T[1:]:  # a fraction of the time of a maximum along short rows
                np.maximum(heaviest, keyword.take(members), out=heaviest)
            weights += heaviest
        specific = None
        if network is not None and ranked.ranking.uses_joins:
            specific = self._specific(results, network)
        with np.errstate(divide="ignore"):
            order: Floats = np.log2(ranked.ranking.most(weights, results.sizes, specific) * _SURE)
        if ranked.half_life is None:
            return order
        streaming = (results.members >= 0) & (self._live.tuples.start[results.members] != ALWAYS)
        newest = np.where(streaming, self._known.times[results.members], ALWAYS).max(axis=1)
        found = order + newest / MICROSECOND / ranked.half_life
        return np.where(streaming.any(axis=1), found, np.inf)

    def leaf_ceilings(self, query: int, bitmaps: KeywordBitmaps, size: int) -> Floats:
        ranked = self._queries[query]
        if not self._carriers or not isinstance(ranked.ranking, Product):
            return super().leaf_ceilings(query, bitmaps, size)
        weights = self._weighed(query).take(bitmaps.tuple, axis=0)
        # Of two keywords each is in one leaf, which has no other: the other leaf weighs what it can at most.
        heaviest = [weights[bitmaps.bitmap == 1 << keyword, keyword].max(initial=0) for keyword in (0, 1)]
        both = np.where(bitmaps.bitmap == 1, weights[:, 0] + heaviest[1], weights[:, 1] + heaviest[0])
        with np.errstate(divide="ignore"):
            found: Floats = np.log2(ranked.ranking.most(both, np.full(len(bitmaps), size)) * _SURE)
        return found + self._freshest(ranked)

    def _specific(self, results: Partials, network: Callable[[int], Tree]) -> Floats:
        """The part ``specificity`` of results."""
        some, kinds = kinds_of(results.operator)
        trees = [network(operator) for operator in results.operator[some].tolist()]
        width = results.members.shape[1]
        edges, parents = (
            np.array([column + (-1,) * (width - len(column)) for column in columns], dtype=np.int64)
            for columns in ([tree.edges for tree in trees], [tree.parents for tree in trees])
        )
        joined: list[Ints] = []
        pairs: list[Ints] = []
        for node in range(1, width):
            edge = edges[:, node].take(kinds)
            rows = np.flatnonzero(edge >= 0)
            edge = edge.take(rows)
            near = cells(results.members, rows, parents[:, node].take(kinds.take(rows)))
            far = results.members[:, node].take(rows)
            joined.append(rows)
            pairs += [near * self._edges + edge, far * self._edges + (edge ^ 1)]
        # A tuple and an edge are in many results: each pair is counted once.
        every = np.concatenate([NOTHING, *pairs])
        first, which = kinds_of(every)
        member, walked = np.divmod(every.take(first), self._edges)
        counts = fans(self._live, walked, member, np.full(len(first), self._latest))
        logs = log_of_fans(counts)
        total, at = np.zeros(len(results)), 0
        for rows in joined:
            out, back = which[at : at + len(rows)], which[at + len(rows) : at + 2 * len(rows)]
            total[rows] += np.minimum(logs.take(out), logs.take(back))  # the busier side
            at += 2 * len(rows)
        found: Floats = np.exp(total / np.maximum(1, results.sizes - 1))
        return found

    def _weighed(self, query: int) -> Floats:
        """What each keyword weighs in each live tuple; the last row is of none."""
        if self._weights is not None:
            return self._weights
        keywords = range(len(self._queries[query].plan.keywords))
        weighed = np.zeros((len(self._live) + 1, len(keywords)))
        counts = self._counts(self._latest)
        for place, (slots, often, lengths, _) in self._carriers.items():
            for keyword in keywords:
                texts, characters, containing = counts.of(query, place, keyword)
                if texts:
                    rarity = keyword_rarity(texts, max(1, containing))
                    shares = lengths / (characters / texts) if characters else np.ones(len(slots))
                    counted = often[:, keyword].astype(np.float64)
                    weighed[slots, keyword] += rarity * keyword_share(counted, shares)
        self._weights = weighed
        return weighed

    def _best(self, query: int, keyword: int, counts: TextCounts) -> list[Match]:
        """A keyword as it stands in the attributes of the relation where it weighs most."""
        name = self._queries[query].plan.keywords[keyword]
        by_relation: dict[int, list[Match]] = {}
        for place, (_, often, lengths, _) in self._carriers.items():
            there = np.flatnonzero(often[:, keyword])
            texts, characters, containing = counts.of(query, place, keyword)
            if len(there) and texts:
                mean = characters / texts
                shares = lengths[there] / mean if mean else np.ones(len(there))
                counted = often[there, keyword]
                damped = counted / (counted + keyword_damping(shares))
                best = there[int(np.argmax(damped))]
                match = Match(
                    name,
                    f"best {keyword}",
                    str(place[1]),
                    int(often[best, keyword]),
                    int(lengths[best]),
                    texts,
                    max(1, containing),
                    mean,
                )
                by_relation.setdefault(place[0], []).append(match)
        return max(by_relation.values(), key=lambda found: sum(map(keyword_weight, found)), default=[])

    def remove(self, query: int) -> None:
        self._queries.pop(query, None)
        self._carriers, self._weights = {}, None
        if not (self._queries or self._stays):
            self._corpus = None

    def arrived(self, first: int, rows: Rows, bitmaps: KeywordBitmaps) -> None:
        if self._corpus is None:
            return
        start, end = self._live.tuples.start, self._live.tuples.end
        self._corpus.add(rows, start[first:], end[first:])
        self._latest = max(self._latest, int(start[first:].max(initial=ALWAYS)))
        for query, ranked in self._queries.items():
            slots = bitmaps.tuple[(bitmaps.query == query) & (bitmaps.bitmap > 0)]
            ranked.keywords.add(self._rows(slots), start[slots], end[slots])

    def ended(self, slots: Ints, ticks: Ints) -> None:
        if self._corpus is None or not len(slots):
            return
        tuples = self._live.tuples
        former, end = tuples.end[slots], np.maximum(ticks, tuples.start[slots])
        self._corpus.end(self._known.rows.taken(slots), former, end)
        for ranked in self._queries.values():
            ranked.keywords.end(self._rows(slots), former, end)

    def forget(self, horizon: int) -> None:
        if self._corpus is None:
            return
        self._corpus.forget(horizon)
        for ranked in self._queries.values():
            ranked.keywords.forget(horizon)

    def of(
        self, results: Partials, trees: list[Tree], expires: Ints, *, snapshot: bool
    ) -> list[Judged | None]:
        # A snapshot scores all results by the tuples alive now.
        instants = np.maximum(results.start, self._latest) if snapshot else results.start

        def at_instant(edge: Ints, member: Ints, rows: Ints) -> Ints:
            return fans(self._live, edge, member, instants[rows])

        return self._scored(results, trees, (instants, expires), at_instant, (instants, self._counts))

    def _in_tuple(self, ranked: Ranked, relation: int, slot: int, bitmap: int) -> Iterator[Carried]:
        # A search knows where its words stand, and texts can be long.
        places = ((relation, column) for column in self._schema.relations[relation].search_columns)
        here = [(place, self._carriers[place]) for place in places if place in self._carriers]
        if not here or not all(each.exact for _, each in here):
            yield from super()._in_tuple(ranked, relation, slot, bitmap)
            return
        name = self._known.name(slot).id
        for place, each in here:
            often, length = each.at(slot)
            yield from (
                (keyword, name, place, count, length)
                for keyword, count in enumerate(often)
                if count and bitmap >> keyword & 1
            )

    def _counts(self, tick: int) -> TextCounts:
        """Counts among the tuples alive at a tick."""
        corpus, queries = self._corpus, self._queries
        assert corpus is not None  # noqa: S101 - there are queries
        return TextCounts(
            lambda place: corpus.at(place, tick),
            lambda query, place, keyword: queries[query].keywords.containing(place, keyword, tick),
        )

    def _rows(self, slots: Ints) -> Iterator[tuple[int, Row]]:
        relations = self._live.tuples.relation
        return ((int(relations[slot]), self._known.row(slot)) for slot in slots.tolist())
