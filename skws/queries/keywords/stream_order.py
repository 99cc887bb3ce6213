"""Where a stream stands: what of a batch comes too late, and the ticks of the rest."""

from __future__ import annotations

import numpy as np

from skws.data.batch import RecordBatch
from skws.data.record import OnLate
from skws_mesh.columnar.columns import Flags, Ints
from skws_purging.tuples import ALWAYS
from skws_windows.window import TICKS_PER_ARRIVAL, before_arrival


class StreamOrder:
    """``by_count``: ticks are those of an ``ArrivalWindow``, and nothing is late; else microseconds.

    Records may come up to ``lateness`` after later ones; ``on_late`` hears of those that come later still.
    """

    def __init__(self, *, by_count: bool, lateness: int, on_late: OnLate) -> None:
        self.now = ALWAYS
        self._by_count = by_count
        self._lateness = 0 if by_count else lateness
        self._on_late = on_late
        self.position = 0  # where the next tuple stands in the stream

    @property
    def horizon(self) -> int:
        """What ended by then matters to no record to come."""
        return self.now - self._lateness

    def reach(self, tick: int) -> None:
        """Time has passed up to ``tick``."""
        self.now = max(self.now, tick)

    def at(self, time: int) -> int:
        """The tick of an event time between two records."""
        return before_arrival(self.position) if self._by_count else time

    def accepted(self, batch: RecordBatch) -> tuple[RecordBatch, Ints]:
        """The records that are not too late, in order of ticks, and their ticks."""
        if self._by_count:
            return batch, self._counted(batch)
        batch = self._without_late(batch)
        if self._lateness:
            batch = batch.taken(np.argsort(batch.time, kind="stable"))
        return batch, batch.time

    def _counted(self, batch: RecordBatch) -> Ints:
        """Ticks by position: a deletion's is between two arrivals."""
        deleted = batch.deletes().astype(np.int64)
        reached: Ints = self.position + np.cumsum(1 - deleted)
        self.position = int(reached[-1]) if len(reached) else self.position
        return TICKS_PER_ARRIVAL * (reached - 1) + deleted

    def _without_late(self, batch: RecordBatch) -> RecordBatch:
        time = batch.time
        if (time[:1] >= self.horizon).all() and (time[1:] >= time[:-1]).all():
            return batch  # as is usual
        reached = np.maximum.accumulate(np.concatenate([[self.now], time[:-1]]))
        late: Flags = time < reached[: len(batch)] - self._lateness
        if not late.any():
            return batch
        records = batch.taken(np.flatnonzero(late)).records()
        for record, latest in zip(records, reached[: len(batch)][late].tolist(), strict=True):
            self._on_late(record, latest)
        return batch.taken(np.flatnonzero(~late))
