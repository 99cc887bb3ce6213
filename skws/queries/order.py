"""Where a stream stands: what of a micro-batch comes too late, and which records are next in order.

Records of relations that have gone still had their positions, and moved time
on: a log that holds them is counted as it was when they came.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np

from skws.data.batch import RecordBatch, together
from skws.data.record import OnLate, Record, unheard
from skws.queries.evaluator import Counts, OrderedBatch
from skws.queries.keywords.stream_order import StreamOrder
from skws.spec.stream import Stream

PASSED_OVER: Final = -1
"""Instead of the relation of a record that counts no longer, but for the positions of others."""


class Order:
    """Sorts by time, within a micro-batch and, with a lateness, across them; under a count window nothing.

    ``position``: of the next insertion that is not late. ``now``: how far
    ticks have come. ``latest``: the latest event time, None before any. ``counts``: of records that came.
    """

    def __init__(self, stream: Stream, on_late: OnLate = unheard) -> None:
        self._by_count = stream.by_count
        self._lateness = stream.lateness
        self._on_late = on_late
        self._order = StreamOrder(by_count=stream.by_count, lateness=stream.lateness, on_late=self._late)
        self.position = 0
        self.counts = Counts()
        self.latest: int | None = None
        self._waiting = RecordBatch.of(())

    @property
    def waits(self) -> bool:
        """True if records wait for their turn."""
        return len(self._waiting) > 0

    @property
    def now(self) -> int:
        return self._order.now

    @property
    def next(self) -> int:
        """The position of the next insertion in order; it may be waiting."""
        return self.position - insertions(self._waiting)

    def seek(self, position: int, now: int) -> None:
        """The stream up to here is not told, or not all of it."""
        self.position = self._order.position = position
        self._order.reach(now)

    def accepted(self, batch: RecordBatch) -> RecordBatch:
        """What is not late, sorted. To be taken in order, too, before the next batch is accepted."""
        if not len(batch):
            return batch
        if not self._by_count and (np.diff(batch.time) < 0).any():
            batch = batch.taken(np.argsort(batch.time, kind="stable"))
        batch, ticks = self._order.accepted(batch)
        if len(batch):
            latest = int(batch.time.max())
            self.latest = latest if self.latest is None else max(self.latest, latest)
            inserted = insertions(batch)
            self.position += inserted
            self.counts.tuples += inserted
            self.counts.deletions += len(batch) - inserted
            self._order.reach(int(ticks[-1]))
        return batch

    def _late(self, record: Record, reached: int) -> None:
        self.counts.late += 1
        self._on_late(record, reached)

    def pass_over(self, relations: Collection[int]) -> None:
        """What waits of some relations counts no longer, but for the positions of others."""
        self._waiting = passed_over(self._waiting, relations)

    def in_order(self, accepted: RecordBatch, *, ended: bool = False) -> OrderedBatch:
        """What is next, now that a batch was accepted; all that waits if the stream has ended.

        Records that are ``passed_over`` are counted, and left out.
        """
        if not self._lateness:
            return _counting(accepted, self.position - insertions(accepted))
        waiting = together([self._waiting, accepted])
        waiting = waiting.taken(np.argsort(waiting.time, kind="stable"))
        first = self.position - insertions(waiting)
        ready = len(waiting) if ended else int(np.searchsorted(waiting.time, self._order.horizon))
        settled, self._waiting = waiting.cut(ready)
        return _counting(settled, first)


def _counting(batch: RecordBatch, position: int) -> OrderedBatch:
    stays = batch.relation != PASSED_OVER
    if stays.all():
        return OrderedBatch(batch, position)
    inserted = ~batch.deletes()
    positions = position + np.cumsum(inserted) - inserted
    return OrderedBatch(batch.taken(np.flatnonzero(stays)), position, positions[stays])


def insertions(batch: RecordBatch) -> int:
    """How many tuples a batch brings."""
    return len(batch) - (0 if batch.delete is None else int(batch.delete.sum()))


def passed_over(batch: RecordBatch, relations: Collection[int]) -> RecordBatch:
    """The batch with the records of some relations passed over."""
    if not relations or not len(batch):
        return batch
    gone = np.isin(batch.relation, list(relations))
    return replace(batch, relation=np.where(gone, PASSED_OVER, batch.relation)) if gone.any() else batch


def counting(batch: RecordBatch) -> RecordBatch:
    """The records that are not passed over."""
    stays = batch.relation != PASSED_OVER
    return batch if stays.all() else batch.taken(np.flatnonzero(stays))
