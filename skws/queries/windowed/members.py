"""The tuples that windows may hold: their ends, and their keys. Ticks are positions in the stream.

A tuple ends with the last window that may hold it, by a deletion, or when
another tuple with its key replaces it. If a deletion matches several equal rows without a key, it ends
the oldest one that a window may still hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from skws.data.batch import RecordBatch
from skws.queries.keywords.keyword_operator import KeywordOperator
from skws.store.tuple_batch import TupleBatch
from skws_mesh.columnar.columns import Flags, Ints, distinct
from skws_mesh.columnar.store import NO_MEMBER
from skws_purging.lifespans import ALWAYS, GroupKey, identity
from skws_schema.model import Row, Schema
from skws_windows.processor.spans import ANY, ClosedSpans, Spans, Tracker, keyless
from skws_windows.window import FOREVER

_FEWEST_ROWS: Final = 64
"""Up to twice this number of rows, dead ones are not removed."""


@dataclass(slots=True)
class EndedTuples:
    """Ended tuples, by position, with the ticks of their ends."""

    ends: dict[int, int] = field(default_factory=dict)
    unmatched: int = 0


class Deletions:
    """Tuples that records may end: those of keyed relations, and of others from their first deletion on."""

    def __init__(self, schema: Schema) -> None:
        self.relations = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self._schema = schema
        # Positions of live tuples, in order; equal rows also leave windows in that order.
        self._positions_by_key: dict[int, dict[GroupKey, list[int]]] = {}  # by relation
        self._live_count = _FEWEST_ROWS

    def __len__(self) -> int:
        return sum(map(len, self._positions_by_key.values()))

    @property
    def crowded(self) -> bool:
        """True if it is time to call ``keep``: there are twice as many rows as the last time."""
        return len(self) > 2 * self._live_count

    def follow(self, relation: int, live: Iterable[tuple[int, Row]]) -> None:
        """Follow a relation from now on; ``live``: its live tuples with their positions, in order."""
        self.relations.add(relation)
        live_by_key = self._positions_by_key.setdefault(relation, {})
        for position, row in live:
            live_by_key.setdefault(identity(self._schema, relation, row), []).append(position)

    def step(
        self, records: Iterable[tuple[int, int, Row, bool]], held_until: Callable[[int], int]
    ) -> EndedTuples:
        """The tuples that records of followed relations end: (tick, relation, row, delete), in order.

        The tick of an insertion is its position; that of a deletion is the
        position of the next insertion. ``held_until``: the last tick at which a
        window may hold the tuple at a position.
        """
        ended_tuples = EndedTuples()
        for tick, relation, row, delete in records:
            live_by_key = self._positions_by_key.setdefault(relation, {})
            if not row:  # a truncation
                all_positions = chain.from_iterable(live_by_key.values())
                ended_tuples.ends.update(
                    (position, tick) for position in all_positions if held_until(position) >= tick
                )
                live_by_key.clear()
                continue
            key = identity(self._schema, relation, row)
            live = live_by_key.get(key) or []
            while live and held_until(live[0]) < tick:
                live.pop(0)
            _, _, keyed = key
            ended_tuples.unmatched += delete and not live
            if live and (keyed or delete):
                ended_tuples.ends[live.pop(0)] = tick
            if not delete:
                live.append(tick)
            if live:
                live_by_key[key] = live
            else:
                live_by_key.pop(key, None)
        return ended_tuples

    def keep(self, positions: Collection[int]) -> None:
        """Forget all tuples except those at ``positions``."""
        for relation, live_by_key in self._positions_by_key.items():
            remaining = {key: [p for p in live if p in positions] for key, live in live_by_key.items()}
            self._positions_by_key[relation] = {key: live for key, live in remaining.items() if live}
        self._live_count = max(_FEWEST_ROWS, len(self))


class BatchEffects(NamedTuple):
    """The effects of a batch: known tuples that end, by slot, and new ones with their ends."""

    slots: Ints
    ends: Ints
    arrivals: TupleBatch
    unmatched: int


class Members:
    """The tuples of an operator, with the keys of a tracker's windows."""

    def __init__(self, schema: Schema, operator: KeywordOperator, tracker: Tracker) -> None:
        self._operator = operator
        self._tracker = tracker
        self._deletions = Deletions(schema)
        self._keys = np.zeros((0, len(tracker.fields)), dtype=np.int64)  # by slot

    @property
    def keys(self) -> Ints:
        """The codes of the keys of all tuples, by slot."""
        return self._keys

    @property
    def followed(self) -> set[int]:
        """The relations whose deletions are followed."""
        return self._deletions.relations

    def add_keys(self, keys: Ints) -> None:
        """Add the keys of tuples that are inserted next."""
        self._keys = np.concatenate([self._keys, keys])

    def add_static(self, count: int) -> None:
        """Add the keys of static tuples that are inserted next: they fit all keys."""
        self.add_keys(np.full((count, self._keys.shape[1]), ANY, dtype=np.int64))

    def settle(self, batch: RecordBatch, insertions: RecordBatch, spans: Spans) -> BatchEffects:
        """The tuples that a batch ends or inserts; the tracker has read its ``insertions``."""
        deletes = batch.deletes()
        begin = self._tracker.position - len(insertions)
        ticks = begin + np.cumsum(~deletes) - ~deletes
        last_ticks = self._last_ticks(insertions, begin, spans)
        last_ticks_by_slot = self._leaving_slots(spans)
        self.follow(set(distinct(batch.relation[deletes]).tolist()) - self.followed)
        ended_tuples = self._ended_tuples(batch, insertions, ticks, spans)
        slots, ends = self._ends(last_ticks_by_slot, ended_tuples)
        return BatchEffects(
            slots,
            ends,
            self._arrivals(insertions, begin, last_ticks, spans, ended_tuples),
            ended_tuples.unmatched,
        )

    def follow(self, relations: Iterable[int]) -> None:
        """Follow deletions of relations from now on."""
        tuples, directory = self._operator.store.live.tuples, self._operator.store.directory
        for relation in relations:
            is_alive = (tuples.relation == relation) & (tuples.end == FOREVER) & (tuples.start != ALWAYS)
            slots = np.flatnonzero(is_alive).tolist()
            self._deletions.follow(
                relation, ((int(tuples.start[slot]), directory.row(slot)) for slot in slots)
            )

    def key_of(self, members: Ints) -> tuple[Flags, Ints]:
        """Flags results whose tuples agree on the key; and the key's codes, ANY for fields that none has."""
        codes = self._keys[members]
        codes[members == NO_MEMBER] = ANY
        highest = codes.max(axis=1, initial=ANY)
        lowest = np.where(codes == ANY, FOREVER, codes).min(axis=1, initial=FOREVER)
        return ((lowest == FOREVER) | (lowest == highest)).all(axis=1), highest

    def living(self) -> tuple[Ints, Ints]:
        """The positions and the keys of the tuples of the stream that windows may still hold."""
        tuples = self._operator.store.live.tuples
        slots = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS))
        return tuples.start[slots], self._keys[slots]

    def renumber(self, slots: Ints) -> None:
        """Move tuples to new slots; tuples with negative slots are dropped."""
        remaining = np.flatnonzero(slots >= 0)
        keys = np.empty((len(remaining), self._keys.shape[1]), dtype=np.int64)
        keys[slots[remaining]] = self._keys[remaining]
        self._keys = keys
        if len(self._deletions):
            self._follow_live()

    def forget(self) -> None:
        """Forget rows without live tuples, once there are many."""
        if self._deletions.crowded:
            self._follow_live()

    def _follow_live(self) -> None:
        self._deletions.keep(set(self._operator.store.live.tuples.start.tolist()))

    def _last_ticks(self, insertions: RecordBatch, begin: int, spans: Spans, *, seen: bool = False) -> Ints:
        """The last ticks at which windows may hold the tuples of a batch."""
        position = np.arange(begin, begin + len(insertions))
        last_ticks = spans.expiry(position, insertions.time, spans.key, seen=seen)
        last_ticks[keyless(spans.key)] = -1
        return last_ticks

    def _leaving_slots(self, spans: Spans, *, seen: bool = False) -> dict[int, int]:
        """The slots of known tuples that leave in a batch, with the last ticks at which windows hold them."""
        tuples, times = self._operator.store.live.tuples, self._operator.store.directory.times
        slots = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS))
        last_ticks = spans.expiry(tuples.start[slots], times[slots], self._keys[slots], seen=seen)
        has_left = last_ticks < FOREVER
        return dict(zip(slots[has_left].tolist(), last_ticks[has_left].tolist(), strict=True))

    def _ended_tuples(
        self, batch: RecordBatch, insertions: RecordBatch, ticks: Ints, spans: Spans
    ) -> EndedTuples:
        """The tuples that deletions and replacements of a batch end, by position."""
        rows = np.flatnonzero(np.isin(batch.relation, list(self.followed)))
        if not len(rows):
            return EndedTuples()
        tuples = self._operator.store.live.tuples
        begin = self._tracker.position - len(insertions)
        last_ticks = self._last_ticks(insertions, begin, spans, seen=True)
        last_ticks_by_slot = self._leaving_slots(spans, seen=True)

        def held_until(position: int) -> int:
            if position >= begin:
                return int(last_ticks[position - begin])
            slot = self._slot(position)
            return -1 if slot is None or tuples.end[slot] < FOREVER else last_ticks_by_slot.get(slot, FOREVER)

        followed_records = batch.take(rows)
        columns = (
            ticks[rows].tolist(),
            followed_records.relation.tolist(),
            followed_records.rows,
            followed_records.deletes().tolist(),
        )
        return self._deletions.step(zip(*columns, strict=True), held_until)

    def _ends(self, last_ticks_by_slot: dict[int, int], ended_tuples: EndedTuples) -> tuple[Ints, Ints]:
        """The slots and ticks of known tuples that leave, or are deleted or replaced."""
        ends = {slot: tick + 1 for slot, tick in last_ticks_by_slot.items()}
        for position, tick in ended_tuples.ends.items():
            slot = self._slot(position)
            if slot is not None:
                ends[slot] = min(ends.get(slot, FOREVER), tick)
        return np.array(list(ends), dtype=np.int64), np.array(list(ends.values()), dtype=np.int64)

    def _slot(self, position: int) -> int | None:
        starts = self._operator.store.live.tuples.start
        slot = int(np.searchsorted(starts, position))
        return slot if slot < len(starts) and starts[slot] == position else None

    def _arrivals(
        self, insertions: RecordBatch, begin: int, last_ticks: Ints, spans: Spans, ended_tuples: EndedTuples
    ) -> TupleBatch:
        """The new tuples that a window may hold."""
        ends = np.where(last_ticks == FOREVER, FOREVER, last_ticks + 1)
        for position, tick in ended_tuples.ends.items():
            if position >= begin:
                ends[position - begin] = min(ends.item(position - begin), tick)
        rows = np.flatnonzero(ends > np.arange(begin, begin + len(insertions)))
        self.add_keys(spans.key[rows])
        arrivals = insertions.take(rows)
        start = rows + begin
        return TupleBatch(arrivals.relation, arrivals.rows, start, ends[rows], arrivals.time, start)


