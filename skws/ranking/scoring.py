"""Scores results by statistics of the live tuples.

A result is scored once, when it is found, by the tuples alive then. Every
engine, slice and shard sees the whole window, so all give the same score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.ranking.corpus import NAME, Corpus, Place, TableTexts
from skws.ranking.judging import Judge, Judged, Ranked, fans
from skws.results.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER


class Scoring:
    """Follows all tuples; the queries that have a ranking are added by their numbers."""

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        self._schema = schema
        self._live = live
        self._known = known
        self._judge = Judge(schema, live, known)
        self._corpus: Corpus | None = None  # until a query asks
        self._queries: dict[int, Ranked] = {}
        self._latest = ALWAYS
        self._tables: Mapping[int, TableTexts] = {}

    def tables(self, tables: Mapping[int, TableTexts]) -> None:
        """By relation: tables whose rows join the live tuples only on demand."""
        self._tables = tables
        if self._corpus is not None:
            self._corpus.add_tables(tables)

    def __len__(self) -> int:
        """How many queries have a ranking."""
        return len(self._queries)

    def __contains__(self, query: int) -> bool:
        return query in self._queries

    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        """Judge the results of a query, if its plan asks for it; ``bitmaps`` are those of live tuples."""
        ranked = Ranked.of(plan)
        if ranked is None:
            return
        tuples = self._live.tuples
        if self._corpus is None:
            self._corpus = Corpus(self._schema)
            self._corpus.add_tables(self._tables)
            self._corpus.add(self._known.rows, tuples.start, tuples.end)
            self._latest = int(tuples.start.max(initial=ALWAYS))
        self._queries[query] = ranked
        slots = bitmaps.tuple[bitmaps.bitmap > 0]
        ranked.keywords.add(self._rows(slots), tuples.start[slots], tuples.end[slots])

    def count_rows(self, query: int, relation: int, rows: list[Row]) -> None:
        """Count rows of a table with keywords of a query; ``arrived`` skips them."""
        keywords = self._queries[query].keywords
        keywords.add(
            ((relation, row) for row in rows), np.full(len(rows), ALWAYS), np.full(len(rows), FOREVER)
        )
        keywords.forget(ALWAYS)  # that is: sum them up

    def remove(self, query: int) -> None:
        self._queries.pop(query, None)
        if not self._queries:
            self._corpus = None

    def arrived(self, first: int, rows: Rows, bitmaps: KeywordBitmaps) -> None:
        """The tuples from slot ``first`` on just came; ``bitmaps`` by slot."""
        if self._corpus is None:
            return
        start, end = self._live.tuples.start, self._live.tuples.end
        self._corpus.add(rows, start[first:], end[first:])
        self._latest = max(self._latest, int(start[first:].max(initial=ALWAYS)))
        for query, ranked in self._queries.items():
            slots = bitmaps.tuple[(bitmaps.query == query) & (bitmaps.bitmap > 0)]
            ranked.keywords.add(self._rows(slots), start[slots], end[slots])

    def ended(self, slots: Ints, ticks: Ints) -> None:
        """Tuples are about to end early."""
        if self._corpus is None or not len(slots):
            return
        tuples = self._live.tuples
        former, end = tuples.end[slots], np.maximum(ticks, tuples.start[slots])
        self._corpus.end(self._known.rows.taken(slots), former, end)
        for ranked in self._queries.values():
            ranked.keywords.end(self._rows(slots), former, end)

    def forget(self, horizon: int) -> None:
        """Drop statistics before ``horizon``: no more results are found there."""
        if self._corpus is None:
            return
        self._corpus.forget(horizon)
        for ranked in self._queries.values():
            ranked.keywords.forget(horizon)

    def of(
        self, results: Partials, trees: list[Tree], expires: Ints, *, snapshot: bool
    ) -> list[Judged | None]:
        """The scores of results, each over its tree; None where its query has no ranking."""
        asked = [query in self._queries for query in results.query.tolist()]
        if not any(asked):
            return [None] * len(results)
        # A snapshot scores all results by the tuples alive now.
        instants = np.maximum(results.start, self._latest) if snapshot else results.start

        def at_instant(edge: Ints, member: Ints, rows: Ints) -> Ints:
            return fans(self._live, edge, member, instants[rows])

        joins = self._judge.joins(results, trees, self._queries, at_instant)
        chunk = _Chunk(self._corpus)
        columns = zip(
            asked,
            results.query.tolist(),
            results.members.tolist(),
            instants.tolist(),
            expires.tolist(),
            strict=True,
        )
        judged: list[Judged | None] = []
        for number, (wanted, query, members, tick, ends) in enumerate(columns):
            if not wanted:
                judged.append(None)
                continue
            ranked = self._queries[query]
            counted = partial(chunk.texts, ranked, tick)
            score = self._judge.score(ranked, trees[number], members, counted, joins[number])
            judged.append(Judged(score, tick, ends))
        return judged

    def _rows(self, slots: Ints) -> Iterator[tuple[int, Row]]:
        relations = self._live.tuples.relation
        return ((int(relations[slot]), self._known.row(slot)) for slot in slots.tolist())


class _Chunk:
    """Counts at instants, each computed once while some results are scored."""

    def __init__(self, corpus: Corpus | None) -> None:
        self._corpus = corpus
        self._texts: dict[tuple[Place, int], tuple[int, int]] = {}
        self._containing: dict[tuple[int, Place, int, int], int] = {}

    def texts(self, ranked: Ranked, tick: int, place: Place, keyword: int) -> tuple[int, int, int]:
        """How many texts of a place are alive, their characters, and how many contain a keyword."""
        assert self._corpus is not None  # noqa: S101 - there are queries
        if (place, tick) not in self._texts:
            self._texts[place, tick] = self._corpus.at(place, tick)
        count, characters = self._texts[place, tick]
        if place[1] == NAME:
            return count, characters, count
        key = id(ranked.keywords), place, keyword, tick
        if key not in self._containing:
            self._containing[key] = ranked.keywords.containing(place, keyword, tick)
        return count, characters, self._containing[key]
