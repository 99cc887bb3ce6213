"""Scores for the results that a finder finds: what comes and goes is counted, results are judged by it.

A result is judged at the instant at which it is found, by the tuples alive
then, and keeps that judgement: the same in every engine, slice and shard,
for each of them sees the whole window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mesh.columnar import Labelled, LiveTuples, Partials
from mesh.columnar.columns import Flags, Ints
from mesh.tree import Tree
from schema.model import Row, Schema
from skws.batches import Rows
from skws.engine.known import KnownTuples
from skws.plan import Plan
from skws.ranking.corpus import NAME, Corpus, Keywords, Place, TableTexts
from skws.ranking.evidence import Evidence, JoinFan, Match
from skws.ranking.fans import fans
from skws.ranking.rankings import Ranking
from skws.ranking.score import Score
from skws.results.model import Result
from windows.tuples import ALWAYS
from windows.window import MICROSECOND


class Ranked(NamedTuple):
    """A query whose results get scores."""

    plan: Plan
    ranking: Ranking
    half_life: float | None
    keywords: Keywords
    explain: bool


class Judged(NamedTuple):
    """A result's score, the tick at which it was found, and the one at which its window closes."""

    score: Score
    tick: int
    expires: int

    def told(self, result: Result) -> Result:
        return replace(result, score=self.score, tick=self.tick, expires=self.expires)


