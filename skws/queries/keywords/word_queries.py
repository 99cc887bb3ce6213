"""Queries that delta joins answer: their words, and the conditions that exclude tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from skws.data.batch import Rows
from skws.keywords.keyword_matching import FEW_WORDS, WordMatching, matcher_of, spread, words_of
from skws.keywords.keyword_query import Alternative, Condition, Slot
from skws.keywords.plan import Plan
from skws.keywords.scope import satisfied
from skws.queries.keywords.live_words import LiveWords
from skws.queries.keywords.meshes import MeshTenant
from skws.spec.enums import EvaluatorName
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import InsertedTuples, LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.delta.joins import DeltaJoins, WordSearch
from skws_schema.model import Row, Schema, sourced

MANY: Final = 250
"""The number of queries from which delta joins are faster than a mesh for each shape."""


def why_no_delta_joins(plan: Plan) -> str:
    """Why delta joins cannot answer a plan; empty if they can."""
    return next((reason for holds, reason in _REASONS if holds(plan)), "")


_REASONS: Final[tuple[tuple[Callable[[Plan], bool], str], ...]] = (
    (lambda plan: bool(plan.query.sequence), "the order of its keywords matters"),
    (lambda plan: plan.query.match_names, "its keywords may be names in the schema"),
    (lambda plan: plan.ranking is not None, "its results have scores"),
    (
        lambda plan: plan.evaluated_by == EvaluatorName.MESH or plan.mesh is not None,
        "the mesh was requested",
    ),
    (
        lambda plan: any(
            isinstance(each, Condition) for slot in plan.query.slots for each in slot.alternatives
        ),
        "many tuples satisfy a condition used as a keyword",
    ),
    (lambda plan: bool(sourced(plan.schema)), "its schema has tables with their own source"),
)


Word: TypeAlias = frozenset[Alternative]
_SLOTS: Final = 4


@dataclass(slots=True)
class SharedWord:
    """A word of queries, and the number of queries that use it.

    ``slots``: some of the slots that use it, for a fast look-up: queries share most of their slots.
    """

    word: Word
    number: int
    users: int = 0
    slots: list[Slot] = field(default_factory=list)


class WordSearches:
    """Queries by number, their words, and the delta joins that answer them.

    ``row``: the live rows, by slot. Conditions are only evaluated for the tuples of results: each condition
    would exclude most of all tuples, once for each query that has it.
    """

    def __init__(self, live: LiveTuples, schema: Schema, row: Callable[[int], Row]) -> None:
        self.queries: dict[int, MeshTenant] = {}
        self.joins = DeltaJoins(live, schema)
        self._conditions: dict[int, list[Condition]] = {}  # the conditions that exclude tuples, by query
        self._live = live
        self._schema = schema
        self._row = row
        self._matching = WordMatching(schema)
        self._words: dict[Word, SharedWord] = {}
        self._by_slot: dict[int, SharedWord] = {}  # by the identity of slots: words are long to hash
        self._next = 0

    def __len__(self) -> int:
        return len(self.queries)

    def add(self, plans: Mapping[int, Plan], rows: Rows, index: LiveWords) -> Partials:
        """Add queries, given the live rows by slot; returns their live results.

        ``index``: the words of the first live rows.
        """
        new_words: dict[int, Slot] = {}
        self.joins.ask({number: self._word_search(plan, new_words) for number, plan in plans.items()})
        self._matching.add(new_words)
        for number, plan in plans.items():
            self.queries[number] = MeshTenant(self.joins, plan)
            exclusions = (each for slot in plan.query.exclusions for each in slot.alternatives)
            if conditions := [each for each in exclusions if isinstance(each, Condition)]:
                self._conditions[number] = conditions
        return self._without_excluded(
            self.joins.add(plans, _labels(*self._tuples_with(new_words, rows, index)))
        )

    def _tuples_with(self, new_words: Mapping[int, Slot], rows: Rows, index: LiveWords) -> tuple[Ints, Ints]:
        """The live tuples with new words: by the index, and by the texts that it does not cover."""
        if not 0 < len(new_words) <= FEW_WORDS:
            return words_of(self._schema, new_words, rows)
        slots, words = spread(index.label(0, matcher_of(self._schema, new_words)).bitmaps, new_words)
        if index.covered == len(rows):
            return slots, words
        later_slots, later_words = words_of(self._schema, new_words, rows.take(slice(index.covered, None)))
        return np.concatenate([slots, later_slots + index.covered]), np.concatenate([words, later_words])

    def remove(self, query: int) -> None:
        """Stop answering a query."""
        plan = self.queries.pop(query).plan
        self._conditions.pop(query, None)
        self.joins.remove(query)
        unused = []
        for slot in (*plan.query.slots, *_of_words(plan.query.exclusions)):
            word = self._words[frozenset(slot.alternatives)]
            word.users -= 1
            if not word.users:
                del self._words[word.word]
                for each in word.slots:
                    del self._by_slot[id(each)]
                unused.append(word.number)
        self._matching.remove(unused)
        self.joins.forget(unused)

    def insert(self, inserted: InsertedTuples, rows: Rows) -> tuple[Partials, int]:
        """Add new live tuples with these rows; returns the results that they complete.

        Also returns the number of pairs of a tuple and a query that excludes it.
        """
        labels = self.labels(rows).offset_by(inserted.first)
        return self._without_excluded(self.joins.insert(inserted, labels)), self.joins.exclusions(labels)

    def labels(self, rows: Rows) -> KeywordBitmaps:
        """The words of rows, by their number, that queries ask for."""
        return _labels(*self._matching.of(rows))

    def load(self, labels: KeywordBitmaps) -> Iterator[Partials]:
        """As ``skws_mesh.backend.Mesh.load``, given the words of all live tuples."""
        return map(self._without_excluded, self.joins.load(labels))

    def _without_excluded(self, partials: Partials) -> Partials:
        """Drop results with tuples that conditions of their queries exclude."""
        if not self._conditions or not len(partials):
            return partials
        relation = self._live.tuples.relation
        rows: dict[int, Row] = {}
        flags = np.ones(len(partials), dtype=bool)
        has_conditions = np.isin(partials.query, np.array(sorted(self._conditions), dtype=np.int64))
        for position in np.flatnonzero(has_conditions).tolist():
            conditions = self._conditions[int(partials.query[position])]
            for slot in partials.members[position][partials.members[position] != NO_MEMBER].tolist():
                tuple_conditions = [each for each in conditions if each.relation == relation[slot]]
                if tuple_conditions and slot not in rows:
                    rows[slot] = self._row(slot)
                flags[position] &= not any(satisfied(each, rows[slot]) for each in tuple_conditions)
        return partials if flags.all() else partials.take(flags)

    def _word_search(self, plan: Plan, new_words: dict[int, Slot]) -> WordSearch:
        query = plan.query
        words = tuple(self._word(slot, new_words) for slot in query.slots)
        exclusions = tuple(self._word(slot, new_words) for slot in _of_words(query.exclusions))
        return WordSearch(words, plan.max_size, exclusions, query.without, query.without_joins)

    def _word(self, slot: Slot, new_words: dict[int, Slot]) -> int:
        word = self._by_slot.get(id(slot)) or self._query_word(slot, new_words)
        word.users += 1
        return word.number

    def _query_word(self, slot: Slot, new_words: dict[int, Slot]) -> SharedWord:
        word = frozenset(slot.alternatives)
        entry = self._words.get(word)
        if entry is None:
            entry = self._words[word] = SharedWord(word, self._next)
            self._next += 1
            new_words[entry.number] = slot
        if len(entry.slots) < _SLOTS:
            entry.slots.append(slot)
            self._by_slot[id(slot)] = entry
        return entry


def _of_words(exclusions: Sequence[Slot]) -> Iterator[Slot]:
    """The exclusions reduced to their words, without conditions."""
    for slot in exclusions:
        words = tuple(each for each in slot.alternatives if not isinstance(each, Condition))
        if words:
            yield slot if len(words) == len(slot.alternatives) else replace(slot, alternatives=words)


def _labels(slots: Ints, words: Ints) -> KeywordBitmaps:
    """The labels of tuples for delta joins, from their words."""
    return KeywordBitmaps(slots, words, np.ones(len(slots), dtype=np.int64))
