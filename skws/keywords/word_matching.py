"""Which rows contain which of very many words: what keywords of queries ask of a tuple, each a number.

Each text is looked up once, in time that does not grow with the number of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from skws.data.batch import Rows
from skws.keywords.keyword_matching import KeywordMatching, PredicateTables
from skws.keywords.match import Matcher
from skws.keywords.query import KeywordQuery, Slot
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.columnar.store import Table
from skws_schema.model import Schema

FEW: Final = 8
"""Words that are looked for without analysing every text."""


class WordMatching:
    def __init__(self, schema: Schema) -> None:
        self._tables = PredicateTables(schema)
        self._slots: dict[int, tuple[int, Slot]] = {}  # by word: its first predicate, and what it asks
        self._words = Table((np.zeros(1, dtype=np.int64),))  # by predicate; there is none called 0
        self._words.append((np.zeros(1, dtype=np.int64),))

    def add(self, words: Mapping[int, Slot]) -> None:
        """Look for words, called by numbers, from now on."""
        for word, slot in words.items():
            first = self._words.size
            self._words.append((np.full(len(slot.alternatives), word, dtype=np.int64),))
            self._slots[word] = first, slot
            for predicate, alternative in enumerate(slot.alternatives, first):
                self._tables.add(predicate, alternative)

    def remove(self, words: Iterable[int]) -> None:
        """Look for words no longer."""
        for word in words:
            first, slot = self._slots.pop(word)
            for predicate, alternative in enumerate(slot.alternatives, first):
                self._tables.remove(predicate, alternative)

    def of(self, rows: Rows) -> tuple[Ints, Ints]:
        """The rows that contain words, as (number of the row, word); a pair may be given several times."""
        found, parts = [NOTHING], [NOTHING]
        for block, mine, at in rows.by_block():
            predicates, places = (np.array(each, dtype=np.int64) for each in self._tables.satisfied(block))
            # Rows that are not asked for belong to another batch.
            number = np.full(len(block), -1, dtype=np.int64)
            number[at] = mine
            row = number.take(places)
            asked = row >= 0
            found.append(row[asked])
            parts.append(self._words.columns()[0].take(predicates[asked]))
        return np.concatenate(found), np.concatenate(parts)


def words_of(schema: Schema, words: Mapping[int, Slot], rows: Rows) -> tuple[Ints, Ints]:
    """As ``WordMatching.of``, for words that are looked for once."""
    if not words:
        return NOTHING, NOTHING
    if len(words) > FEW:
        matching = WordMatching(schema)
        matching.add(words)
        return matching.of(rows)
    return spread(KeywordMatching.only(0, matcher_of(schema, words)).of(rows), words)


def matcher_of(schema: Schema, words: Mapping[int, Slot]) -> Matcher:
    """A matcher of at most FEW words."""
    return Matcher(KeywordQuery("", tuple(words.values())), schema)


def spread(found: KeywordBitmaps, words: Mapping[int, Slot]) -> tuple[Ints, Ints]:
    """What a matcher of words finds, as (tuple, word)."""
    tuples, parts = [NOTHING], [NOTHING]
    for bit, word in enumerate(words):
        carrying = np.flatnonzero(found.bitmap >> bit & 1)
        tuples.append(found.tuple.take(carrying))
        parts.append(np.full(len(carrying), word, dtype=np.int64))
    return np.concatenate(tuples), np.concatenate(parts)
