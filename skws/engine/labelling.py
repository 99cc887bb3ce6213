"""Which arriving tuples carry keywords of which standing queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mesh.columnar import Labelled
from mesh.columnar.columns import Ints
from skws.batches import Rows
from skws.blocks import Block
from skws.keywords import Matcher

# Arrow matches whole columns faster, but its first array loads pandas (half a second), and each has a price.
ARROW_PAYS = 20_000  # rows in all


class Labelling:
    """The keyword bitmaps of rows for each query; EXCLUDED for those that take no part."""

    def __init__(self) -> None:
        self._matchers: dict[int, Matcher] = {}
        self._matched = 0

    @classmethod
    def only(cls, query: int, matcher: Matcher) -> Labelling:
        """Of one query alone."""
        labelling = cls()
        labelling.add(query, matcher)
        return labelling

    def add(self, query: int, matcher: Matcher) -> None:
        self._matchers[query] = matcher

    def remove(self, query: int) -> None:
        del self._matchers[query]

    def of(self, rows: Rows) -> Labelled:
        """The rows with keywords, by their number."""
        places, queries, labels = [], [], []
        self._matched += len(rows)
        parts = list(rows.by_block())
        for query, matcher in self._matchers.items():
            found = self._bitmaps(matcher, rows.blocks)
            for (_, mine, at), bitmaps in zip(parts, found, strict=True):
                here = bitmaps[at]
                carrying = np.flatnonzero(here)
                places.append(mine[carrying])
                labels.append(here[carrying])
                queries.append(np.full(len(carrying), query, dtype=np.int64))
        return in_order(places, queries, labels)

    def _bitmaps(self, matcher: Matcher, blocks: Sequence[Block]) -> list[Ints]:
        if self._matched < ARROW_PAYS:
            return [_by_row(matcher, block) for block in blocks]
        searched = [matcher.schema.relations[block.relation].search_columns for block in blocks]
        parts = [
            (block.relation, [block.texts(column) for column in columns], len(block))
            for block, columns in zip(blocks, searched, strict=True)
        ]
        return [bitmaps.astype(np.int64) for bitmaps in matcher.bitmaps_of(parts)]


def _by_row(matcher: Matcher, block: Block) -> Ints:
    rows = map(block.row, range(len(block)))
    return np.array([matcher.bitmap(block.relation, row) for row in rows], dtype=np.int64)


def in_order(places: list[Ints], queries: list[Ints], labels: list[Ints]) -> Labelled:
    """Labels by tuple, then query."""
    if not places:
        return Labelled.none()
    place, query, label = map(np.concatenate, (places, queries, labels))
    order = np.lexsort((query, place))
    return Labelled(place[order], query[order], label[order])
