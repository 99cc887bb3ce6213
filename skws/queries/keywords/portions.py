"""How many tuples are joined at a time: fewer where they lead to many results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from skws.data.batch import BATCH, RecordBatch
from skws.keywords.keyword_matching import KeywordMatching
from skws_mesh.columnar.columns import distinct

RESULTS: Final = 1 << 18
"""Of one portion, about: they are there together, as columns of integers."""
_FIRST: Final = 2048  # tuples with keywords: each can join each
_SAMPLE: Final = 128  # rows, of which the share with keywords is told


class Portions:
    """Cuts batches that are in order of time where an instant ends; results do not depend on where.

    What a portion leads to is known afterwards, so the first ones are small where many tuples carry
    keywords. ``carriers``: as many of these may be in the next one.
    """

    def __init__(self, matching: KeywordMatching) -> None:
        self._matching = matching
        self.carriers = _FIRST

    def of(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """The batch in portions; ``led_to`` is told of each before the next is taken."""
        while len(batch) > self.carriers:
            end = _end_of_instant(batch, self._most(batch))
            if end == len(batch):
                break
            portion, batch = batch.cut(end)
            yield portion
        yield batch

    def led_to(self, results: int) -> None:
        """A portion had so many results."""
        if results > RESULTS:
            self.carriers = max(1, self.carriers * RESULTS // results)
        elif 2 * results < RESULTS:
            self.carriers = min(BATCH, 2 * self.carriers)

    def _most(self, batch: RecordBatch) -> int:
        """How many records have as many tuples with keywords among them as may be."""
        if self.carriers == BATCH:
            return len(batch)
        sample = batch.rows.taken(slice(None, None, -(-len(batch) // _SAMPLE))).packed()
        carrying = len(distinct(self._matching.of(sample).tuple))
        return len(batch) if not carrying else self.carriers * len(sample) // carrying


def _end_of_instant(batch: RecordBatch, most: int) -> int:
    """The place behind the last instant that ends within ``most`` records, or else behind the first one."""
    ends = np.append(np.flatnonzero(np.diff(batch.time)) + 1, len(batch))
    return int(ends[max(0, int(np.searchsorted(ends, most, side="right")) - 1)])
