"""Scores of results over windows, by the tuples of the window that a result is given with.

Texts, keywords and tuples that share a value are counted among the tuples of
that window and the static ones, when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.queries.windowed.closed import Contents
from skws.ranking.corpus import NAME, Keywords, Place, text_lengths
from skws.ranking.judging import Judged, Ranked, Scorer, TextCounts, reached
from skws.results.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.model import Schema
from skws_windows.window import FOREVER

_NONE: Final = -1
"""The length of no text."""


class WindowScoring(Scorer):
    """Scores results by the tuples of windows; has the lengths of texts, and the keywords in them, by tuple.

    Static tables are among these tuples, and tuples have their ends.
    """

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        super().__init__(schema, live, known)
        self._lengths: dict[Place, Ints] = {}  # by slot
        self._marks: dict[int, dict[Place, Ints]] = {}  # of each query, by slot: keywords as bits

    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
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
        if not self._queries:
            return
        _extend(self._lengths, self._lengths_of(rows))
        for query, ranked in self._queries.items():
            slots = bitmaps.tuple[(bitmaps.query == query) & (bitmaps.bitmap > 0)]
            _extend(self._marks[query], self._marks_of(ranked.keywords, slots, first))

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

        def inside(edge: Ints, member: Ints, rows: Ints) -> Ints:
            return self._fans(edge, member, window[rows], contents)

        def counts(number: int) -> TextCounts:
            return self._counts(contents.slots(number))

        spans = tick, np.full(len(results), FOREVER, dtype=np.int64)
        return self._scored(results, trees, spans, inside, (window, counts))

    def _counts(self, slots: Ints) -> TextCounts:
        """Counts among some tuples."""

        def texts(place: Place) -> tuple[int, int]:
            lengths = self._lengths[place][slots]
            there = lengths[lengths != _NONE]
            return len(there), int(there.sum())

        def containing(query: int, place: Place, keyword: int) -> int:
            return int((self._marks[query][place][slots] >> keyword & 1).sum())

        return TextCounts(texts, containing)

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


def _extend(columns: dict[Place, Ints], more: Mapping[Place, Ints]) -> None:
    for place, column in more.items():
        columns[place] = np.concatenate([columns[place], column])
