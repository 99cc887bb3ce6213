"""Runs a window expression on the stream of one key: the live starts, record after record.

The groups of starts are lists parallel to the configuration's slots. At a record, a start is added if the
first automaton accepts the records before it; all groups move, and groups that meet are merged; each start of
a group in a final state has a window that ends here. Records that change nothing are skipped: NumPy finds the
next one that does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from skws_schema.model import Value
from skws_windows.automata.regular import Limits, Selection
from skws_windows.guards.letters import Ints
from skws_windows.processor.macrostates import Configuration, Configurations, Move
from skws_windows.processor.panes import Panes

_SHORT_SEGMENT: Final = 48
"""Segments of at most this many records are read one by one, since NumPy would take longer."""
_LEAST_SWEPT: Final = 64
NONE_OPEN: Final = -1


class WindowStart(NamedTuple):
    """The start of a window: position, time in microseconds, and the cuts of the aggregates' panes."""

    position: int
    time: int
    marks: tuple[Any, ...]


_position_of, _time_of = itemgetter(0), itemgetter(1)


class Window(NamedTuple):
    """A window: positions (from 0, in the key's stream), times in microseconds, and its aggregates."""

    first: int
    last: int
    start: int
    end: int
    key: Key
    aggregates: tuple[Value, ...]


Group: TypeAlias = list[WindowStart]
Key: TypeAlias = tuple[Value, ...]


def needs_one_start(selection: Selection, limits: Limits) -> bool:
    """True if a group needs only its earliest start, which has the longest window without limits."""
    return selection is Selection.LONGEST and not limits.bounding


