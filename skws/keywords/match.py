"""The keyword bitmap of a tuple (S-KWS paper, Section 4), and the spans of keywords in a text.

Bitmaps are computed row by row or by whole columns, for batch and stream alike. Every searched column has a
table from its words to bits of the query. This module combines them, with exclusions and with keywords in
names of relations and attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from operator import or_
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from skws.data.blocks import Block
from skws.data.texts import Column
from skws.keywords.analysis import Token, analyse, placed_chunks, tokens
from skws.keywords.chunk_table import Bitmaps, ChunkTable, Numbered
from skws.keywords.keyword_query import Alternative, Condition, KeywordQuery, Phrase, Slot
from skws.keywords.leaves import runs, satisfies
from skws.keywords.scope import satisfied, satisfying, text_satisfies
from skws_schema.model import Analyzer, Row, Schema

EXCLUDED: Final = -1
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Matcher:
    """Computes the keyword bitmaps of tuples for a query. Pickled as its query and schema.

    ``excluding``: the bit that exclusions set. ``torn``: the bitmaps that violate the order of keywords,
    and so exclude a tuple. ``names``: the bits that the names of each relation and of its attributes set.
    """

    def __init__(self, query: KeywordQuery, schema: Schema) -> None:
        self.query = query
        self.schema = schema
        self.excluding = 1 << len(query.slots)
        all_bitmaps = range(1 << len(query.slots)) if query.sequence else ()
        self.torn = frozenset(bits for bits in all_bitmaps if not query.sequence.allows(bits))
        # Columns with the same alternatives share a table and its cache.
        table = cache(ChunkTable)
        self._columns = tuple(
            tuple(
                (column, table(self._numbered(relation, column), relation_schema.attributes[column].analyzer))
                for column in relation_schema.search_columns
            )
            for relation, relation_schema in enumerate(schema.relations)
        )
        self._conditions = tuple(
            tuple(
                (bit, each)
                for bit, each in self.alternatives()
                if isinstance(each, Condition) and each.relation == relation
            )
            for relation in range(len(schema.relations))
        )
        names = table(self._unscoped(), Analyzer.ENGLISH)
        self.names = tuple(
            reduce(or_, map(names.find, _heading(schema, relation)))
            if query.match_names and relation not in query.without
            else 0
            for relation in range(len(schema.relations))
        )

    def __reduce__(self) -> tuple[type[Matcher], tuple[KeywordQuery, Schema]]:
        return Matcher, (self.query, self.schema)

    def bitmap(self, relation: int, row: Row) -> int:
        """The slots that a row of a relation (its position in the schema) satisfies; -1 if it is excluded."""
        bits = self._bits(relation, row)
        return EXCLUDED if bits & self.excluding or bits in self.torn else bits

    def slots(self, relation: int, row: Row) -> int:
        """The slots that a row satisfies, also if it is excluded."""
        return self._bits(relation, row) & (self.excluding - 1)

    def _bits(self, relation: int, row: Row) -> int:
        bits = self.names[relation]
        for column, table in self._columns[relation]:
            value = row[column]
            if value is not None:
                bits |= table.find(value if value.__class__ is str else str(value))
        for bit, condition in self._conditions[relation]:
            if satisfied(condition, row):
                bits |= bit
        return bits

    def bitmaps_of(self, blocks: Sequence[Block]) -> list[Bitmaps]:
        """The bitmap of each row of some blocks; columns with the same alternatives are searched together."""
        bitmaps_by_block: list[Bitmaps] = [
            np.full(len(block), self.names[block.relation], np.int16) for block in blocks
        ]
        by_table: dict[int, tuple[ChunkTable, list[tuple[Column, Bitmaps]]]] = {}
        for block, bitmaps in zip(blocks, bitmaps_by_block, strict=True):
            for column, table in self._columns[block.relation]:
                by_table.setdefault(id(table), (table, []))[1].append((block.texts(column), bitmaps))
        for table, parts in by_table.values():
            table.find_in(parts)
        for block, bitmaps in zip(blocks, bitmaps_by_block, strict=True):
            for bit, condition in self._conditions[block.relation]:
                bitmaps[satisfying(condition, block)] |= bit
            self.settle(bitmaps)
        return bitmaps_by_block

    def settle(self, bitmaps: npt.NDArray[Any]) -> None:
        """Set the bitmaps of excluded tuples to EXCLUDED."""
        bitmaps[(bitmaps & self.excluding) != 0] = EXCLUDED
        if self.torn:
            bitmaps[np.isin(bitmaps, list(self.torn))] = EXCLUDED

    def searchable(self, relation: int) -> int:
        """The slots that some tuple of the relation could satisfy."""
        bits = self.names[relation]
        for _, table in self._columns[relation]:
            bits |= table.possible
        for bit, _ in self._conditions[relation]:
            bits |= bit
        return bits & (self.excluding - 1)

    def _numbered(self, relation: int, column: int) -> Numbered:
        """The alternatives that values of one column can satisfy."""
        return tuple(pair for pair in self.alternatives() if pair[1].applies(relation, column))

    def _unscoped(self) -> Numbered:
        """The alternatives that names in the schema can satisfy; exclusions apply only to content."""
        return tuple(
            (bit, alternative)
            for bit, alternative in self.alternatives()
            if bit != self.excluding
            and alternative.scope is None
            and alternative.analyzer is Analyzer.ENGLISH
        )

    def alternatives(self) -> Iterator[tuple[int, Alternative]]:
        """All alternatives for texts and values, each with the bit it sets."""
        bits = [(1 << i, slot) for i, slot in enumerate(self.query.slots)]
        bits += [(self.excluding, slot) for slot in self.query.exclusions]
        return ((bit, alternative) for bit, slot in bits for alternative in slot.alternatives)


def _heading(schema: Schema, relation: int) -> Iterator[str]:
    """The names that a keyword can match: of a relation, and of those of its attributes that hold facts.

    Facts are attributes that are not searched, do not identify rows, and are not references.
    """
    relation_schema = schema.relations[relation]
    reference_names = {
        attribute
        for join in schema.joins
        for on in join.on
        for name, attribute in zip((join.left, join.right), on, strict=True)
        if name == relation_schema.name
    }
    facts = (
        each.name
        for column, each in enumerate(relation_schema.attributes)
        if column not in relation_schema.search_columns
        and each.name not in reference_names.union(relation_schema.key)
    )
    for name in (relation_schema.name, *facts):
        yield name
        yield _CAMEL.sub(" ", name)


Span = tuple[int, int, int]


def highlight(query: KeywordQuery, schema: Schema, relation: str, attribute: str, text: str) -> list[Span]:
    """Spans (start, end, slot) of the keywords in an attribute's value, sorted and without overlaps.

    Offsets are in characters. If spans overlap, the first is used, or the longest of several that begin
    together. A value that satisfies a condition of the query is one span. Empty if the relation or the
    attribute was removed from the schema.
    """
    position = schema.index.get(relation)
    if position is None or attribute not in schema.relations[position].columns:
        return []
    column = schema.relations[position].columns[attribute]
    definition = schema.relations[position].attributes[column]
    spans = [
        (0, len(text), number)
        for number, slot in enumerate(query.slots)
        for each in slot.alternatives
        if isinstance(each, Condition) and each.relation == position
        if text_satisfies(each, column, definition.type, text)
    ]
    if column not in schema.relations[position].search_columns:
        return _without_overlaps(spans)
    alternatives = [
        (number, alternative)
        for number, slot in enumerate(query.slots)
        for alternative in slot.alternatives
        if alternative.applies(position, column)
    ]
    phrases = [(number, phrase) for number, phrase in alternatives if isinstance(phrase, Phrase)]
    if phrases:
        words = list(tokens(text, definition.analyzer))
        spans += [(*span, number) for number, phrase in phrases for span in runs(words, phrase, text)]
    spans += _word_spans(alternatives, text, definition.analyzer)
    return _without_overlaps(spans)


def _word_spans(
    alternatives: Sequence[tuple[int, Alternative]], text: str, analyzer: Analyzer
) -> Iterator[Span]:
    """The spans of single words; each distinct chunk of the text is compared once."""
    spans_by_chunk: dict[str, list[Span]] = {}
    for offset, chunk in placed_chunks(text, analyzer):
        if chunk not in spans_by_chunk:
            spans_by_chunk[chunk] = [
                (token.start, token.end, number)
                for token in analyse(chunk, analyzer).tokens
                for number, alternative in alternatives
                if not isinstance(alternative, Condition | Phrase) and satisfies(token, alternative)
            ]
        yield from ((start + offset, end + offset, n) for start, end, n in spans_by_chunk[chunk])


def occurrences(slot: Slot, relation: int, column: int, text: str) -> int:
    """The number of occurrences of a slot's words, phrases and prefixes in a value; 0 outside its scope."""
    alternatives = [each for each in slot.alternatives if each.applies(relation, column)]
    if not alternatives:
        return 0
    words = list(tokens(text, alternatives[0].analyzer))
    return len({start for alternative in alternatives for start, _ in _spans(alternative, words, text)})


def _spans(alternative: Alternative, words: Sequence[Token], text: str) -> Iterator[tuple[int, int]]:
    match alternative:
        case Phrase():
            yield from runs(words, alternative, text)
        case Condition():
            return
        case _:
            yield from ((w.start, w.end) for w in words if satisfies(w, alternative))


def _without_overlaps(spans: list[Span]) -> list[Span]:
    disjoint: list[Span] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1], span[2])):
        if not disjoint or span[0] >= disjoint[-1][1]:
            disjoint.append(span)
    return disjoint