_KEY_FACTOR = 1 << 40
"""Greater than any position: a key's number times this, plus a position, orders windows by key and end."""


class EndedWindows:
    """Windows that have ended, at most one at each record; finds the first one that contains a result."""

    def __init__(self, closed: ClosedSpans) -> None:
        self._closed = closed
        self._orders: dict[tuple[bool, ...], _WindowOrder] = {}

    def ends(self, first: Ints, last: Ints, key: Ints) -> Ints:
        """For each result, the end of the first window from ``first`` or before to ``last`` or after.

        ``key``: codes of the fields of the window's key in the result's tuples,
        ANY for fields that none has. FOREVER if no window holds the result.
        """
        ends = np.full(len(first), FOREVER, dtype=np.int64)
        if not len(self._closed.last) or not len(first):
            return ends
        field_sets, field_set_numbers = np.unique(key != ANY, axis=0, return_inverse=True)
        field_set_numbers = field_set_numbers.reshape(-1)
        for number, fields in enumerate(field_sets):
            has_fields = field_set_numbers == number
            ends[has_fields] = self._order_by(fields).ends(
                first[has_fields], last[has_fields], key[has_fields][:, fields]
            )
        return ends

    def _order_by(self, fields: Flags) -> _WindowOrder:
        """The windows by some fields of their keys."""
        name = tuple(fields.tolist())
        if name not in self._orders:
            closed = self._closed
            self._orders[name] = _WindowOrder(closed.first, closed.last, closed.key[:, fields])
        return self._orders[name]