class LiveStarts:
    """The state of one stream. ``position`` is that of the next record."""

    def __init__(
        self,
        key: Key,
        shared: Configurations,
        selection: Selection,
        limits: Limits,
        panes: Sequence[Panes],
        position: int = 0,
    ) -> None:
        self.key = key
        self.position = position
        self.panes = tuple(panes)
        self._shared = shared
        self._configuration = shared.initial
        self._groups: list[Group] = []
        self._limits = limits
        self._first = selection is Selection.FIRST
        self._longest = selection is Selection.LONGEST
        self._single_start = needs_one_start(selection, limits)
        self._sweep_at = _LEAST_SWEPT
        self._sweep_size = _LEAST_SWEPT
        # (position, oldest start still open after it or NONE_OPEN) at each change and end, if recorded.
        self.trail: list[tuple[int, int]] | None = None
        self._oldest = NONE_OPEN

    @property
    def oldest(self) -> int:
        """The position of the oldest start with a window that may still end, or NONE_OPEN.

        With limits, starts that are too old are included until they are swept.
        """
        is_open = self._shared.open_slots(self._configuration)
        open_groups = (group for group, flag in zip(self._groups, is_open, strict=True) if flag and group)
        return min((self._earliest(group) for group in open_groups), default=NONE_OPEN)

    @property
    def is_initial(self) -> bool:
        """True if a new run at this position would find the same windows."""
        return self._shared.is_initial(self._configuration)

    @property
    def starts(self) -> Iterator[WindowStart]:
        """All starts, including those without any further window."""
        return (start for group in self._groups for start in group)

    @property
    def open_starts(self) -> int:
        """The number of starts with a window that may still end; a start of several pairs counts once."""
        is_open = self._shared.open_slots(self._configuration)
        open_groups = (group for group, flag in zip(self._groups, is_open, strict=True) if flag)
        return len({start.position for group in open_groups for start in group})

    def state(self) -> dict[str, Any]:
        """The state of a run without aggregates, in plain values."""
        before, slots = self._shared.to_plain(self._configuration)
        groups = [[(start.position, start.time) for start in group] for group in self._groups]
        return {
            "position": self.position,
            "before": before,
            "slots": slots,
            "groups": groups,
            "sweep_at": self._sweep_at,
            "oldest": self._oldest,
        }

    def restore(self, state: dict[str, Any]) -> None:
        slots = [(pair, mask) for pair, mask in state["slots"]]
        self._configuration, order = self._shared.from_plain(state["before"], slots)
        groups = [[WindowStart(position, time, ()) for position, time in group] for group in state["groups"]]
        self._groups = [groups[i] for i in order]
        self.position = state["position"]
        self._sweep_at, self._oldest = state["sweep_at"], state["oldest"]

    def skip(self, count: int) -> None:
        """Skip records without a full lookback, at which no window begins."""
        self.position += count

    def advance(self, letters: Ints, times: Ints) -> Iterator[Window]:
        """The windows that end with the next records, by end, then start; the panes have been fed already."""
        size = len(letters)
        walk = _Walk(letters, times, self._shared)
        step = self._step_first if self._first else self._step
        offset = 0
        while offset < size:
            offset = self._next(walk, offset)
            if offset >= size:
                break
            windows = step(walk, offset)
            if self.trail is not None:
                self._note(offset, windows)
            yield from windows
            offset += 1
        self.position += size
        for panes in self.panes:
            panes.finish()
        self._sweep_panes()

    def _note(self, offset: int, windows: Sequence[Window]) -> None:
        oldest = self.oldest
        # A window of one record changes nothing else.
        if (windows or oldest != self._oldest) and self.trail is not None:
            self._oldest = oldest
            self.trail.append((self.position + offset, oldest))

    def _earliest(self, group: Group) -> int:
        return group[0].position if self._longest else min(start.position for start in group)

    def _next(self, walk: _Walk, offset: int) -> int:
        """The next record that may change anything."""
        opening = not (self._first and self._groups)
        offset_of_change = walk.next_active(self._configuration, offset, opening=opening)
        if self._first and self._groups and self._limits.bounding:
            return min(offset_of_change, max(offset, self._expiry(walk)))
        return offset_of_change

    def _step(self, walk: _Walk, offset: int) -> Sequence[Window]:
        move = self._shared.move(self._configuration, walk.letters.item(offset), opening=True)
        self._apply(move)
        if move.new_slots:
            start = self._start(walk, offset)
            for slot in move.new_slots:
                self._groups[slot].append(start)
        windows = self._ended_windows(move, walk, offset) if move.final_slots else ()
        if self._limits.bounding and any(len(group) > self._sweep_at for group in self._groups):
            self._sweep_starts(self.position + offset, walk.times.item(offset))
        return windows

    def _apply(self, move: Move) -> None:
        """Move all groups, and merge those that meet."""
        if not move.is_unchanged:
            groups = self._groups
            self._groups = [
                groups[sources[0]]
                if len(sources) == 1
                else self._merge([groups[i] for i in sources])
                if sources
                else []
                for sources in move.sources
            ]
        self._configuration = move.target

    def _merge(self, groups: list[Group]) -> Group:
        """Append the smaller groups to the largest, so that a start moves a logarithmic number of times."""
        if self._single_start:
            return [min(start for group in groups for start in group)]
        largest = max(groups, key=len)
        for group in groups:
            if group is not largest:
                in_order = largest[-1] < group[0]
                largest += group
                if self._longest and not in_order:
                    largest.sort()  # so that the earliest in time is found by binary search
        return largest

    def _start(self, walk: _Walk, offset: int) -> WindowStart:
        cuts = tuple([panes.begin(offset) for panes in self.panes]) if self.panes else ()
        return WindowStart(self.position + offset, walk.times.item(offset), cuts)

    def _sweep_starts(self, last: int, now: int) -> None:
        """Drop the starts that are too old, and the groups that have no others."""
        groups = [[start for start in group if self._in_time(start, last, now)] for group in self._groups]
        slots = [slot for slot, group in enumerate(groups) if group]
        self._configuration = self._shared.with_slots(self._configuration, slots)
        self._groups = [groups[slot] for slot in slots]
        self._sweep_at = max(_LEAST_SWEPT, 2 * max(map(len, self._groups), default=0))

    def _ended_windows(self, move: Move, walk: _Walk, offset: int) -> Sequence[Window]:
        last, now = self.position + offset, walk.times.item(offset)
        if self._longest and self._limits.bounding:
            starts = [
                s for slot in move.final_slots for s in self._first_in_time(self._groups[slot], last, now)
            ]
        else:
            starts = [start for slot in move.final_slots for start in self._groups[slot]]
        if self._limits.any:
            starts = [start for start in starts if self._is_admitted(start, last, now)]
        if not starts:
            return ()
        if self._longest:
            starts = [min(starts)]
        elif len(move.final_slots) > 1:
            # Several pairs may give the same window.
            starts = list({start.position: start for start in starts}.values())
        if len(starts) > 1:
            starts.sort()
        key, aggregates = self.key, self._aggregates
        return [Window(start[0], last, start[1], now, key, aggregates(start, offset)) for start in starts]

    def _step_first(self, walk: _Walk, offset: int) -> Sequence[Window]:
        if self._groups and self._limits.bounding and self._expiry(walk) <= offset:
            self._close()
        opening = not self._groups
        move = self._shared.move(self._configuration, walk.letters.item(offset), opening=opening)
        if not opening and not move.target.slots:
            # The open window was dropped here, so another may begin.
            self._close()
            move = self._shared.move(self._configuration, walk.letters.item(offset), opening=True)
        self._apply(move)
        if move.new_slots:
            start = self._start(walk, offset)
            self._groups = [[start] if i in move.new_slots else [] for i in range(len(move.target.slots))]
        windows = self._ended_windows(move, walk, offset)
        if windows:
            self._close()
        return windows[:1]

    def _close(self) -> None:
        """Drop the open window."""
        self._configuration = self._shared.with_slots(self._configuration, ())
        self._groups = []

    def _expiry(self, walk: _Walk) -> int:
        """The first record at which the one open window is too long."""
        start = min(group[0] for group in self._groups if group)
        expiry = walk.size
        if self._limits.most is not None:
            expiry = min(expiry, start.position + self._limits.most - self.position)
        if self._limits.within is not None:
            limit = start.time + self._limits.within
            expiry = min(expiry, int(np.searchsorted(walk.times, limit, side="right")))
        return max(expiry, 0)

    def _first_in_time(self, group: Group, last: int, now: int) -> Group:
        """The earliest start of an ordered group whose window is not too long; later ones are shorter."""
        limits, index = self._limits, 0
        if limits.most is not None:
            index = bisect_right(group, last - limits.most, key=_position_of)
        if limits.within is not None:
            index = bisect_left(group, now - limits.within, lo=index, key=_time_of)
        return group[index : index + 1]

    def _in_time(self, start: WindowStart, last: int, now: int) -> bool:
        limits = self._limits
        return (limits.most is None or last - start.position < limits.most) and (
            limits.within is None or now - start.time <= limits.within
        )

    def _is_admitted(self, start: WindowStart, last: int, now: int) -> bool:
        return last - start.position + 1 >= self._limits.least and self._in_time(start, last, now)

    def _aggregates(self, start: WindowStart, offset: int) -> tuple[Value, ...]:
        if not self.panes:
            return ()
        return tuple([p.value(b, offset) for p, b in zip(self.panes, start[2], strict=True)])

    def _sweep_panes(self) -> None:
        """Drop panes before the oldest live start when their number has doubled since the last time."""
        number = sum(map(len, self.panes))
        if number > 2 * self._sweep_size:
            oldest = min((s.position for group in self._groups for s in group), default=self.position)
            for panes in self.panes:
                panes.forget(oldest)
            self._sweep_size = max(_LEAST_SWEPT, sum(map(len, self.panes)))


class _Walk:
    """The letters of a segment, and the offsets of those that change a configuration."""

    def __init__(self, letters: Ints, times: Ints, shared: Configurations) -> None:
        self.letters = letters
        self.size = len(letters)
        self.times = times
        self._shared = shared
        self._active_offsets: dict[tuple[Configuration, bool], list[int]] = {}

    def next_active(self, configuration: Configuration, offset: int, *, opening: bool) -> int:
        """The next record from ``offset`` that changes something; the segment's length if there is none."""
        if self.size <= _SHORT_SEGMENT:
            return offset
        key = (configuration, opening)
        if key not in self._active_offsets:
            flags = self._shared.active_letters(configuration, opening=opening)
            self._active_offsets[key] = np.flatnonzero(flags[self.letters]).tolist()
        offsets = self._active_offsets[key]
        index = bisect_left(offsets, offset)
        return offsets[index] if index < len(offsets) else self.size
