"""When tuples leave the last window that may hold them, as far as a batch of records shows.

A tuple is held while a live start of its key is not after it. The oldest live
start never moves back, so leaving tuples are found by binary search among the
places where it moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skws_windows.guards.columns import Flags, Ints
from skws_windows.language.expression import Limits
from skws_windows.processor.run import Key
from skws_windows.window import FOREVER

Code: TypeAlias = tuple[int, ...]
_WIDE: Final = 1 << 40
"""More than any position; the numbers of keys are multiples of it in combined codes."""


class Trail(NamedTuple):
    """After the record at ``at``, tuples before ``bound`` are not held; ``closed``: no window is open."""

    at: Ints
    bound: Ints
    closed: Flags

    @classmethod
    def of(cls, changes: list[tuple[int, int | None]]) -> Trail:
        """From (position, oldest live start after it, or None)."""
        at = np.array([position for position, _ in changes], dtype=np.int64)
        bound = np.array([p + 1 if o is None else o for p, o in changes], dtype=np.int64)
        return cls(at, bound, np.array([o is None for _, o in changes], dtype=bool))


class Leaving:
    """Decides when tuples leave.

    ``trails`` are by the codes of keys, ``named`` the same by key; ``before`` has the
    oldest live starts before the batch. ``begin`` is the position of the batch's
    first record, ``time`` has the times of all.
    """

    def __init__(
        self,
        trails: Mapping[Code, Trail],
        before: Mapping[Key, int],
        named: Mapping[Key, Trail],
        begin: int,
        time: Ints,
        limits: Limits,
        *,
        keyed: bool,
    ) -> None:
        self._keyed = keyed
        self._begin = begin
        self._time = time
        self._limits = limits
        self._before, self._named = before, named
        self._trails = trails
        self._all: Trail | None = None

    def __call__(self, position: Ints, time: Ints, key: Ints, *, seen: bool = False) -> Ints:
        """The last position at which a window may hold each tuple; FOREVER if the batch does not show it.

        A tuple that comes while no window is open, and begins none, leaves
        before it came. ``seen``: a tuple is held up to the record that shows it
        to be too old for a limit, which needs no look ahead.
        """
        left = np.full(len(position), FOREVER, dtype=np.int64)
        whole = (key >= 0).all(axis=1)
        any_key = ~whole
        if any_key.any():
            left[any_key] = _left(
                [self.of_all], np.zeros(int(any_key.sum()), dtype=np.int64), position[any_key]
            )
        if whole.any():
            left[whole] = self._of_keys(position[whole], key[whole])
        return np.minimum(left, self._limited(position, time, seen=seen))

    def since(self, position: Ints, key: Ints) -> Ints:
        """The start of the oldest window that was open just before each record; no later than the record.

        Among the windows of the record's key if that is complete, else of all keys.
        """
        began = np.empty(len(position), dtype=np.int64)
        whole = (key >= 0).all(axis=1)
        for mine, of_key in ((~whole, None), (whole, self._numbers(key[whole]))):
            if mine.any():
                trails = [self.of_all] if of_key is None else list(self._trails.values())
                which = np.zeros(int(mine.sum()), dtype=np.int64) if of_key is None else of_key
                joined = _Joined(trails)
                began[mine] = joined.bound[joined.before(which, position[mine])]
        return began

    def open_after(self) -> Iterator[tuple[Code, int | None]]:
        """The oldest live start after the batch of each key that has records in it."""
        for code, trail in self._trails.items():
            yield code, None if trail.closed[-1] else int(trail.bound[-1])

    @property
    def of_all(self) -> Trail:
        """The trail of the oldest live start over all keys."""
        if self._all is None:
            self._all = self._merged()
        return self._all

    def _numbers(self, key: Ints) -> Ints:
        """The number of each key's trail; -1 for one without records in the batch."""
        if not self._keyed:
            return np.zeros(len(key), dtype=np.int64)
        numbers = {code: number for number, code in enumerate(self._trails)}
        distinct, inverse = np.unique(key, axis=0, return_inverse=True)
        known = [numbers.get(tuple(code), -1) for code in distinct.tolist()]
        return np.array(known, dtype=np.int64)[inverse.reshape(-1)]

    def _of_keys(self, position: Ints, key: Ints) -> Ints:
        which = self._numbers(key)
        left = np.full(len(position), FOREVER, dtype=np.int64)
        here = which >= 0
        if here.any():
            left[here] = _left(list(self._trails.values()), which[here], position[here])
        return left

    def _limited(self, position: Ints, time: Ints, *, seen: bool) -> Ints:
        """The last position at which a window with limits may hold each tuple."""
        left = np.full(len(position), FOREVER, dtype=np.int64)
        if self._limits.within is not None and len(self._time):
            past = np.searchsorted(self._time, time + self._limits.within, side="right")
            left = np.where(past < len(self._time), self._begin + past - (not seen), left)
        if self._limits.most is not None and not self._keyed:
            most = position + self._limits.most - 1
            # Positions after the batch are left to a later one.
            left = np.where(most < self._begin + len(self._time), np.minimum(left, most), left)
        return left

    def _merged(self) -> Trail:
        """The trail of the least bound over all keys."""
        numbers = {key: number for number, key in enumerate({**self._before, **self._named})}
        live = {numbers[key]: start for key, start in self._before.items()}
        queue = [(start, number) for number, start in live.items()]
        heapify(queue)
        events = sorted(
            (at, numbers[key], bound, closed)
            for key, trail in self._named.items()
            for at, bound, closed in zip(*(column.tolist() for column in trail), strict=True)
            if at >= self._begin
        )
        changes = [(self._begin - 1, queue[0][0] if queue else None)]
        for at, number, bound, closed in events:
            if closed:
                live.pop(number, None)
            else:
                live[number] = bound
                heappush(queue, (bound, number))
            while queue and live.get(queue[0][1]) != queue[0][0]:
                heappop(queue)
            changes.append((at, queue[0][0] if queue else None))
        return Trail.of(changes)


