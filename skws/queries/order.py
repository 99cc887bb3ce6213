"""The order of a stream: ticks and positions of records, and which records are late or next in order.

Dropped records of removed relations still have positions and advance time, so
a log that holds them is read the same way as on arrival.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from skws.data.batch import OnLate, Record, RecordBatch, concat_batches, unheard
from skws.queries.evaluator import Counts, OrderedBatch
from skws.spec.query_spec import Stream
from skws_mesh.columnar.columns import Flags, Ints
from skws_purging.lifespans import ALWAYS
from skws_windows.window import TICKS_PER_ARRIVAL, before_arrival

PASSED_OVER: Final = -1
"""The relation of a dropped record that still occupies a position."""


class StreamOrder:
    """Gives records ticks: microseconds, or with ``by_count`` ticks of an ``ArrivalWindow``.

    Records may lie up to ``lateness`` behind the latest one; older ones are dropped after a call of
    ``on_late``. Under a count window no record is late.

    ``final``: the time that all partitions have reached, as a reader of several partitions reports it by
    ``settle``; None before. Lateness and the horizon then depend on it, not on the latest record.
    """

    def __init__(self, *, by_count: bool, lateness: int, on_late: OnLate) -> None:
        self.now = ALWAYS
        self._by_count = by_count
        self._lateness = 0 if by_count else lateness
        self._on_late = on_late
        self.position = 0  # of the next insertion
        self.final: int | None = None

    @property
    def horizon(self) -> int:
        """The tick before which no record comes any more."""
        return (self.now if self.final is None else min(self.now, self.final)) - self._lateness

    def settle(self, final: int) -> None:
        """All partitions have reached ``final``: earlier records only come within the lateness."""
        if not self._by_count:
            self.final = final if self.final is None else max(self.final, final)

    def awaits(self, batch: RecordBatch) -> bool:
        """True if some of the records, or of later ones, may be before ``now``."""
        if self._lateness or self.final is None:
            return bool(self._lateness)
        return self.final < self.now or bool((batch.time[1:] < batch.time[:-1]).any())

    def reach(self, tick: int) -> None:
        """Advance to ``tick``, unless time is later already."""
        self.now = max(self.now, tick)

    def at(self, time: int) -> int:
        """The tick of an event time between two records."""
        return before_arrival(self.position) if self._by_count else time

    def accepted(self, batch: RecordBatch) -> tuple[RecordBatch, Ints]:
        """The records that are not too late, in order of ticks, and their ticks."""
        if self._by_count:
            return batch, self._ticks_by_position(batch)
        batch = self._without_late(batch)
        if self._lateness or self.final is not None:
            batch = batch.take(np.argsort(batch.time, kind="stable"))
        return batch, batch.time

    def _ticks_by_position(self, batch: RecordBatch) -> Ints:
        """Ticks by position: a deletion's is between two arrivals."""
        is_deletion = batch.deletes().astype(np.int64)
        positions: Ints = self.position + np.cumsum(1 - is_deletion)
        self.position = int(positions[-1]) if len(positions) else self.position
        return TICKS_PER_ARRIVAL * (positions - 1) + is_deletion

    def sort_out(self, batch: RecordBatch) -> RecordBatch:
        """The records of a batch that are not too late, in order of arrival."""
        is_late: Flags = batch.time < self.horizon
        if self._by_count or not is_late.any():
            return batch
        for record in batch.take(np.flatnonzero(is_late)).records():
            self._on_late(record, self.horizon + self._lateness)
        return batch.take(np.flatnonzero(~is_late))

    def _without_late(self, batch: RecordBatch) -> RecordBatch:
        time = batch.time
        if (time[:1] >= self.horizon).all() and (time[1:] >= time[:-1]).all():
            return batch  # the usual case
        if self.final is None:
            latest_times = np.maximum.accumulate(np.concatenate([[self.now], time[:-1]]))
        else:
            latest_times = np.full(len(batch), self.horizon + self._lateness)
        is_late: Flags = time < latest_times[: len(batch)] - self._lateness
        if not is_late.any():
            return batch
        records = batch.take(np.flatnonzero(is_late)).records()
        for record, latest in zip(records, latest_times[: len(batch)][is_late].tolist(), strict=True):
            self._on_late(record, latest)
        return batch.take(np.flatnonzero(~is_late))


