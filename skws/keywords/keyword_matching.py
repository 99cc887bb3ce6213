"""Matches arriving tuples with the keywords of standing queries, or with many words; finds rare keywords.

Each distinct predicate of all queries is matched once. The cost of a text is the look-up of its chunks,
whatever the number of queries; the predicates are then mapped to their queries, or to the numbers of the
words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from skws.data.batch import RecordBatch, Rows
from skws.data.blocks import Block
from skws.keywords.analysis import chunks, stems
from skws.keywords.chunk_table import PredicateMemory
from skws.keywords.keyword_query import Alternative, Condition, KeywordQuery, Slot
from skws.keywords.leaves import contains, pairs_of
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.plan import Plan
from skws.keywords.scope import satisfying
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.columnar.store import Table
from skws_schema.model import Analyzer, Schema

_QUERY_BITS = 32
_MANY: Final = 4
"""The least number of phrases for which an index of the pairs of words in a text is worthwhile."""


class PredicateTable(PredicateMemory[tuple[int, ...]]):
    """Maps chunks of text to the predicates that they satisfy; possible phrases are negative."""

    def find(self, text: str) -> Sequence[int]:
        """The predicates that a text satisfies, perhaps with duplicates."""
        predicates: list[int] = []
        for chunk in chunks(text, self._analyzer):
            hits = self[chunk]
            if hits:  # most chunks have none
                predicates += hits
        return predicates if not predicates or min(predicates) > 0 else self._with_phrases(predicates, text)

    def look_up(self, chunk: str) -> tuple[int, ...]:
        return tuple(self.satisfied(chunk))

    def _with_phrases(self, predicates: Sequence[int], text: str) -> list[int]:
        words = stems(text, self._analyzer)
        phrases = {-phrase for phrase in predicates if phrase < 0}
        pairs = pairs_of(words) if len(phrases) > _MANY else None
        return [predicate for predicate in predicates if predicate > 0] + [
            phrase for phrase in phrases if contains(words, self._phrases[phrase], text, pairs)
        ]


class PredicateTables:
    """Predicates on all texts of a schema, or on the texts of some attributes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._unscoped = PredicateTable(Analyzer.ENGLISH)
        self._column_tables: dict[tuple[int, int], PredicateTable] = {}

    def add(self, predicate: int, alternative: Alternative) -> None:
        """Add a predicate; ``predicate`` is positive."""
        for table in self._tables(alternative):
            table.add(predicate, alternative)

    def remove(self, predicate: int, alternative: Alternative) -> None:
        for table in self._tables(alternative):
            table.remove(predicate, alternative)

    def satisfied(self, block: Block, places: Ints) -> tuple[list[int], list[int]]:
        """Pairs of a predicate and the index in ``places`` of a row that satisfies it, possibly repeated."""
        predicates: list[int] = []
        numbers: list[int] = []
        for column in self._schema.relations[block.relation].search_columns:
            column_table = self._column_tables.get((block.relation, column))
            tables = [
                table
                for table in (self._unscoped, column_table)
                if table is not None and table.has_predicates
            ]
            for number, value in enumerate(block.values_at(column, places)):
                if value is not None:
                    text = value if value.__class__ is str else str(value)
                    for table in tables:
                        hits = table.find(text)
                        predicates += hits
                        numbers += [number] * len(hits)
        return predicates, numbers

    def _tables(self, alternative: Alternative) -> Iterator[PredicateTable]:
        if alternative.everywhere:
            yield self._unscoped
            return
        for relation, relation_schema in enumerate(self._schema.relations):
            for column in relation_schema.search_columns:
                if alternative.applies(relation, column):
                    scope = relation, column
                    if scope not in self._column_tables:
                        self._column_tables[scope] = PredicateTable(
                            relation_schema.attributes[column].analyzer
                        )
                    yield self._column_tables[scope]


