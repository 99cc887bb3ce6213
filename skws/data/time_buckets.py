"""How many events there were when, in bounded memory: for a time line over a stream of any length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from skws.data.batch import Ints

MOST: Final = 1024
"""Buckets: more than a terminal has columns."""


class TimeBuckets:
    """Counts by time in buckets of one width, a power of two that doubles as the time between events grows.

    ``most``: at least 2. Times are in microseconds. One thread adds, any reads. ``first``, ``last``: the
    earliest and the latest time, None before the first event.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.first: int | None = None
        self.last: int | None = None
        self._buckets: tuple[int, dict[int, int]] = (1, {})  # width, counts by number; replaced together

    def add(self, events: Ints | Sequence[int]) -> None:
        """Count events at these times, in any order."""
        if not len(events):
            return
        import numpy as np  # noqa: PLC0415 - loads behind the terminal UI's first picture

        times = np.asarray(events, dtype=np.int64)
        first, last = int(times.min()), int(times.max())
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        width = self._buckets[0]
        while self.last // width - self.first // width >= self._most:
            width *= 2
        counts = self._counts(width)
        numbers, added = np.unique(times // width, return_counts=True)
        for number, count in zip(numbers.tolist(), added.tolist(), strict=True):
            counts[number] = counts.get(number, 0) + count
        self._buckets = width, counts

    def larger(self, other: TimeBuckets) -> TimeBuckets:
        """The larger count of two in each bucket: of events that were counted twice, at least in part."""
        found = TimeBuckets(self._most)
        found.first = min(_known(self.first, other.first), default=None)
        found.last = max(_known(self.last, other.last), default=None)
        width = max(self._buckets[0], other._buckets[0])
        while found.last is not None and found.first is not None:
            if found.last // width - found.first // width < self._most:
                break
            width *= 2
        mine, others = self._counts(width), other._counts(width)
        found._buckets = width, {at: max(mine.get(at, 0), others.get(at, 0)) for at in mine.keys() | others}
        return found

    def before(self, time: int) -> int:
        """A time shortly before the last event up to ``time``, or its own; not before the first event."""
        assert self.first is not None  # noqa: S101 - there are events
        width, counts = self._buckets
        earlier = [at for at in counts if at < time // width]
        return max(max(earlier) * width, self.first) if earlier else self.first

    def columns(self, number: int, first: int, last: int) -> list[int]:
        """Counts in ``number`` columns of equal length, from the time ``first`` to ``last``."""
        found = [0] * number
        width, counts = self._buckets
        length = max(last - first, 1)
        for at, count in list(counts.items()):
            middle = min(max(at * width + width // 2, first), last)
            if first <= (at + 1) * width and at * width <= last:
                found[min((middle - first) * number // length, number - 1)] += count
        return found

    def _counts(self, width: int) -> dict[int, int]:
        """The counts in buckets of a width that is a multiple of the present one."""
        present, counts = self._buckets
        if present == width:
            return dict(counts)
        return _summed(((at * present) // width, count) for at, count in counts.items())


def _summed(counts: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for at, count in counts:
        found[at] = found.get(at, 0) + count
    return found


def _known(*times: int | None) -> Iterable[int]:
    return [time for time in times if time is not None]
