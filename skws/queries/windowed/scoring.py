"""Scores of results over windows, by the tuples of the window that a result is given with.

Texts, keywords and tuples that share a value are counted among the tuples of
that window and the static ones, when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.queries.windowed.closed import Contents
from skws.ranking.corpus import NAME, Keywords, Place, TableTexts, text_lengths
from skws.ranking.judging import Judge, Judged, Ranked, reached
from skws.results.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER

_NONE: Final = -1
"""The length of no text."""


class WindowScoring:
    """Scores the results of an operator. It has the lengths of texts, and the keywords in them, by tuple."""

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        self._schema = schema
        self._live = live
        self._known = known
        self._judge = Judge(schema, live, known)
        self._queries: dict[int, Ranked] = {}
        self._lengths: dict[Place, Ints] = {}  # by slot
        self._marks: dict[int, dict[Place, Ints]] = {}  # of each query, by slot: keywords as bits

    def __len__(self) -> int:
        """The number of queries with a ranking."""
        return len(self._queries)

    def __contains__(self, query: int) -> bool:
        return query in self._queries

    def tables(self, tables: Mapping[int, TableTexts]) -> None:
        """Ignored: windows have whole tables among their tuples."""

    def count_rows(self, query: int, relation: int, rows: list[Row]) -> None:
        """Ignored: windows have whole tables among their tuples."""

    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        """Score the results of a query if its plan asks for it; ``bitmaps`` are those of live tuples."""
        ranked = Ranked.of(plan)
        if ranked is None:
            return
        if not self._queries:
            self._lengths = self._lengths_of(self._known.rows)
        self._queries[query] = ranked
        self._marks[query] = self._marks_of(ranked.keywords, bitmaps.tuple[bitmaps.bitmap > 0], 0)

    def remove(self, query: int) -> None:
        self._queries.pop(query, None)
        self._marks.pop(query, None)

    def arrived(self, first: int, rows: Rows, bitmaps: KeywordBitmaps) -> None:
        """Tuples were inserted from slot ``first`` on; ``bitmaps`` by slot."""
        if not self._queries:
            return
        _extend(self._lengths, self._lengths_of(rows))
        for query, ranked in self._queries.items():
            slots = bitmaps.tuple[(bitmaps.query == query) & (bitmaps.bitmap > 0)]
            _extend(self._marks[query], self._marks_of(ranked.keywords, slots, first))

    def ended(self, slots: Ints, ticks: Ints) -> None:
        """Ignored: the tuples have their ends."""

    def forget(self, horizon: int) -> None:
        """Ignored: purged tuples go when slots are renumbered."""

    def renumber(self, slots: Ints) -> None:
        """Tuples get new slots; those below 0 are dropped."""
        kept = np.flatnonzero(slots >= 0)
        for columns in (self._lengths, *self._marks.values()):
            for place, column in columns.items():
                columns[place] = np.empty(len(kept), dtype=np.int64)
                columns[place][slots[kept]] = column[kept]

    def of(
        self,
        results: Partials,
        trees: list[Tree],
        expires: Ints,  # noqa: ARG002 - protocol
        *,
        snapshot: bool,  # noqa: ARG002
    ) -> list[Judged | None]:
        """The scores of results of static tuples alone."""
        static = Contents.of_static(self._live.tuples)
        window = np.zeros(len(results), dtype=np.int64)
        return self.over(results, trees, window, np.full(len(results), ALWAYS), static)

    def over(
        self, results: Partials, trees: list[Tree], window: Ints, tick: Ints, contents: Contents
    ) -> list[Judged | None]:
        """The scores of results, each with its tree, its tick, and the number of its window."""
        counted: dict[int, _Counts] = {}

        def inside(edge: Ints, member: Ints, rows: Ints) -> Ints:
            return self._fans(edge, member, window[rows], contents)

        joins = self._judge.joins(results, trees, self._queries, inside)
        columns = zip(
            results.query.tolist(), results.members.tolist(), window.tolist(), tick.tolist(), strict=True
        )
        judged: list[Judged | None] = []
        for number, (query, members, of, at) in enumerate(columns):
            ranked = self._queries.get(query)
            if ranked is None:
                judged.append(None)
                continue
            if of not in counted:
                counted[of] = _Counts(contents.slots(of), self._lengths, self._marks)
            count = partial(counted[of].texts, query)
            score = self._judge.score(ranked, trees[number], members, count, joins[number])
            judged.append(Judged(score, at, FOREVER))
        return judged

    def _fans(self, edge: Ints, member: Ints, window: Ints, contents: Contents) -> Ints:
        """The number of tuples of a window that each edge leads to; each value is counted once a window."""
        counts = np.zeros(len(edge), dtype=np.int64)
        known, hashes = self._live.wanted(edge, member)
        asked = np.flatnonzero(known)
        pairs = np.stack([hashes.astype(np.int64), window[asked]], axis=1)
        _, first, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        one = asked[first]
        if len(one):
            position, slot = reached(self._live, edge[one], member[one])
            held = contents.hold(slot, window[one][position])
            counts[asked] = np.bincount(position[held], minlength=len(one))[which.reshape(-1)]
        return counts

    def _lengths_of(self, rows: Rows) -> dict[Place, Ints]:
        found = {
            (relation, column): np.full(len(rows), _NONE, dtype=np.int64)
            for relation, described in enumerate(self._schema.relations)
            for column in (*described.search_columns, NAME)
        }
        for place, mine, lengths in text_lengths(self._schema, rows):
            found[place][mine] = lengths
        return found

    def _marks_of(self, keywords: Keywords, slots: Ints, first: int) -> dict[Place, Ints]:
        """The keywords in the texts of some slots, by slot from ``first`` on."""
        size = len(self._live) - first
        found = {place: np.zeros(size, dtype=np.int64) for place in self._lengths}
        relations = self._live.tuples.relation
        for slot in slots.tolist():
            relation, row = int(relations[slot]), self._known.row(slot)
            for column in self._schema.relations[relation].search_columns:
                if row[column] is not None:
                    counts = keywords.occurrences(relation, column, str(row[column]))
                    mark = sum(1 << number for number, count in enumerate(counts) if count)
                    found[relation, column][slot - first] = mark
        return found


class _Counts:
    """Counts of texts and keywords among the tuples of one window, each made once."""

    def __init__(
        self, slots: Ints, lengths: Mapping[Place, Ints], marks: Mapping[int, Mapping[Place, Ints]]
    ) -> None:
        self._slots = slots
        self._lengths = lengths
        self._marks = marks
        self._texts: dict[Place, tuple[int, int]] = {}
        self._containing: dict[tuple[int, Place, int], int] = {}

    def texts(self, query: int, place: Place, keyword: int) -> tuple[int, int, int]:
        """Of the texts of a place: their number, their characters, and the number with a keyword."""
        if place not in self._texts:
            lengths = self._lengths[place][self._slots]
            there = lengths[lengths != _NONE]
            self._texts[place] = len(there), int(there.sum())
        count, characters = self._texts[place]
        if place[1] == NAME:
            return count, characters, count
        key = query, place, keyword
        if key not in self._containing:
            marks = self._marks[query][place][self._slots]
            self._containing[key] = int((marks >> keyword & 1).sum())
        return count, characters, self._containing[key]


def _extend(columns: dict[Place, Ints], more: Mapping[Place, Ints]) -> None:
    for place, column in more.items():
        columns[place] = np.concatenate([columns[place], column])