class JointMatcher:
    """Computes the bitmaps of many queries at once; they equal those of one ``Matcher`` for each query."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._matchers: dict[int, Matcher] = {}
        self._tables = PredicateTables(schema)
        self._conditions: list[dict[Condition, int]] = [{} for _ in schema.relations]  # predicates
        self._predicates: dict[Alternative, int] = {}
        # By predicate, the pairs of a query and a bit, as keys; no predicate has the number 0.
        self._users: list[dict[tuple[int, int], None]] = [{}]
        self._free: list[int] = []  # unused predicates
        self._name_bits: list[dict[int, int]] = [{} for _ in schema.relations]
        self._excluding: Ints = np.zeros(1, dtype=np.int64)
        self._torn_bitmaps: dict[int, Ints] = {}  # by query; only queries with an order
        self._users_by_predicate: tuple[Ints, Ints, Ints] | None = None

    def add(self, query: int, matcher: Matcher) -> None:
        """Start matching a query, identified by a number."""
        self._matchers[query] = matcher
        self._users_by_predicate = None
        if matcher.torn:
            self._torn_bitmaps[query] = np.array(list(matcher.torn), dtype=np.int64)
        for bits_by_query, bits in zip(self._name_bits, matcher.names, strict=True):
            if bits:
                bits_by_query[query] = bits
        for bit, alternative in matcher.alternatives():
            predicate = self._predicates.get(alternative)
            if predicate is None:
                predicate = self._predicates[alternative] = self._unused()
                if isinstance(alternative, Condition) and alternative.relation is not None:
                    self._conditions[alternative.relation][alternative] = predicate
                self._tables.add(predicate, alternative)
            self._users[predicate][query, bit] = None

    def remove(self, query: int) -> None:
        """Stop matching a query."""
        self._users_by_predicate = None
        self._torn_bitmaps.pop(query, None)
        for bits_by_query in self._name_bits:
            bits_by_query.pop(query, None)
        for bit, alternative in dict.fromkeys(self._matchers.pop(query).alternatives()):
            predicate = self._predicates[alternative]
            del self._users[predicate][query, bit]
            if not self._users[predicate]:
                if isinstance(alternative, Condition) and alternative.relation is not None:
                    del self._conditions[alternative.relation][alternative]
                self._tables.remove(predicate, alternative)
                del self._predicates[alternative]
                self._free.append(predicate)

    def _unused(self) -> int:
        """A predicate that no query uses."""
        if self._free:
            return self._free.pop()
        self._users.append({})
        return len(self._users) - 1

    def bitmaps(self, block: Block, places: Ints) -> KeywordBitmaps:
        """The bitmaps of the rows of a block that have keywords of any query, by index in ``places``."""
        relation = block.relation
        predicate_numbers, row = self._tables.satisfied(block, places)
        rows, predicates = [np.array(row, dtype=np.int64)], [np.array(predicate_numbers, dtype=np.int64)]
        for condition, predicate in self._conditions[relation].items():
            positions = np.flatnonzero(satisfying(condition, block).take(places))
            rows.append(positions)
            predicates.append(np.full(len(positions), predicate, dtype=np.int64))
        return self._combine(relation, np.concatenate(rows), np.concatenate(predicates), len(places))

    def _combine(self, relation: int, row: Ints, predicate: Ints, rows: int) -> KeywordBitmaps:
        first, query, bit = self._users_by_predicate or self._spread_users()
        counts = first[predicate + 1] - first[predicate]
        users = np.repeat(first[predicate] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        places = [np.repeat(row, counts) << _QUERY_BITS | query[users]]
        bits = [bit[users]]
        for named_query, name_bits in self._name_bits[relation].items():
            places.append(np.arange(rows, dtype=np.int64) << _QUERY_BITS | named_query)
            bits.append(np.full(rows, name_bits, dtype=np.int64))
        return self._reduce(np.concatenate(places), np.concatenate(bits))

    def _reduce(self, places: Ints, bits: Ints) -> KeywordBitmaps:
        if not len(places):
            return KeywordBitmaps(places, places, bits)
        order = np.argsort(places, kind="stable")
        places, bits = places[order], bits[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        places, bits = places[first], np.bitwise_or.reduceat(bits, first)
        query = places & ((1 << _QUERY_BITS) - 1)
        label = np.where(bits & self._excluding[query], EXCLUDED, bits)
        for ordered_query, torn_bitmaps in self._torn_bitmaps.items():
            label[(query == ordered_query) & np.isin(bits, torn_bitmaps)] = EXCLUDED
        return KeywordBitmaps(places >> _QUERY_BITS, query, label)

    def _spread_users(self) -> tuple[Ints, Ints, Ints]:
        """The index of the first user of each predicate, and the queries and bits of all users."""
        users = self._users
        self._excluding = np.zeros(max(self._matchers, default=0) + 1, dtype=np.int64)
        for number, matcher in self._matchers.items():
            self._excluding[number] = matcher.excluding
        first = np.cumsum([0, *map(len, users)])
        query = np.array([query for predicate_users in users for query, _ in predicate_users], dtype=np.int64)
        bit = np.array([bit for predicate_users in users for _, bit in predicate_users], dtype=np.int64)
        self._users_by_predicate = first, query, bit
        return self._users_by_predicate


FEW = 4  # queries; joint matching is faster for more


class KeywordMatching:
    """The keyword bitmaps of rows for each query; EXCLUDED for excluded rows."""

    def __init__(self) -> None:
        self._matchers: dict[int, Matcher] = {}
        self._joint: JointMatcher | None = None

    @classmethod
    def only(cls, query: int, matcher: Matcher) -> KeywordMatching:
        matching = cls()
        matching.add(query, matcher)
        return matching

    def add(self, query: int, matcher: Matcher) -> None:
        self._matchers[query] = matcher
        if self._joint is not None:
            self._joint.add(query, matcher)
        elif len(self._matchers) > FEW:
            self._joint = JointMatcher(matcher.schema)
            for number, each in self._matchers.items():
                self._joint.add(number, each)

    @property
    def matchers(self) -> Mapping[int, Matcher]:
        """The matchers of the queries, by number."""
        return self._matchers

    def remove(self, query: int) -> None:
        del self._matchers[query]
        if self._joint is not None:
            self._joint.remove(query)

    def of(self, rows: Rows) -> KeywordBitmaps:
        """The keyword bitmaps of rows, by their number."""
        return self._jointly(self._joint, rows) if self._joint else self._one_by_one(rows)

    def _jointly(self, joint: JointMatcher, rows: Rows) -> KeywordBitmaps:
        positions, queries, labels = [], [], []
        for block, rows_of_block, places_in_block in rows.by_block():
            bitmaps = joint.bitmaps(block, places_in_block)
            positions.append(rows_of_block.take(bitmaps.tuple))
            queries.append(bitmaps.query)
            labels.append(bitmaps.bitmap)
        return in_order(positions, queries, labels)

    def _one_by_one(self, rows: Rows) -> KeywordBitmaps:
        places, queries, labels = [], [], []
        first = np.cumsum([0, *map(len, rows.blocks)])
        # The number of each row among all blocks: faster than block by block.
        row_numbers = first.take(rows.block) + rows.place
        for query, matcher in self._matchers.items():
            bitmaps = matcher.bitmaps_of(rows.blocks)
            row_bitmaps = (
                np.concatenate(bitmaps).take(row_numbers) if bitmaps else np.zeros(0, dtype=np.int64)
            )
            matching_rows = np.flatnonzero(row_bitmaps)
            places.append(matching_rows)
            labels.append(row_bitmaps[matching_rows].astype(np.int64))
            queries.append(np.full(len(matching_rows), query, dtype=np.int64))
        return in_order(places, queries, labels)


def in_order(places: list[Ints], queries: list[Ints], labels: list[Ints]) -> KeywordBitmaps:
    """The bitmaps, sorted by tuple, then by query."""
    if not places:
        return KeywordBitmaps.none()
    row, query, label = map(np.concatenate, (places, queries, labels))
    order = np.lexsort((query, row))
    return KeywordBitmaps(row[order], query[order], label[order])


SAMPLE = 4_096  # records: enough to show that a keyword is many times as frequent as another


def ordered_by_sample(plan: Plan, sample: RecordBatch | None) -> Plan:
    """The plan with keyword frequencies from a sample; unchanged without one, or with a single keyword."""
    if sample is None or not len(sample) or len(plan.query.slots) < 2:
        return plan
    rows = sample.rows.take(slice(0, SAMPLE))
    label = KeywordMatching.only(0, plan.matcher).of(rows).bitmap
    label = label[label != EXCLUDED]
    shares = tuple(int((label >> slot & 1).sum()) / len(rows) for slot in range(len(plan.query.slots)))
    return replace(plan, frequencies=shares)


FEW_WORDS: Final = 8
"""The most words that a ``Matcher`` finds, without analysing every text."""


class WordMatching:
    """Finds the rows that contain any of very many words, each identified by a number."""

    def __init__(self, schema: Schema) -> None:
        self._tables = PredicateTables(schema)
        self._slots: dict[int, tuple[list[int], Slot]] = {}  # by word: predicates, slot
        self._free: list[int] = []  # unused predicates
        self._words = Table((np.zeros(1, dtype=np.int64),))  # by predicate; no predicate has the number 0
        self._words.append((np.zeros(1, dtype=np.int64),))

    def add(self, words: Mapping[int, Slot]) -> None:
        """Start matching words, identified by numbers."""
        missing_count = sum(len(slot.alternatives) for slot in words.values()) - len(self._free)
        if missing_count > 0:
            first = self._words.append((np.zeros(missing_count, dtype=np.int64),))
            self._free += range(first + missing_count - 1, first - 1, -1)
        predicate_words = self._words.columns()[0]
        for word, slot in words.items():
            predicates = [self._free.pop() for _ in slot.alternatives]
            predicate_words[predicates] = word
            self._slots[word] = predicates, slot
            for predicate, alternative in zip(predicates, slot.alternatives, strict=True):
                self._tables.add(predicate, alternative)

    def remove(self, words: Iterable[int]) -> None:
        """Stop matching words."""
        for word in words:
            predicates, slot = self._slots.pop(word)
            for predicate, alternative in zip(predicates, slot.alternatives, strict=True):
                self._tables.remove(predicate, alternative)
            self._free += predicates

    def of(self, rows: Rows) -> tuple[Ints, Ints]:
        """The rows that contain words, as (number of the row, word), perhaps with duplicates."""
        rows_of, parts = [NOTHING], [NOTHING]
        for block, positions, places in rows.by_block():
            predicates, numbers = self._tables.satisfied(block, places)
            rows_of.append(positions.take(np.array(numbers, dtype=np.int64)))
            parts.append(self._words.columns()[0].take(np.array(predicates, dtype=np.int64)))
        return np.concatenate(rows_of), np.concatenate(parts)


def words_of(schema: Schema, words: Mapping[int, Slot], rows: Rows) -> tuple[Ints, Ints]:
    """``WordMatching.of`` for words that are matched only once."""
    if not words:
        return NOTHING, NOTHING
    if len(words) > FEW_WORDS:
        matching = WordMatching(schema)
        matching.add(words)
        return matching.of(rows)
    return spread(KeywordMatching.only(0, matcher_of(schema, words)).of(rows), words)


def matcher_of(schema: Schema, words: Mapping[int, Slot]) -> Matcher:
    """A matcher of at most FEW_WORDS words."""
    return Matcher(KeywordQuery("", tuple(words.values())), schema)


def spread(bitmaps: KeywordBitmaps, words: Mapping[int, Slot]) -> tuple[Ints, Ints]:
    """The bitmaps of a matcher of words, as (tuple, word)."""
    tuples, parts = [NOTHING], [NOTHING]
    for bit, word in enumerate(words):
        matching_rows = np.flatnonzero(bitmaps.bitmap >> bit & 1)
        tuples.append(bitmaps.tuple.take(matching_rows))
        parts.append(np.full(len(matching_rows), word, dtype=np.int64))
    return np.concatenate(tuples), np.concatenate(parts)