class _WindowOrder:
    """Windows by key, then end; ``_least[n]``: from each window on, the least start of 2**n windows."""

    def __init__(self, first: Ints, last: Ints, key: Ints) -> None:
        self._keys, group = numbered(key)
        order = np.lexsort((last, group))
        self._last = last[order]
        self._group = group[order]
        self._least = [first[order]]
        while (1 << len(self._least)) <= len(first):
            level = self._least[-1]
            step = 1 << (len(self._least) - 1)
            self._least.append(np.minimum(level[:-step], level[step:]))

    def ends(self, first: Ints, last: Ints, key: Ints) -> Ints:
        """As ``EndedWindows.ends``, for whole keys."""
        distinct, inverse = numbered(key)
        numbers = {code: number for number, code in enumerate(map(tuple, self._keys.tolist()))}
        group = np.array([numbers.get(tuple(code), -1) for code in distinct.tolist()], dtype=np.int64)[
            inverse
        ]
        index = self._next(
            np.searchsorted(self._group * _KEY_FACTOR + self._last, group * _KEY_FACTOR + last), first
        )
        size = len(self._last)
        clipped = np.minimum(index, size - 1)
        is_held = (index < size) & (group >= 0) & (self._group[clipped] == group)
        return np.where(is_held, self._last[clipped], FOREVER)

    def _next(self, index: Ints, first: Ints) -> Ints:
        """The first index from ``index`` on with a start of at most ``first``, by leaps of powers of two."""
        size = len(self._last)
        for level in range(len(self._least) - 1, -1, -1):
            least = self._least[level]
            # Leap over windows whose starts are all too late.
            in_range = index < len(least)
            is_late = np.zeros(len(index), dtype=bool)
            is_late[in_range] = least[index[in_range]] > first[in_range]
            index = np.where(is_late, index + (1 << level), index)
        return np.minimum(index, size)


