"""The spans of windows in the whole stream, and the record at which a tuple leaves its last window.

A search over windows needs only these. Among all windows that end with one record the widest suffices, since
it contains the tuples of the others. All positions are in the whole stream, over all keys. A tuple of a
relation without the key's fields belongs to the windows of every key, and one whose key is NULL to no window.

A tuple is kept while a live start of its key is not after it. The oldest live start never moves back, so
a binary search among the positions where it moved finds the record at which a tuple leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from skws_schema.model import Value
from skws_windows.automata.regular import Limits, Selection, WindowExpression
from skws_windows.guards.alphabet import ABSENT, Alphabet
from skws_windows.guards.letters import Flags, Ints, RecordSource
from skws_windows.processor.live_starts import Key
from skws_windows.processor.stream_processor import Advance, Processor
from skws_windows.window import FOREVER

ANY: Final = -1
"""The code of a field that the tuple's relation does not have; it matches all values."""

NO_KEY: Final = -2
"""The code of NULL: the tuple belongs to no key's stream."""


class ClosedSpans(NamedTuple):
    """Windows by the positions of their first and last records, in order of the last; keys by code.

    ``began``: the times of the first records, in microseconds.
    """

    first: Ints
    last: Ints
    key: Ints
    began: Ints


class Spans(NamedTuple):
    """The result of a batch: the closed windows, the codes of its keys, and the expiry of its tuples."""

    closed: ClosedSpans
    key: Ints
    expiry: TupleExpiry