class Order:
    """Sorts micro-batches by time; with a lateness, also across them. Under a count window nothing is sorted.

    ``position``: the position of the next insertion that is not late. ``now``: the latest tick. ``latest``:
    the latest event time, None before the first record; ``settled``: the latest event time of the records
    returned in order. ``counts``: of the records so far. ``final``: see ``StreamOrder``.
    """

    def __init__(self, stream: Stream, on_late: OnLate = unheard) -> None:
        self._by_count = stream.by_count
        self._lateness = stream.lateness
        self._on_late = on_late
        self._order = StreamOrder(by_count=stream.by_count, lateness=stream.lateness, on_late=self._late)
        self.position = 0
        self.counts = Counts()
        self.latest: int | None = None
        self.settled = ALWAYS
        self._waiting = RecordBatch.of(())

    @property
    def waits(self) -> bool:
        """True if records wait for their turn."""
        return len(self._waiting) > 0

    @property
    def waiting(self) -> RecordBatch:
        """Records that wait for their turn."""
        return self._waiting

    @property
    def now(self) -> int:
        return self._order.now

    @property
    def next(self) -> int:
        """The position of the next insertion in order; it may be waiting."""
        return self.position - self._waiting.insertions

    @property
    def final(self) -> int | None:
        return self._order.final

    def settle(self, final: int) -> None:
        """As ``StreamOrder.settle``; the next call of ``in_order`` returns the records that waited for it."""
        self._order.settle(final)

    def seek(self, position: int, now: int) -> None:
        """Move to a position and a tick; the records before them are skipped, at least in part."""
        self.position = self._order.position = position
        self._order.reach(now)
        if self.latest is not None and not self._by_count:
            self.latest = max(self.latest, now)

    def count(self, insertions: int, latest: int) -> None:
        """Count insertions up to a time that were processed elsewhere; their order no longer matters."""
        self.counts.tuples += insertions
        self.seek(self.position + insertions, latest)
        self.latest = latest if self.latest is None else max(self.latest, latest)
        self.settled = max(self.settled, latest)

    def sort_out(self, batch: RecordBatch) -> RecordBatch:
        """The records of a batch that are not late, in order of arrival; late ones are reported."""
        return self._order.sort_out(batch)

    def accepted(self, batch: RecordBatch) -> RecordBatch:
        """The records that are not late, sorted. Call ``in_order`` with them before the next batch."""
        if not len(batch):
            return batch
        if not self._by_count and (np.diff(batch.time) < 0).any():
            batch = batch.take(np.argsort(batch.time, kind="stable"))
        batch, ticks = self._order.accepted(batch)
        if len(batch):
            latest = int(batch.time.max())
            self.latest = latest if self.latest is None else max(self.latest, latest)
            insertions = batch.insertions
            self.position += insertions
            self.counts.tuples += insertions
            self.counts.deletions += len(batch) - insertions
            self._order.reach(int(ticks[-1]))
        return batch

    def _late(self, record: Record, latest: int) -> None:
        self.counts.late += 1
        self._on_late(record, latest)

    def pass_over(self, relations: Collection[int]) -> None:
        """Drop waiting records of some relations; they keep their positions."""
        self._waiting = passed_over(self._waiting, relations)

    @property
    def horizon(self) -> int:
        """The tick before which no record comes any more."""
        return self._order.horizon

    def at(self, time: int) -> int:
        """The tick of an event time between two records."""
        return self._order.at(time)

    def at_once(self, accepted: RecordBatch) -> OrderedBatch:
        """The last accepted records as they are, without those that were ``passed_over``."""
        return self._without_dropped(accepted, self.position - accepted.insertions, self.horizon)

    def in_order(self, accepted: RecordBatch, *, ended: bool = False) -> OrderedBatch:
        """The records that are next in order after a batch was accepted; all of them if the stream has ended.

        Records that were ``passed_over`` occupy a position, but are left out.
        """
        if not self._lateness and self.final is None:
            return self._next_batch(accepted, self.position - accepted.insertions)
        waiting = concat_batches([self._waiting, accepted])
        waiting = waiting.take(np.argsort(waiting.time, kind="stable"))
        first = self.position - waiting.insertions
        # Without a lateness, records of the final instant are returned as they come.
        side: Literal["left", "right"] = "left" if self._lateness else "right"
        ready_count = len(waiting) if ended else int(np.searchsorted(waiting.time, self._order.horizon, side))
        ready_records, self._waiting = waiting.cut(ready_count)
        return self._next_batch(ready_records, first)

    def _next_batch(self, batch: RecordBatch, position: int) -> OrderedBatch:
        if len(batch):
            self.settled = max(self.settled, int(batch.time.max()))
        return self._without_dropped(batch, position, None)

    def _without_dropped(self, batch: RecordBatch, position: int, horizon: int | None) -> OrderedBatch:
        """The records that were not ``passed_over``, with their positions."""
        is_present = batch.relation != PASSED_OVER
        if is_present.all():
            return OrderedBatch(batch, position, None, self._by_count, horizon)
        is_insertion = ~batch.deletes()
        positions = (position + np.cumsum(is_insertion) - is_insertion)[is_present]
        return OrderedBatch(
            batch.take(np.flatnonzero(is_present)), position, positions, self._by_count, horizon
        )


def passed_over(batch: RecordBatch, relations: Collection[int]) -> RecordBatch:
    """The batch with the records of some relations dropped; they keep their positions."""
    if not relations or not len(batch):
        return batch
    is_dropped = np.isin(batch.relation, list(relations))
    return (
        replace(batch, relation=np.where(is_dropped, PASSED_OVER, batch.relation))
        if is_dropped.any()
        else batch
    )
