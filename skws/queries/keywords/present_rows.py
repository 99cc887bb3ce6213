"""The live rows for display: their number by keyword, lists of them, and their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from skws.keywords.match import Matcher
from skws.keywords.suggest import Vocabulary
from skws.queries.keywords.live_words import LiveWords
from skws.store.live_store import LiveStore
from skws_mesh.columnar.columns import Flags, Ints
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Row

_BITMAP: Final = 1 << 33


class PresentRows:
    """The tuples of a store that are alive at a tick. They must not change while this is used.

    ``words``: their index, which indexes missing rows. ``since``: rows with earlier event times, in
    microseconds, are left out, except for rows of tables. All calls raise TimeLimitError.
    """

    def __init__(self, store: LiveStore, words: LiveWords, now: int, since: int | None = None) -> None:
        self._store = store
        self._words = words
        tuples = store.live.tuples
        self._alive: Flags = tuples.end > now
        if since is not None:
            self._alive &= (store.directory.times >= since) | (tuples.start == ALWAYS)
        self._relation: Ints = tuples.relation

    def __len__(self) -> int:
        return int(np.count_nonzero(self._alive))

    def counts(self) -> Mapping[int, int]:
        """The number of rows of each relation that has any, by its position in the schema."""
        relations, counts = np.unique(self._relation[self._alive], return_counts=True)
        return dict(zip(relations.tolist(), counts.tolist(), strict=True))

    def keyword_counts(self, matcher: Matcher) -> Mapping[tuple[int, int], int]:
        """The number of rows by relation and keyword bitmap: the nodes of the expanded schema."""
        self._learn()
        bitmaps = self._words.label(0, matcher).bitmaps
        bitmaps = bitmaps.take(self._alive.take(bitmaps.tuple) & (bitmaps.bitmap != 0))
        nodes = self._relation.take(bitmaps.tuple) * _BITMAP + bitmaps.bitmap + 1
        codes, counts = np.unique(nodes, return_counts=True)
        keyword_nodes = {
            (code // _BITMAP, code % _BITMAP - 1): count
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        }
        free_counts = dict(self.counts())
        for (relation, _), count in keyword_nodes.items():
            free_counts[relation] -= count
        return keyword_nodes | {(relation, 0): count for relation, count in free_counts.items() if count}

    def latest(self, relation: int, most: int) -> list[Row]:
        """The latest rows of a relation, oldest first."""
        slots = np.flatnonzero(self._alive & (self._relation == relation))[-most:]
        return list(self._store.directory.some_rows(slots))

    def vocabulary(self) -> Vocabulary:
        """The most frequent words, including those of rows that died recently."""
        self._learn()
        return self._words.vocabulary()

    def completions(self, start: str, most: int) -> list[tuple[str, int]]:
        """The words that begin with a folded text and occur in the most rows, with their number."""
        self._learn()
        return self._words.completions(start, most, self._alive.take)

    def _learn(self) -> None:
        self._words.catch_up(len(self._store))