def numbered(key: Ints) -> tuple[Ints, Ints]:
    """The distinct keys, and the number of each key; all keys are equal if they have no fields."""
    if not key.shape[1]:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(len(key), dtype=np.int64)
    distinct, inverse = np.unique(key, axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1)


ClosedRow: TypeAlias = tuple[int, int, Sequence[Any], int]
"""Positions of the first and last record, values of the key, time of the first."""


_FEWEST_WINDOWS: Final = 64
"""Up to twice this number of windows, those without live tuples are not removed."""


class ClosedWindows:
    """Windows that ended while tuples in them are still live; positions and keys are those of a tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._spans: list[ClosedSpans] = []
        self._kept_count = _FEWEST_WINDOWS

    def __len__(self) -> int:
        return sum(len(each.last) for each in self._spans)

    @property
    def crowded(self) -> bool:
        """True if it is time to call ``keep``: there are twice as many windows as the last time."""
        return len(self) > 2 * self._kept_count

    def add(self, closed: ClosedSpans) -> None:
        """Add windows that ended; forget those before the oldest open one."""
        if len(closed.last):
            self._spans.append(closed)
        self._spans = [each for each in self._spans if each.last[-1] >= self._tracker.horizon]

    def keep(self, position: Ints, key: Ints) -> None:
        """Forget all windows that hold none of some tuples, given by their positions and keys."""
        closed = ClosedSpans(*map(np.concatenate, zip(*self._spans, strict=True)))
        is_shared = (key == ANY).any(axis=1)
        _, group = numbered(np.concatenate([closed.key, key]))
        window_group, tuple_group = np.split(group, [len(closed.last)])
        holds = _holds(closed, window_group, position[~is_shared], tuple_group[~is_shared])
        # A tuple without some field of the key may be in windows of several keys.
        holds |= _holds(closed, 0 * window_group, position[is_shared], 0 * tuple_group[is_shared])
        self._spans = [ClosedSpans(*(column[holds] for column in closed))] if holds.any() else []
        self._kept_count = max(_FEWEST_WINDOWS, len(self))

    def keys(self) -> Iterator[Ints]:
        """The codes of their keys."""
        return (each.key for each in self._spans)

    def state(self) -> list[ClosedRow]:
        """The state in plain values."""
        return [
            row
            for each in self._spans
            for row in zip(
                each.first.tolist(),
                each.last.tolist(),
                self._tracker.values(each.key),
                each.began.tolist(),
                strict=True,
            )
        ]

    def restore(self, state: Sequence[ClosedRow]) -> ClosedSpans:
        """Inverse of ``state``; returns the windows as one batch."""
        first, last, keys, began = tuple(zip(*state, strict=True)) or ((), (), (), ())
        closed = ClosedSpans(
            np.array(first, dtype=np.int64),
            np.array(last, dtype=np.int64),
            self._tracker.codes_of(keys),
            np.array(began, dtype=np.int64),
        )
        self._spans = [closed] if len(closed.last) else []
        return closed


def _holds(closed: ClosedSpans, window_group: Ints, position: Ints, tuple_group: Ints) -> Flags:
    """Flags windows with at least one of some tuples of their group."""
    places = np.sort(tuple_group * _KEY_FACTOR + position)
    flags: Flags = np.searchsorted(places, window_group * _KEY_FACTOR + closed.first) < np.searchsorted(
        places, window_group * _KEY_FACTOR + closed.last, side="right"
    )
    return flags
