"""The records of a replay in order of time, as columns, taken from the front by time and number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skws.batches import RecordBatch, together


class Timeline:
    """``batches`` in order of time; each is read when something of it is asked for."""

    def __init__(self, batches: Iterator[RecordBatch]) -> None:
        self._batches = batches
        self._first: RecordBatch | None = None

    @property
    def next_time(self) -> int | None:
        """Of the next record; None at the end."""
        batch = self._front()
        return None if batch is None else batch.time.item(0)

    def take(self, limit: int, until: int | None = None) -> RecordBatch:
        """The next records, as far as their time is not behind ``until``."""
        taken: list[RecordBatch] = []
        count = 0
        while count < limit and (batch := self._front()) is not None:
            due = len(batch) if until is None else int(np.searchsorted(batch.time, until, "right"))
            due = min(due, limit - count)
            if due:
                taken.append(self._cut(batch, due))
                count += due
            if due < len(batch):
                break
        return together(taken) if taken else RecordBatch.of(())

    def skip_to(self, time: int, same: int) -> None:
        """Past all records before ``time``, and past so many of that time, if there are as many."""
        while (batch := self._front()) is not None:
            before = int(np.searchsorted(batch.time, time, "left"))
            of_time = int(np.searchsorted(batch.time, time, "right")) - before
            past = before + min(same, of_time)
            same -= past - before
            if past:
                self._cut(batch, past)
            if past < len(batch):
                return

    def _front(self) -> RecordBatch | None:
        while self._first is None:
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._first = batch if len(batch) else None
        return self._first

    def _cut(self, batch: RecordBatch, place: int) -> RecordBatch:
        """The first records of the front."""
        if place == len(batch):
            self._first = None
            return batch
        done, self._first = batch.cut(place)
        return done