class Tracker:
    """Tracks the windows of an expression over a stream. ``position``: that of the next record."""

    def __init__(self, expression: WindowExpression, alphabet: Alphabet) -> None:
        if expression.selection is Selection.EVERY:
            expression = replace(expression, selection=Selection.LONGEST)
        self.position = 0
        self.fields = expression.per
        self._limits = expression.limits
        self._alphabet = alphabet
        self._processor = Processor(expression, alphabet, counting=False)
        self._codes = [_Codes() for _ in expression.per]
        self._positions: dict[Key, _KeyPositions] = {}
        self._open: dict[Key, int] = {}  # the oldest live start of each key that has any

    @property
    def open(self) -> dict[Key, int]:
        """The position of the oldest live start of each key that has one."""
        return dict(self._open)

    @property
    def open_since(self) -> dict[Key, int]:
        """The time in microseconds at which the oldest open window began, for each key that has one."""
        return {key: self._processor.oldest_time(key) for key in self._open}

    @property
    def horizon(self) -> int:
        """The position before which no tuple is in a later window."""
        return min(self._open.values(), default=self.position)

    def state(self) -> dict[str, Any]:
        """The state of the tracker, in plain values."""
        return {
            "position": self.position,
            "processor": self._processor.state(),
            "places": [(key, places.state()) for key, places in self._positions.items()],
            "open": list(self._open.items()),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        self._processor.restore(state["processor"])
        self._positions = {
            tuple(key): _KeyPositions(first, places) for key, (first, places) in state["places"]
        }
        self._open = {tuple(key): start for key, start in state["open"]}

    def values(self, key: Ints) -> list[list[Value]]:
        """The values of keys, by their codes."""
        return [
            [codes.value(code) for codes, code in zip(self._codes, row, strict=True)] for row in key.tolist()
        ]

    def codes_of(self, keys: Sequence[Sequence[Value]]) -> Ints:
        """Inverse of ``values``."""
        codes = [self._code(tuple(key)) for key in keys]
        return np.array(codes, dtype=np.int64).reshape(len(keys), len(self.fields))

    @property
    def is_crowded(self) -> bool:
        """True if ``keep`` should be called: the number of codes has doubled since the last time."""
        return any(codes.is_crowded for codes in self._codes)

    def keep(self, codes_in_use: Iterable[Ints]) -> None:
        """Forget the codes that are not in use; their values get new codes when they occur again."""
        empty = np.empty((0, len(self.fields)), dtype=np.int64)
        for codes, field_codes in zip(self._codes, np.concatenate([empty, *codes_in_use]).T, strict=True):
            codes.keep(field_codes)

    def feed(self, source: RecordSource) -> Spans:
        """Read the next records; times in microseconds, not decreasing."""
        begin = self.position
        key = self.keys(source)
        old_starts = dict(self._open)
        windows: list[tuple[int, int, int, tuple[int, ...]]] = []
        trails: dict[Key, OpenWindows] = {}
        for advance in self._processor.streams(source):
            code = self._code(advance.run.key)
            windows += [(*span, code) for span in self._spans(advance, trails, begin)]
        windows.sort(key=lambda window: window[1])
        self.position += len(source.relation)
        first, last, began, codes = zip(*windows, strict=True) if windows else ((), (), (), ())
        keys = np.array(codes, dtype=np.int64).reshape(len(windows), len(self.fields))
        closed = ClosedSpans(
            np.array(first, dtype=np.int64),
            np.array(last, dtype=np.int64),
            keys,
            np.array(began, dtype=np.int64),
        )
        trails_by_code = {self._code(name): trail for name, trail in trails.items()}
        expiry = TupleExpiry(
            trails_by_code, old_starts, trails, begin, source.time, self._limits, keyed=bool(self.fields)
        )
        return Spans(closed, key, expiry)

    def _spans(
        self, advance: Advance, trails: dict[Key, OpenWindows], begin: int
    ) -> list[tuple[int, int, int]]:
        """The windows of one key, by position in the whole stream; records the moves of its oldest start."""
        run = advance.run
        positions = self._positions.get(run.key)
        if positions is None:
            positions = self._positions[run.key] = _KeyPositions()
        positions.add(advance.arrival + begin)
        run.trail = []
        windows = [(positions.at(w.first), positions.at(w.last), w.start) for w in advance.windows]
        trail = [(begin - 1, self._open.get(run.key))]
        for position, oldest in run.trail:
            trail.append((positions.at(position), positions.at(oldest) if oldest >= 0 else None))
        trails[run.key] = OpenWindows.of(trail)
        oldest = run.oldest
        if oldest >= 0:
            self._open[run.key] = positions.at(oldest)
        else:
            self._open.pop(run.key, None)
        if run.is_initial:
            del self._positions[run.key]
        else:
            positions.forget(oldest if oldest >= 0 else run.position)
        return windows

    def _code(self, key: Key) -> tuple[int, ...]:
        return tuple([codes.of(value) for codes, value in zip(self._codes, key, strict=True)])

    def keys(self, source: RecordSource) -> Ints:
        """The codes of each record's key, one column per field."""
        relation = source.relation
        codes = np.full((len(relation), len(self.fields)), ANY, dtype=np.int64)
        for index, name in enumerate(self.fields):
            key_codes = self._codes[index]
            values = source.column(self._alphabet.fields[name]).to_list()
            codes[:, index] = [NO_KEY if v is None else key_codes.of(v) for v in values]
            is_absent = np.array([column == ABSENT for column in self._alphabet.fields[name].columns])
            codes[is_absent[relation], index] = ANY
        return codes


def keyless(codes: Ints) -> Flags:
    """A flag for each tuple that belongs to no window, because its key is NULL."""
    flags: Flags = (codes == NO_KEY).any(axis=1)
    return flags


_LEAST_CODES: Final = 64
"""The number of codes below which ``keep`` is not worthwhile."""


class _Codes:
    """The codes of the values of a key's field, each used once."""

    def __init__(self) -> None:
        self._code_by_value: dict[Value, int] = {}
        self._value_by_code: dict[int, Value] = {}
        self._next = 0
        self._last_size = _LEAST_CODES

    @property
    def is_crowded(self) -> bool:
        return len(self._code_by_value) > 2 * self._last_size

    def of(self, value: Value) -> int:
        code = self._code_by_value.setdefault(value, self._next)
        if code == self._next:
            self._value_by_code[code] = value
            self._next += 1
        return code

    def value(self, code: int) -> Value:
        """Inverse of ``of``."""
        return self._value_by_code[code]

    def keep(self, codes_in_use: Ints) -> None:
        """Forget all other codes."""
        codes = set(codes_in_use.tolist())
        self._code_by_value = {value: code for value, code in self._code_by_value.items() if code in codes}
        self._value_by_code = {code: value for value, code in self._code_by_value.items()}
        self._last_size = max(_LEAST_CODES, len(self._code_by_value))


_SPARSE: Final = 4
"""The least size of an array as a multiple of the positions in use so that a smaller copy is worthwhile."""
_LEAST_POSITIONS: Final = 64


class _KeyPositions:
    """The positions in the whole stream of one key's records, from some record on."""

    def __init__(self, first: int = 0, positions: Sequence[int] = ()) -> None:
        self._first = first
        self._positions = np.array(positions, dtype=np.int64)
        # The part of the array in use; the space after it makes additions take constant time each.
        self._begin, self._end = 0, len(self._positions)

    def state(self) -> tuple[int, list[int]]:
        return self._first, self._positions[self._begin : self._end].tolist()

    def add(self, positions: Ints) -> None:
        if self._end + len(positions) > len(self._positions):
            self._move(self._end - self._begin + len(positions))
        self._positions[self._end : self._end + len(positions)] = positions
        self._end += len(positions)

    def at(self, position: int) -> int:
        return self._positions.item(self._begin + position - self._first)

    def forget(self, position: int) -> None:
        """Drop the records before ``position``."""
        self._begin += position - self._first
        self._first = position
        size = self._end - self._begin
        if len(self._positions) > _SPARSE * max(size, _LEAST_POSITIONS):
            self._move(size)

    def _move(self, size: int) -> None:
        """Move the positions to an array with space for a quarter more than ``size``."""
        positions = self._positions[self._begin : self._end]
        self._positions = np.empty(size + size // 4, dtype=np.int64)
        self._begin, self._end = 0, len(positions)
        self._positions[: self._end] = positions


Code: TypeAlias = tuple[int, ...]
_KEY_STRIDE: Final = 1 << 40
"""More than any position; the numbers of keys are multiples of it in combined codes."""


class OpenWindows(NamedTuple):
    """After the record at ``at``, tuples before ``bound`` have expired; ``closed``: no window is open."""

    at: Ints
    bound: Ints
    closed: Flags

    @classmethod
    def of(cls, changes: list[tuple[int, int | None]]) -> OpenWindows:
        """From (position, oldest live start after it, or None)."""
        positions = np.array([position for position, _ in changes], dtype=np.int64)
        bound = np.array([p + 1 if o is None else o for p, o in changes], dtype=np.int64)
        return cls(positions, bound, np.array([o is None for _, o in changes], dtype=bool))


class TupleExpiry:
    """Decides when tuples expire.

    ``trails``: the open windows by codes of keys, ``trails_by_key``: the same by key. ``before``: the oldest
    live starts before the batch. ``begin``: the position of the batch's first record. ``time``: the times of
    all records.
    """

    def __init__(
        self,
        trails: Mapping[Code, OpenWindows],
        before: Mapping[Key, int],
        trails_by_key: Mapping[Key, OpenWindows],
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
        self._before, self._trails_by_key = before, trails_by_key
        self._trails = trails
        self._all: OpenWindows | None = None

    def __call__(self, position: Ints, time: Ints, key: Ints, *, seen: bool = False) -> Ints:
        """The last position at which each tuple may be in a window; FOREVER if the batch does not show it.

        A tuple that arrives while no window is open, and begins none, expires before its arrival. ``seen``: a
        tuple is kept up to the record that shows it to be too old for a limit, which needs no look-ahead.
        """
        last = np.full(len(position), FOREVER, dtype=np.int64)
        has_key = (key >= 0).all(axis=1)
        is_shared = ~has_key
        if is_shared.any():
            last[is_shared] = _expiry_of(
                [self.of_all], np.zeros(int(is_shared.sum()), dtype=np.int64), position[is_shared]
            )
        if has_key.any():
            last[has_key] = self._key_expiry(position[has_key], key[has_key])
        return np.minimum(last, self._limit_expiry(position, time, seen=seen))

    @property
    def of_all(self) -> OpenWindows:
        """The trail of the oldest live start over all keys."""
        if self._all is None:
            self._all = self._merge()
        return self._all

    def _trail_numbers(self, key: Ints) -> Ints:
        """The number of each key's trail; -1 for one without records in the batch."""
        if not self._keyed:
            return np.zeros(len(key), dtype=np.int64)
        return _numbers_among(key, np.array(list(self._trails), dtype=np.int64).reshape(-1, key.shape[1]))

    def _key_expiry(self, position: Ints, key: Ints) -> Ints:
        numbers = self._trail_numbers(key)
        last = np.full(len(position), FOREVER, dtype=np.int64)
        known = numbers >= 0
        if known.any():
            last[known] = _expiry_of(list(self._trails.values()), numbers[known], position[known])
        return last

    def _limit_expiry(self, position: Ints, time: Ints, *, seen: bool) -> Ints:
        """The last position at which each tuple may be in a window with limits."""
        last = np.full(len(position), FOREVER, dtype=np.int64)
        if self._limits.within is not None and len(self._time):
            end = np.searchsorted(self._time, time + self._limits.within, side="right")
            last = np.where(end < len(self._time), self._begin + end - (not seen), last)
        if self._limits.most is not None and not self._keyed:
            count_end = position + self._limits.most - 1
            # A later batch determines positions after this one.
            last = np.where(count_end < self._begin + len(self._time), np.minimum(last, count_end), last)
        return last

    def _merge(self) -> OpenWindows:
        """The trail of the least bound over all keys."""
        numbers = {key: number for number, key in enumerate({**self._before, **self._trails_by_key})}
        live = {numbers[key]: start for key, start in self._before.items()}
        queue = [(start, number) for number, start in live.items()]
        heapify(queue)
        events = sorted(
            (at, numbers[key], bound, closed)
            for key, trail in self._trails_by_key.items()
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
        return OpenWindows.of(changes)


def _numbers_among(keys: Ints, codes: Ints) -> Ints:
    """The number of each key among some distinct ones, -1 if it is none of them.

    There are many keys, one for each live tuple, and often few codes, so the keys are not sorted.
    """
    places, own_places = np.zeros(len(keys), dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    if not len(codes):
        return places - 1
    is_known = np.ones(len(keys), dtype=bool)
    for column, own_column in zip(keys.T, codes.T, strict=True):
        values, own_numbers = np.unique(own_column, return_inverse=True)
        numbers = np.minimum(np.searchsorted(values, column), len(values) - 1)
        is_known &= values[numbers] == column
        # The first columns of each key as one number, which stays small.
        pairs, own_places = np.unique(own_places * len(values) + own_numbers, return_inverse=True)
        combined = places * len(values) + numbers
        places = np.minimum(np.searchsorted(pairs, combined), len(pairs) - 1)
        is_known &= pairs[places] == combined
    return np.where(is_known, np.argsort(own_places)[places], -1)


class _JoinedTrails:
    """Several trails, concatenated."""

    def __init__(self, trails: list[OpenWindows]) -> None:
        self.sizes = np.array([len(trail.at) for trail in trails])
        self.ends = np.cumsum(self.sizes)
        self._number = np.repeat(np.arange(len(trails)), self.sizes)
        self.at = np.concatenate([trail.at for trail in trails])
        self.bound = np.concatenate([trail.bound for trail in trails])
        self.closed = np.concatenate([trail.closed for trail in trails])

    def index_until(self, numbers: Ints, position: Ints) -> Ints:
        """The index of the last entry of a trail at or before each position, or of another trail's end."""
        # The first entry of a trail is just before the batch; its position may be -1.
        keys = self._number * _KEY_STRIDE + self.at + 1
        indices: Ints = np.searchsorted(keys, numbers * _KEY_STRIDE + position + 1, side="right") - 1
        return indices

    def expiry_index(self, numbers: Ints, position: Ints) -> Ints:
        """The index of the first entry of a trail after which each position has expired."""
        indices: Ints = np.searchsorted(
            self._number * _KEY_STRIDE + self.bound, numbers * _KEY_STRIDE + position, side="right"
        )
        return indices


def _expiry_of(trails: list[OpenWindows], numbers: Ints, position: Ints) -> Ints:
    """For each position, the first record of its trail after which it has expired."""
    all_trails = _JoinedTrails(trails)
    at, ends = all_trails.at, all_trails.ends
    last = all_trails.index_until(numbers, position)
    is_old = last < ends[numbers] - all_trails.sizes[numbers]
    is_idle = ~is_old & all_trails.closed[last] & (at[last] < position)
    ends_index = all_trails.expiry_index(numbers, position)
    expiry = np.where(ends_index < ends[numbers], at[np.minimum(ends_index, len(at) - 1)], FOREVER)
    return np.where(is_idle, position - 1, expiry)
