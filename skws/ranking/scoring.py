"""Scores results by statistics of the live tuples.

A result is scored once, when it is found, by the tuples alive then. Every
engine, slice and shard sees the whole window, so all give the same score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.ranking.ceilings import Ceilings
from skws.ranking.corpus import Carriers, Corpus, Place, TableTexts, fans
from skws.ranking.judging import Carried, Judged, Ranked, Scorer, TextCounts
from skws.ranking.rankings import Floats, Product, keyword_rarity, keyword_share
from skws.results.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER


class Scoring(Scorer):
    """Scores results by the tuples that are alive when they are found."""

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        super().__init__(schema, live, known)
        self._corpus: Corpus | None = None  # until a query asks
        self._stays = False
        self._carriers: Mapping[Place, Carriers] = {}  # of the search that runs
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

    def ceilings(self, query: int) -> Ceilings | None:
        """For the built-in rankings, after ``add_carriers``."""
        ranked = self._queries[query]
        if not self._carriers or not isinstance(ranked.ranking, Product) or not ranked.ranking.monotone:
            return None
        times = self._known.times
        return Ceilings(
            ranked.ranking, ranked.half_life, self._weights(query), self._live, times, self._latest
        )

    def _weights(self, query: int) -> Floats:
        """What each keyword weighs in each live tuple; the last row is of none."""
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
        return weighed

    def remove(self, query: int) -> None:
        self._queries.pop(query, None)
        self._carriers = {}
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