class _Joined:
    """Several trails, one after the other."""

    def __init__(self, trails: list[Trail]) -> None:
        self.sizes = np.array([len(trail.at) for trail in trails])
        self.ends = np.cumsum(self.sizes)
        self._number = np.repeat(np.arange(len(trails)), self.sizes)
        self.at = np.concatenate([trail.at for trail in trails])
        self.bound = np.concatenate([trail.bound for trail in trails])
        self.closed = np.concatenate([trail.closed for trail in trails])

    def before(self, which: Ints, position: Ints) -> Ints:
        """The last place of a trail before each position, which is in the batch."""
        # The first place of a trail is just before the batch; its position may be -1.
        found: Ints = np.searchsorted(self._number * _WIDE + self.at + 1, which * _WIDE + position + 1) - 1
        return found

    def until(self, which: Ints, position: Ints) -> Ints:
        """The last place of a trail at or before each position; the end of another trail if there is none."""
        return self.before(which, position + 1)

    def past(self, which: Ints, position: Ints) -> Ints:
        """The first place of a trail after which each position is no longer held."""
        found: Ints = np.searchsorted(
            self._number * _WIDE + self.bound, which * _WIDE + position, side="right"
        )
        return found


def _left(trails: list[Trail], which: Ints, position: Ints) -> Ints:
    """For each position, the first record of its trail after which it is no longer held."""
    joined = _Joined(trails)
    at, ends = joined.at, joined.ends
    last = joined.until(which, position)
    old = last < ends[which] - joined.sizes[which]
    idle = ~old & joined.closed[last] & (at[last] < position)
    found = joined.past(which, position)
    left = np.where(found < ends[which], at[np.minimum(found, len(at) - 1)], FOREVER)
    return np.where(idle, position - 1, left)