class Scoring:
    """Follows all tuples; the queries that have a ranking are added by their numbers."""

    def __init__(self, schema: Schema, live: LiveTuples, known: KnownTuples) -> None:
        self._schema = schema
        self._live = live
        self._known = known
        self._corpus: Corpus | None = None  # until a query asks
        self._queries: dict[int, Ranked] = {}
        self._latest = ALWAYS
        self._tables: Mapping[int, TableTexts] = {}

    def tables(self, tables: Mapping[int, TableTexts]) -> None:
        """By relation: tables whose rows are among the live tuples only as they are wanted."""
        self._tables = tables
        if self._corpus is not None:
            self._corpus.add_tables(tables)

    def __len__(self) -> int:
        """How many queries have a ranking."""
        return len(self._queries)

    def __contains__(self, query: int) -> bool:
        return query in self._queries

    def add(self, query: int, plan: Plan, labelled: Labelled) -> None:
        """Judge the results of a query, if its plan asks for it; ``labelled`` are the tuples there."""
        if plan.ranking is None:
            return
        tuples = self._live.tuples
        if self._corpus is None:
            self._corpus = Corpus(self._schema)
            self._corpus.add_tables(self._tables)
            self._corpus.add(self._known.rows, tuples.start, tuples.end)
            self._latest = int(tuples.start.max(initial=ALWAYS))
        choice = plan.ranking
        ranked = Ranked(plan, choice.ranking, choice.fading(plan.window), Keywords(plan), choice.explain)
        self._queries[query] = ranked
        slots = labelled.tuple[labelled.label > 0]
        ranked.keywords.add(self._rows(slots), tuples.start[slots], tuples.end[slots])

    def remove(self, query: int) -> None:
        self._queries.pop(query, None)
        if not self._queries:
            self._corpus = None

    def arrived(self, first: int, rows: Rows, labelled: Labelled) -> None:
        """The tuples from slot ``first`` on just came; ``labelled`` by slot."""
        if self._corpus is None:
            return
        start, end = self._live.tuples.start, self._live.tuples.end
        self._corpus.add(rows, start[first:], end[first:])
        self._latest = max(self._latest, int(start[first:].max(initial=ALWAYS)))
        for query, ranked in self._queries.items():
            slots = labelled.tuple[(labelled.query == query) & (labelled.label > 0)]
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
        """Nothing before ``horizon`` is found any more."""
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
        # A snapshot shows what is alive now, whenever it was found.
        instants = np.maximum(results.start, self._latest) if snapshot else results.start
        joins = self._joins(results, trees, instants, np.array(asked))
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
            score = self._score(self._queries[query], trees[number], members, tick, joins[number], chunk)
            judged.append(Judged(score, tick, ends))
        return judged

    def _score(
        self,
        ranked: Ranked,
        tree: Tree,
        members: list[int],
        tick: int,
        joins: tuple[JoinFan, ...],
        chunk: _Chunk,
    ) -> Score:
        slots = [slot for slot in members if slot >= 0]
        times = [int(self._known.times[slot]) for slot in slots if self._live.tuple_in(slot)[1] != ALWAYS]
        newest = max(times, default=None)
        evidence = Evidence(
            tuple(self._matches(ranked, tree, slots, tick, chunk)),
            len(slots),
            tuple(sorted((newest - time) / MICROSECOND for time in times)) if newest is not None else (),
            joins,
            ranked.half_life,
        )
        parts = ranked.ranking.parts(evidence)
        found = None if newest is None else newest / MICROSECOND
        return Score(parts, found, ranked.half_life, explained=ranked.explain)

    def _matches(
        self, ranked: Ranked, tree: Tree, slots: list[int], tick: int, chunk: _Chunk
    ) -> Iterator[Match]:
        """In an order that does not depend on how the tree is rooted."""
        found: list[tuple[int, str, Place, int, int]] = []
        for node, slot in enumerate(slots):
            if tree.keywords[node]:
                found += self._in_tuple(ranked, tree.relations[node], slot, tree.keywords[node])
        for keyword, name, place, count, length in sorted(found):
            texts, characters, containing = chunk.texts(ranked, place, keyword, tick)
            relation, column = place
            described = self._schema.relations[relation]
            yield Match(
                ranked.plan.keywords[keyword],
                name,
                "relation's name" if column == NAME else described.attributes[column].name,
                count,
                length,
                texts,
                containing,
                characters / texts if texts else 0.0,
            )

    def _in_tuple(
        self, ranked: Ranked, relation: int, slot: int, bitmap: int
    ) -> Iterator[tuple[int, str, Place, int, int]]:
        """Keyword, tuple, place, occurrences and length for each keyword in each attribute of a tuple."""
        row, name = self._known.row(slot), self._known.name(slot).id
        carried = [keyword for keyword in range(len(ranked.plan.keywords)) if bitmap >> keyword & 1]
        for column in self._schema.relations[relation].search_columns:
            if row[column] is not None:
                text = str(row[column])
                counts = ranked.keywords.occurrences(relation, column, text)
                yield from ((k, name, (relation, column), counts[k], len(text)) for k in carried if counts[k])
        named = ranked.plan.matcher.named(relation)
        yield from ((k, name, (relation, NAME), 1, 0) for k in carried if named >> k & 1)

    def _joins(
        self, results: Partials, trees: list[Tree], instants: Ints, asked: Flags
    ) -> list[tuple[JoinFan, ...]]:
        """The joins of each result, busier side counted; empty where no ranking asks."""
        wanted = [
            number
            for number, query in enumerate(results.query.tolist())
            if asked[number] and self._queries[query].ranking.uses_joins
        ]
        steps = [(number, node) for number in wanted for node in range(1, len(trees[number].edges))]
        found: list[list[JoinFan]] = [[] for _ in trees]
        if steps:
            rows, nodes = np.array(steps, dtype=np.int64).T
            edge = np.array([trees[number].edges[node] for number, node in steps], dtype=np.int64)
            above = np.array([trees[number].parents[node] for number, node in steps], dtype=np.int64)
            members, at = results.members, instants[rows]
            out = fans(self._live, edge, members[rows, above], at)
            back = fans(self._live, edge ^ 1, members[rows, nodes], at)
            for (number, _), join, count in zip(steps, edge // 2, np.maximum(out, back), strict=True):
                found[number].append(JoinFan(self._schema.joins[join].name, int(count)))
        return [tuple(sorted(each, key=lambda fan: (fan.name, fan.tuples))) for each in found]

    def _rows(self, slots: Ints) -> Iterator[tuple[int, Row]]:
        relations = self._live.tuples.relation
        return ((int(relations[slot]), self._known.row(slot)) for slot in slots.tolist())


class _Chunk:
    """Counts at instants, asked for once each while some results are judged."""

    def __init__(self, corpus: Corpus | None) -> None:
        self._corpus = corpus
        self._texts: dict[tuple[Place, int], tuple[int, int]] = {}
        self._containing: dict[tuple[int, Place, int, int], int] = {}

    def texts(self, ranked: Ranked, place: Place, keyword: int, tick: int) -> tuple[int, int, int]:
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
