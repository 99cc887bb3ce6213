"""The spans of windows in the whole stream, and when a tuple leaves the last window that may hold it.

This is what a search over windows needs. Of all windows that end with one
record it is enough to keep the widest, since it holds the tuples of the others.
All positions are in the whole stream, over all keys. A tuple of a relation
without the key's fields belongs to every key's windows; one whose key is NULL
to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from skws_schema.model import Value
from skws_windows.guards.alphabet import ABSENT, Alphabet
from skws_windows.guards.columns import Flags, Ints, Source
from skws_windows.language.expression import Selection, WindowExpression
from skws_windows.processor.leaving import Leaving, Trail
from skws_windows.processor.processor import Advance, Key, Processor

ANY: Final = -1
"""The code of a value that a tuple lacks because its relation has no such field: it matches all."""

NO_KEY: Final = -2
"""The code of NULL: the tuple belongs to no key's stream."""


class Closed(NamedTuple):
    """Windows by the positions of their first and last records, in order of the last; keys by code.

    ``began``: the times of the first, in microseconds.
    """

    first: Ints
    last: Ints
    key: Ints
    began: Ints


class Spans(NamedTuple):
    """The result of a batch: the windows that ended, the codes of its keys, and when tuples leave."""

    closed: Closed
    key: Ints
    leaving: Leaving


class Tracker:
    """Follows the windows of an expression over a stream; ``position``: of the next record."""

    def __init__(self, expression: WindowExpression, alphabet: Alphabet) -> None:
        if expression.selection is Selection.EVERY:
            expression = replace(expression, selection=Selection.LONGEST)
        self.position = 0
        self.fields = expression.per
        self._limits = expression.limits
        self._alphabet = alphabet
        self._processor = Processor(expression, alphabet)
        self._codes: list[dict[Value, int]] = [{} for _ in expression.per]
        self._places: dict[Key, _Places] = {}
        self._open: dict[Key, int] = {}  # the oldest live start of each key that has any

    @property
    def open(self) -> dict[Key, int]:
        """The position of the oldest live start of each key that has any."""
        return dict(self._open)

    @property
    def open_since(self) -> dict[Key, int]:
        """The time in microseconds at which the oldest open window began, of each key that has any."""
        return {key: self._processor.oldest_time(key) for key in self._open}

    @property
    def horizon(self) -> int:
        """Tuples before this position are in no window to come."""
        return min(self._open.values(), default=self.position)

    def state(self) -> dict[str, Any]:
        """The state of the tracker, in plain values."""
        return {
            "position": self.position,
            "processor": self._processor.state(),
            "places": [(key, places.state()) for key, places in self._places.items()],
            "open": list(self._open.items()),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        self._processor.restore(state["processor"])
        self._places = {tuple(key): _Places(first, places) for key, (first, places) in state["places"]}
        self._open = {tuple(key): start for key, start in state["open"]}

    def values(self, key: Ints) -> list[list[Value]]:
        known = [list(codes) for codes in self._codes]
        return [[values[code] for values, code in zip(known, row, strict=True)] for row in key.tolist()]

    def coded(self, keys: Sequence[Sequence[Value]]) -> Ints:
        """Inverse of ``values``."""
        codes = [self._code(tuple(key)) for key in keys]
        return np.array(codes, dtype=np.int64).reshape(len(keys), len(self.fields))

    def feed(self, source: Source) -> Spans:
        """Read the next records; times in microseconds, not decreasing."""
        begin = self.position
        key = self.keys(source)
        before = dict(self._open)
        windows: list[tuple[int, int, int, tuple[int, ...]]] = []
        trails: dict[Key, Trail] = {}
        for advance in self._processor.streams(source):
            coded = self._code(advance.run.key)
            windows += [(*span, coded) for span in self._spans(advance, trails, begin)]
        windows.sort(key=lambda window: window[1])
        self.position += len(source.relation)
        first, last, began, codes = zip(*windows, strict=True) if windows else ((), (), (), ())
        keys = np.array(codes, dtype=np.int64).reshape(len(windows), len(self.fields))
        closed = Closed(
            np.array(first, dtype=np.int64),
            np.array(last, dtype=np.int64),
            keys,
            np.array(began, dtype=np.int64),
        )
        coded_trails = {self._code(name): trail for name, trail in trails.items()}
        leaving = Leaving(
            coded_trails, before, trails, begin, source.time, self._limits, keyed=bool(self.fields)
        )
        return Spans(closed, key, leaving)

    def _spans(self, advance: Advance, trails: dict[Key, Trail], begin: int) -> list[tuple[int, int, int]]:
        """One stream's windows by positions in the whole stream; records the moves of its oldest start."""
        run = advance.run
        places = self._places.get(run.key)
        if places is None:
            places = self._places[run.key] = _Places()
        places.add(advance.arrival + begin)
        run.trail = []
        found = [(places.at(w.first), places.at(w.last), w.start) for w in advance.windows]
        trail = [(begin - 1, self._open.get(run.key))]
        for position, oldest in run.trail:
            trail.append((places.at(position), places.at(oldest) if oldest >= 0 else None))
        trails[run.key] = Trail.of(trail)
        oldest = run.oldest
        if oldest >= 0:
            self._open[run.key] = places.at(oldest)
        else:
            self._open.pop(run.key, None)
        places.forget(oldest if oldest >= 0 else run.position)
        return found

    def _code(self, key: Key) -> tuple[int, ...]:
        return tuple([known.setdefault(v, len(known)) for known, v in zip(self._codes, key, strict=True)])

    def keys(self, source: Source) -> Ints:
        """The codes of each record's key, a column a field."""
        relation = source.relation
        codes = np.full((len(relation), len(self.fields)), ANY, dtype=np.int64)
        for place, name in enumerate(self.fields):
            known = self._codes[place]
            values = source.column(self._alphabet.fields[name]).listed()
            codes[:, place] = [NO_KEY if v is None else known.setdefault(v, len(known)) for v in values]
            lacking = np.array([column == ABSENT for column in self._alphabet.fields[name].columns])
            codes[lacking[relation], place] = ANY
        return codes


def keyless(codes: Ints) -> Flags:
    """Which tuples belong to no window, because their key is NULL."""
    found: Flags = (codes == NO_KEY).any(axis=1)
    return found


class _Places:
    """The positions in the whole stream of one key's records, from some record on."""

    def __init__(self, first: int = 0, places: Sequence[int] = ()) -> None:
        self._first = first
        self._places = np.array(places, dtype=np.int64)

    def state(self) -> tuple[int, list[int]]:
        return self._first, self._places.tolist()

    def add(self, places: Ints) -> None:
        self._places = np.concatenate([self._places, places])

    def at(self, position: int) -> int:
        return self._places.item(position - self._first)

    def forget(self, position: int) -> None:
        """Drop the records before ``position``."""
        self._places = self._places[position - self._first :]
        self._first = position
